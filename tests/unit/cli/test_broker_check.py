"""Tests of `ottla broker --check`, which reports what a start would find without starting."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.client.certificates import Authority, needs_openssl
from tests.jwt_issuer import SigningKey, key_set

from ottla.broker.data_lock import LOCK_FILE
from ottla.cli.broker import broker
from ottla.cli.kafka_server_start import kafka_server_start
from ottla.storage.file import OsFileSystem
from ottla.storage.log_dirs import LogDirectory
from ottla.testing.broker import EmbeddedBroker

CLUSTER = "Moq1eLhXg8miO_2zq0vZwA"
Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function that checks a broker with a data directory in `tmp_path` on a free port."""

    def run(*options: str, data_dir: Path = tmp_path / "data") -> tuple[int, str]:
        where = ("--data-dir", str(data_dir), "--listen", "127.0.0.1:0")
        result = CliRunner().invoke(broker, [*where, *options, "--check"], standalone_mode=False)
        assert result.exception is None, result.exception
        return result.return_value, result.stdout

    return run


def own(path: Path, cluster_id: str = CLUSTER, node_id: int = 1) -> Path:
    path.mkdir(parents=True)
    LogDirectory(OsFileSystem(8), str(path)).claim(cluster_id, node_id)
    return path


def test_a_configuration_that_can_start_succeeds_and_leaves_no_trace(
    check: Check, tmp_path: Path
) -> None:
    code, output = check()
    assert code == 0
    assert all(line.startswith("OK ") for line in output.splitlines())
    assert f"data directory {tmp_path}/data: will be created" in output
    assert "listener PLAINTEXT://127.0.0.1:0: the port is free" in output
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_broker_is_checked_and_not_changed(check: Check, tmp_path: Path) -> None:
    async def start_and_stop() -> str:
        async with EmbeddedBroker(tmp_path / "data") as embedded:
            return embedded.broker.cluster_id

    cluster_id = asyncio.run(start_and_stop())
    log = tmp_path / "data/ottla-metadata/metadata.log"
    log.write_bytes(log.read_bytes() + b"torn")  # a start would truncate this torn record

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    code, output = check()
    assert (code, contents()) == (0, before)
    assert f"OK node.id 1 of the cluster {cluster_id}\n" in output


def test_every_wrong_value_is_listed(check: Check) -> None:
    code, output = check(
        "--override", "num.partitions=none", "--override", "log.segment.bytes=-4",
    )  # fmt: skip
    assert code == 1
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == ["ERROR", "ERROR"]
    assert "num.partitions" in lines[0]
    assert "log.segment.bytes" in lines[1]


def test_an_unknown_property_is_a_warning(check: Check) -> None:
    code, output = check("--override", "num.partition=3")
    assert code == 0
    assert "WARNING num.partition is not a known property" in output


def test_a_port_in_use_is_an_error(check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = check("--override", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert code == 1
    assert f"ERROR Cannot listen on 127.0.0.1:{port}: the port is in use" in output


def test_a_directory_that_another_broker_holds_is_an_error(check: Check, tmp_path: Path) -> None:
    path = own(tmp_path / "data")
    with (path / LOCK_FILE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, output = check()
    assert code == 1
    assert f"ERROR data directory {path}: is in use by another broker" in output
    assert check()[0] == 0


def test_a_directory_that_cannot_be_written_to_is_an_error(check: Check, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    code, output = check(data_dir=in_the_way)
    assert (code, "is not a directory" in output) == (1, True)
    code, output = check(data_dir=in_the_way / "below")
    assert (code, f"{in_the_way} cannot be written to" in output) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every directory")
def test_a_read_only_directory_is_an_error(check: Check, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    code, output = check()
    assert (code, "cannot be written to" in output) == (1, True)


def test_directories_of_other_brokers_are_errors(check: Check, tmp_path: Path) -> None:
    first, second = own(tmp_path / "a"), own(tmp_path / "b", cluster_id="other")
    both = ("--override", f"log.dirs={first},{second}")
    code, output = check(*both)
    assert code == 1
    assert f"ERROR {second} belongs to cluster other, not {CLUSTER}" in output
    code, output = check("--override", "node.id=7", data_dir=first)
    assert code == 1
    assert f"ERROR {first} belongs to node.id 1, not 7" in output
    (first / "meta.properties").write_text("version=1\n")
    code, output = check(data_dir=first)
    assert (code, "does not contain cluster.id" in output) == (1, True)


def test_a_partition_in_two_directories_is_an_error(check: Check, tmp_path: Path) -> None:
    first, second = own(tmp_path / "a"), own(tmp_path / "b")
    for path in (first, second):
        (path / "orders-0").mkdir()
    code, output = check("--override", f"log.dirs={first},{second}")
    assert code == 1
    assert f"ERROR orders-0 is in {first}/orders-0 and in {second}/orders-0" in output


def test_damaged_metadata_is_an_error_that_names_the_file(check: Check, tmp_path: Path) -> None:
    metadata = own(tmp_path / "data") / "ottla-metadata"
    metadata.mkdir()
    (metadata / "metadata.snapshot").write_bytes(b"no snapshot\n")
    code, output = check()
    assert code == 1
    assert f"{metadata}/metadata.snapshot" in output


def test_addresses_are_checked_without_being_contacted(check: Check) -> None:
    code, output = check(
        "--advertise", "broker.invalid", "--override", "zookeeper.connect=zk.invalid:2181/ottla"
    )
    assert code == 0
    assert "WARNING advertised listener PLAINTEXT://broker.invalid:0" in output
    assert "OK ZooKeeper zk.invalid:2181, root /ottla (not contacted)" in output
    code, output = check("--override", "zookeeper.connect=zk:none")
    assert (code, "ERROR zookeeper.connect=zk:none" in output) == (1, True)


def test_a_listener_for_other_machines_is_an_error_without_insecure(check: Check) -> None:
    code, output = check("--override", "listeners=PLAINTEXT://:0")
    assert (code, "ERROR PLAINTEXT://:0 is open to other machines" in output) == (1, True)
    code, output = check("--override", "listeners=PLAINTEXT://:0", "--insecure")
    assert (code, "WARNING PLAINTEXT://:0 is open to other machines" in output) == (0, True)


def test_kafka_server_start_checks_a_property_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    arguments = [str(file), "--check"]
    result = CliRunner().invoke(kafka_server_start, arguments, standalone_mode=False)
    assert result.return_value == 0
    assert "OK configuration" in result.stdout


def test_unusable_certificates_for_zookeeper_are_reported(check: Check, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    options = ["zookeeper.connect=zk1:2181", "zookeeper.ssl.client.enable=true"]
    options += [f"zookeeper.ssl.keystore.location={missing}"]
    code, output = check(*(word for each in options for word in ("--override", each)))
    assert code == 1
    assert f"zookeeper.ssl.keystore.location={missing} cannot be used: no such file" in output


# ---------------------------------------------------------------------------------------- security

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="secret";'


@needs_openssl
def test_the_certificates_and_mechanisms_of_listeners_are_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("broker", "DNS:localhost")
    store = tmp_path / "broker.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())

    def check(**properties: str) -> tuple[int, str]:
        file = tmp_path / "server.properties"
        common = {
            "log.dirs": f"{tmp_path}/data",
            "listeners": "SASL_SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.location": str(store),
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in common.items()))
        result = CliRunner().invoke(
            kafka_server_start, [str(file), "--check"], standalone_mode=False
        )
        assert result.exception is None, result.exception
        assert "secret" not in result.stdout
        return result.return_value, result.stdout

    code, output = check()
    assert code == 0
    assert (
        "listener SASL_SSL://127.0.0.1:0: TLS with a certificate that is valid until 20" in output
    )
    assert "OK listener SASL_SSL://127.0.0.1:0: SASL with PLAIN, SCRAM-SHA-512\n" in output
    code, output = check(ssl__keystore__location="/nowhere.pem")
    assert code == 1
    assert "ERROR listener SASL_SSL://127.0.0.1:0: " in output
    code, output = check(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        listener__name__sasl_plaintext__plain__sasl__jaas__config=JAAS,
    )
    assert code == 0
    assert "clients send passwords for PLAIN without encryption, which SASL_SSL adds" in output
    tokens = {
        "sasl__enabled__mechanisms": "OAUTHBEARER",
        "sasl__oauthbearer__expected__issuer": "https://idp",
        "sasl__oauthbearer__expected__audience": "kafka",
    }
    keys = tmp_path / "keys.json"
    url = keys.as_uri()
    code, output = check(**tokens, sasl__oauthbearer__jwks__endpoint__url=url)
    assert code == 1
    assert f"endpoint.url={url} cannot be used: no such file or directory" in output
    keys.write_bytes(key_set(SigningKey("k1")))
    code, output = check(**tokens, sasl__oauthbearer__jwks__endpoint__url=url)
    assert code == 0
    assert f"OK listener SASL_SSL://127.0.0.1:0: 1 keys for tokens from {url}\n" in output
    away = "https://127.0.0.1:1/keys"
    code, output = check(**tokens, sasl__oauthbearer__jwks__endpoint__url=away)
    assert code == 0
    assert f"endpoint.url={away} cannot be used: " in output
    code, output = check(
        **tokens,
        sasl__oauthbearer__jwks__endpoint__url=url,
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
    )
    assert "clients send tokens for OAUTHBEARER without encryption" in output
    code, output = check(sasl__enabled__mechanisms="GSSAPI")
    assert code == 1
    assert "must not have GSSAPI, because Ottla does not support Kerberos" in output
