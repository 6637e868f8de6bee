"""The files and the configuration of a secure ZooKeeper server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.base.config.zookeeper_security import ZooKeeperCredentials, parse_zookeeper_security
from ottla.base.errors import UserError
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

pytestmark = needs_openssl

PASSWORD = "a secret of the tests"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The key store and the trust store."""
    home = tmp_path_factory.mktemp("stores")
    authority = Authority(home)
    own = authority.sign("zookeeper", "DNS:localhost")
    store = home / "zookeeper.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    return store, Path(authority.certificate)


def directory_with(made: tuple[Path, Path], place: Path, properties: str) -> Path:
    (place / "zookeeper.pem").write_bytes(made[0].read_bytes())
    (place / "ca.pem").write_bytes(made[1].read_bytes())
    (place / "zookeeper.properties").write_text(properties)
    return place


CREDENTIALS = f"zookeeper.auth.user=ottla\nzookeeper.auth.password={PASSWORD}\n"


def test_a_directory_with_the_files(made: tuple[Path, Path], tmp_path: Path) -> None:
    found = EnsembleSecurity.from_directory(directory_with(made, tmp_path, CREDENTIALS))
    assert found.keystore == tmp_path / "zookeeper.pem"
    assert found.credentials == ZooKeeperCredentials("ottla", PASSWORD)
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ("", "must set zookeeper.auth.user and zookeeper.auth.password"),
        ("zookeeper.auth.user=x\n", "zookeeper.auth.password"),
        (f"{CREDENTIALS}zookeeper.auth.scheme=digest", "must be sasl"),
        ("zookeeper.auth.user=a b\nzookeeper.auth.password=p", "must consist of letters"),
        ("zookeeper.auth.user=a\nzookeeper.auth.password=p${x}", "control characters"),
    ],
)
def test_credentials_that_java_cannot_use_are_refused(
    properties: str, sentence: str, made: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        EnsembleSecurity.from_directory(directory_with(made, tmp_path, properties))
    assert PASSWORD not in str(caught.value)


def test_a_missing_file_is_named(made: tuple[Path, Path], tmp_path: Path) -> None:
    directory_with(made, tmp_path, CREDENTIALS)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(UserError, match=r"ca\.pem cannot be used: no such file"):
        EnsembleSecurity.from_directory(tmp_path)


def test_a_key_that_zookeeper_cannot_read_is_named(made: tuple[Path, Path], tmp_path: Path) -> None:
    directory_with(made, tmp_path, CREDENTIALS)
    store = tmp_path / "zookeeper.pem"
    authority = Authority(tmp_path)
    own = authority.sign("z", "DNS:localhost", password="abcd")
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    with pytest.raises(UserError, match=r"zookeeper\.pem cannot be used"):
        EnsembleSecurity.from_directory(tmp_path)


def test_quotes_and_backslashes_in_a_password_are_escaped(made: tuple[Path, Path]) -> None:
    security = EnsembleSecurity(*made, ZooKeeperCredentials("ottla", 'a"b\\c'))
    assert 'user_ottla="a\\"b\\\\c";' in (security.jaas() or "")


def test_the_files_of_a_secure_server_are_private(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = EnsembleSecurity(*made, ZooKeeperCredentials("ottla", PASSWORD))
    member = EnsembleMember(tmp_path / "member", 1, local_addresses(1, [1, 2, 3]), security)
    monkeypatch.setattr("subprocess.Popen", lambda *args, **options: None)
    member.start()
    assert (tmp_path / "member").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "member/jaas.conf").stat().st_mode & 0o777 == 0o600
    config = (tmp_path / "member/zoo.cfg").read_text()
    assert "secureClientPort=1" in config
    assert "\nclientPort" not in config
    assert PASSWORD not in config
    assert not any(PASSWORD in each for each in member.command())


def test_a_server_that_is_no_longer_secure_keeps_no_password(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *args, **options: None)
    security = EnsembleSecurity(*made, ZooKeeperCredentials("ottla", PASSWORD))
    for each in (security, None):
        EnsembleMember(tmp_path, 1, local_addresses(1, [1, 2, 3]), each).start()
    assert not (tmp_path / "jaas.conf").exists()
    assert "\nclientPort=1" in (tmp_path / "zoo.cfg").read_text()


def test_brokers_get_the_properties_they_need(made: tuple[Path, Path]) -> None:
    security = EnsembleSecurity(*made, ZooKeeperCredentials("ottla", PASSWORD))
    found = parse_zookeeper_security(security.broker_properties("/own.pem"))
    assert found.credentials == security.credentials
    assert found.set_acl
    assert found.tls is not None
    assert found.tls.keystore_location == "/own.pem"
