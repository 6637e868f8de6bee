"""Tests of the files that `ottla secure init` makes, with the metadata left out."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.base.config.listener import Listener
from ottla.base.config.properties import load_properties, parse_properties
from ottla.base.errors import UserError
from ottla.base.scram import ScramMechanism
from ottla.cli.secure import texts
from ottla.cli.secure.certificates import certificate_count, facts
from ottla.cli.secure.init import Initializer, Made
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.plan import plan_brokers
from ottla.cli.secure.renew import drop_old_authority, renew, replace_authority
from ottla.cli.secure.texts import Login, replace_property

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Users:
    """The users that were put into the metadata."""

    def __init__(self) -> None:
        self.puts: list[dict[str, str]] = []
        self.failure: Exception | None = None

    def __call__(
        self, properties: Mapping[str, str], logins: Sequence[Login], *, replaces: bool
    ) -> None:
        if self.failure is not None:
            raise self.failure
        if logins:
            self.puts.append({each.user: each.password for each in logins})


@pytest.fixture
def users() -> Users:
    return Users()


def make(directory: Path, users: Users, *advertise: str, **more: bool) -> list[Made]:
    making = initializer(directory, users, *advertise, **more)
    return [*making.make_files(), *making.make_users()]


def initializer(directory: Path, users: Users, *advertise: str, **more: bool) -> Initializer:
    return Initializer(
        SecureDirectory(directory),
        plan_brokers(advertise),
        lambda plan: f"/data/{plan.id}",
        users,
        now=NOW,
        **more,
    )


@pytest.fixture
def made(tmp_path: Path, users: Users) -> SecureDirectory:
    make(tmp_path / "secure", users)
    return SecureDirectory(tmp_path / "secure")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(directory)): each.read_bytes()
        for each in directory.rglob("*")
        if each.is_file()
    }


def test_only_the_owner_can_read_what_is_made(made: SecureDirectory) -> None:
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    files = [each for each in made.path.rglob("*") if each.is_file()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert sorted(each.name for each in files) == [
        ".gitignore",
        "broker-1.pem",
        "ca.key",
        "ca.pem",
        "client.properties",
        "librdkafka.conf",
        "server.properties",
    ]


def test_the_configuration_of_the_broker(made: SecureDirectory, users: Users) -> None:
    password = users.puts[0]["broker"]
    assert (made.path / "server.properties").read_text() == (
        "# Written by `ottla secure init`. It contains the password that brokers use among\n"
        "# themselves, so keep it private.\n"
        "log.dirs=/data/1\n"
        "\n"
        "listeners=SASL_SSL://127.0.0.1:9092\n"
        "advertised.listeners=SASL_SSL://127.0.0.1:9092\n"
        "inter.broker.listener.name=SASL_SSL\n"
        "\n"
        "# Certificates. Brokers load these files again when they change.\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={made.path}/broker-1.pem\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={made.path}/ca.pem\n"
        "\n"
        "# Users are part of the cluster's metadata. `ottla secure user` manages them.\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256\n"
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="broker" password="{password}";\n'
        "\n"
        "# What users may do is decided by ACLs. `ottla secure user add` and `kafka-acls` create\n"
        "# them. Super users need none.\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:admin;User:broker\n"
    )


def test_the_profile_has_the_trusted_certificate_inside(
    made: SecureDirectory, users: Users
) -> None:
    profile = load_properties(str(made.admin_profile))
    assert profile == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="admin" password="{users.puts[0]["admin"]}";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": made.trusted.read_text(),
    }


def test_the_profile_for_librdkafka_has_one_property_in_each_line(
    made: SecureDirectory, users: Users
) -> None:
    assert made.admin_librdkafka.read_text().splitlines() == [
        "bootstrap.servers=127.0.0.1:9092",
        "security.protocol=SASL_SSL",
        "sasl.mechanism=SCRAM-SHA-512",
        "sasl.username=admin",
        f"sasl.password={users.puts[0]['admin']}",
        f"ssl.ca.location={made.trusted}",
    ]


def test_passwords_are_random(tmp_path: Path, users: Users) -> None:
    make(tmp_path / "a", users)
    make(tmp_path / "b", users)
    passwords = [password for put in users.puts for password in put.values()]
    assert len(set(passwords)) == 4
    assert {len(each) for each in passwords} == {32}


def test_running_it_again_changes_nothing(made: SecureDirectory, users: Users) -> None:
    before = contents(made.path)
    again = make(made.path, users)
    assert contents(made.path) == before
    assert not any(each.is_new for each in again)
    assert len(users.puts) == 1


def test_hosts_that_a_certificate_lacks_are_found(tmp_path: Path, users: Users) -> None:
    make(tmp_path, users, "a.example.com")
    other = initializer(tmp_path, users, "b.example.com")
    other.make_files()
    assert other.missing_hosts() == ["b.example.com"]
    renew(SecureDirectory(tmp_path), more_hosts=["b.example.com"])
    assert other.missing_hosts() == []


def test_force_replaces_the_authority_and_the_passwords(
    made: SecureDirectory, users: Users
) -> None:
    made.users.mkdir()
    profile = made.user_profile("alice")
    profile.write_bytes(made.admin_profile.read_bytes())
    before = contents(made.path)
    assert all(each.is_new for each in make(made.path, users, is_forced=True))
    after = contents(made.path)
    assert [name for name in before if before[name] == after[name]] == [".gitignore"]
    assert users.puts[0]["admin"] != users.puts[1]["admin"]
    trusted = load_properties(str(profile))["ssl.truststore.certificates"]
    assert trusted == made.trusted.read_text()


def test_force_changes_nothing_while_a_broker_is_running(
    made: SecureDirectory, users: Users
) -> None:
    before = contents(made.path)
    users.failure = UserError("A broker is running.")
    with pytest.raises(UserError):
        make(made.path, users, is_forced=True)
    assert contents(made.path) == before


def test_an_interrupted_run_is_completed_with_what_exists(tmp_path: Path, users: Users) -> None:
    directory = tmp_path / "secure"
    users.failure = UserError("A broker is running.")
    with pytest.raises(UserError):
        make(directory, users)
    before = contents(directory)
    assert "client.properties" not in before
    users.failure = None
    again = make(directory, users)
    after = contents(directory)
    assert {name: after[name] for name in before} == before
    assert [each.path.name for each in again if each.is_new] == [
        "client.properties",
        "librdkafka.conf",
    ]
    assert users.puts[0]["broker"] in after["server.properties"].decode()


def test_brokers_can_be_added_later(tmp_path: Path, users: Users) -> None:
    directory = tmp_path / "secure"
    make(directory, users, "a:1", "b:1")
    before = contents(directory)
    again = make(directory, users, "a:1", "b:1", "c:1")
    after = contents(directory)
    assert {name: after[name] for name in before} == before
    assert [each.path.name for each in again if each.is_new] == [
        "broker-3.pem",
        "server-3.properties",
    ]
    third = load_properties(str(directory / "server-3.properties"))
    second = load_properties(str(directory / "server-2.properties"))
    assert third["node.id"] == "3"
    assert third[texts.BROKERS_JAAS] == second[texts.BROKERS_JAAS]


def test_a_directory_of_others_keeps_its_mode_and_an_empty_one_is_closed(
    tmp_path: Path, users: Users
) -> None:
    used, empty = tmp_path / "used", tmp_path / "empty"
    for each in (used, empty):
        each.mkdir()
        each.chmod(0o755)
    (used / "other").touch()
    make(used, users)
    make(empty, users)
    assert stat.S_IMODE(used.stat().st_mode) == 0o755
    assert stat.S_IMODE(empty.stat().st_mode) == 0o700


# ------------------------------------------------------------------------------------ addresses


def test_without_an_address_the_broker_listens_on_loopback() -> None:
    (plan,) = plan_brokers([])
    assert plan.listener == plan.advertised == Listener("SASL_SSL", "127.0.0.1", 9092)
    assert set(plan.hosts) == {"127.0.0.1", "localhost", "::1"}


def test_an_advertised_address_is_in_the_certificate_and_listens_everywhere() -> None:
    (plan,) = plan_brokers(["kafka.example.com:19092"], more_hosts=["10.0.0.7"])
    assert plan.listener == Listener("SASL_SSL", "", 19092)
    assert plan.advertised == Listener("SASL_SSL", "kafka.example.com", 19092)
    assert plan.hosts == ("kafka.example.com", "10.0.0.7", "localhost", "127.0.0.1", "::1")


def test_brokers_on_one_machine_have_consecutive_ports() -> None:
    plans = plan_brokers(["kafka.example.com"], 3)
    assert [each.advertised.port for each in plans] == [9092, 9093, 9094]
    assert [each.id for each in plans] == [1, 2, 3]


def test_each_broker_may_have_an_address_of_its_own() -> None:
    plans = plan_brokers(["a", "b:1", "[2001:db8::9]:2"])
    assert [str(each.advertised) for each in plans] == [
        "SASL_SSL://a:9092",
        "SASL_SSL://b:1",
        "SASL_SSL://[2001:db8::9]:2",
    ]
    assert plans[2].hosts[0] == "2001:db8::9"


@pytest.mark.parametrize(
    ("advertise", "brokers", "sentence"),
    [
        (["a", "b"], 3, "--advertise was given 2 times for 3 brokers"),
        (["a", "a"], 2, "must be a different address for each broker"),
        (["a b"], 1, "must look like HOST or HOST:PORT"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(
    advertise: list[str], brokers: int, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        plan_brokers(advertise, brokers)


# -------------------------------------------------------------------------------------- renewal


def test_a_renewal_replaces_keys_and_keeps_the_mode(made: SecureDirectory) -> None:
    before = contents(made.path)
    renewed = renew(made, now=NOW + timedelta(days=30))
    after = contents(made.path)
    assert [name for name in before if before[name] != after[name]] == ["broker-1.pem"]
    assert renewed[made.keystore(1)].expires_at == NOW + timedelta(days=120)
    assert stat.S_IMODE(made.keystore(1).stat().st_mode) == 0o600


def test_one_broker_can_be_renewed(tmp_path: Path, users: Users) -> None:
    make(tmp_path, users, "a", "b")
    directory = SecureDirectory(tmp_path)
    before = contents(tmp_path)
    assert list(renew(directory, 2, now=NOW)) == [directory.keystore(2)]
    after = contents(tmp_path)
    assert [name for name in before if before[name] != after[name]] == ["broker-2.pem"]
    with pytest.raises(UserError, match=r"ID 3. The brokers that have one: 1, 2\."):
        renew(directory, 3)


def test_there_is_nothing_to_renew_without_an_authority(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no certificate authority\. Create one with: ottla"):
        renew(SecureDirectory(tmp_path))


def test_a_new_authority_is_trusted_beside_the_old_one_until_that_is_dropped(
    made: SecureDirectory,
) -> None:
    old = made.trusted.read_bytes()
    replace_authority(made, now=NOW)
    renew(made, now=NOW)
    both = made.trusted.read_bytes()
    assert certificate_count(both) == 2
    assert both.endswith(old)
    assert certificate_count(made.keystore(1).read_bytes()) == 2
    profile = load_properties(str(made.admin_profile))
    assert profile["ssl.truststore.certificates"] == both.decode()

    assert drop_old_authority(made) == 1
    renew(made, now=NOW)
    assert certificate_count(made.trusted.read_bytes()) == 1
    assert facts(made.trusted.read_bytes()).subject != facts(old).subject
    assert certificate_count(made.keystore(1).read_bytes()) == 1
    assert drop_old_authority(made) == 0
    assert {stat.S_IMODE(each.stat().st_mode) for each in made.path.iterdir()} == {0o600}


# ---------------------------------------------------------------------------------- properties


@pytest.mark.parametrize(
    "value",
    ["plain", " leading", "trailing ", "a\\b", 'say "x"', "line\nbreak\ttab", "ü€😀", "#!=:"],
)
def test_a_property_is_read_as_it_was_written(value: str) -> None:
    line = texts.property_line("name", value)
    assert line.isascii()
    assert parse_properties(f"a=1\n{line}\nb=2") == {"a": "1", "name": value, "b": "2"}


def test_replacing_a_property_keeps_the_rest_of_the_file() -> None:
    text = "# mine\na=1\nb = 2\\\n  3\\\n  4\n\nb=5\nc=6\n"
    assert replace_property(text, "b", "b=7") == "# mine\na=1\nb=7\n\nc=6\n"
    assert replace_property(text, "d", "d=7") == f"{text}d=7\n"


def test_the_representation_of_a_login_has_no_password() -> None:
    assert "secret" not in repr(Login("alice", "secret", ScramMechanism.SHA_256))


@pytest.mark.parametrize("name", ["../x", ".", "..", ".hidden", "a/b", "a\0b", "ü"])
def test_the_name_of_a_user_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    directory = SecureDirectory(tmp_path)
    for path in (directory.user_profile(name), directory.user_librdkafka(name)):
        assert path.parent == directory.users
        assert not path.name.startswith(".")
        assert "\0" not in path.name


def test_the_profiles_of_two_users_have_different_names(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    names = ["a", "a.conf", "a.properties", "%2E", ".", "A"]
    paths = {
        path
        for name in names
        for path in (directory.user_profile(name), directory.user_librdkafka(name))
    }
    assert len(paths) == 2 * len(names)
