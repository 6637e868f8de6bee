"""`kafka-configs` against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run

from ottla.client.admin import Admin
from ottla.testing.broker import BrokerProcess


@pytest.fixture
def existing(broker: BrokerProcess, topic: str) -> Iterator[str]:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics(topic)
        yield topic
        admin.delete_topics(topic)


def configs(succeed: Run, *words: str) -> dict[str, str]:
    found = succeed("configs", "--describe", *words, "--json").json
    (entity,) = found["entities"]
    return {name: entry["value"] for name, entry in entity["configs"].items()}


def test_a_topics_properties_are_set_shown_and_taken_back(succeed: Run, existing: str) -> None:
    added = "retention.ms=1000,cleanup.policy=[compact,delete]"
    altered = succeed("configs", "--alter", "--topic", existing, "--add-config", added)
    assert altered.out == f"Completed updating config for topic {existing}.\n"
    shown = succeed("configs", "--describe", "--entity-type", "topics", "--entity-name", existing)
    assert shown.lines[0] == f"Dynamic configs for topic {existing} are:"
    assert shown.lines[1].startswith("  cleanup.policy=compact,delete sensitive=false synonyms={")
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in shown.lines[2]
    assert len(shown.lines) == 3
    succeed("configs", "--alter", "--topic", existing, "--delete-config", "retention.ms")
    assert configs(succeed, "--topic", existing) == {"cleanup.policy": "compact,delete"}
    everything = succeed("configs", "--describe", "--topic", existing, "--all")
    assert everything.lines[0] == f"All configs for topic {existing} are:"
    assert len(everything.lines) > 20


def test_all_topics_are_described_without_a_name(succeed: Run, existing: str) -> None:
    lines = succeed("configs", "--describe", "--entity-type", "topics").lines
    assert f"Dynamic configs for topic {existing} are:" in lines


def test_a_file_of_properties_is_set(succeed: Run, existing: str, tmp_path: Path) -> None:
    file = tmp_path / "topic.properties"
    file.write_text("flush.ms=5\nretention.ms=6\n")
    succeed(
        *("configs", "--alter", "--topic", existing),
        *("--add-config-file", str(file), "--add-config", "flush.ms=7"),
    )
    assert configs(succeed, "--topic", existing) == {"flush.ms": "7", "retention.ms": "6"}


def test_brokers_their_defaults_and_loggers(succeed: Run) -> None:
    name = "log.retention.ms"
    altered = succeed("configs", "--alter", "--broker-defaults", "--add-config", f"{name}=77777")
    assert altered.out == "Completed updating default config for brokers in the cluster.\n"
    try:
        default = ("--entity-type", "brokers", "--entity-default")
        assert succeed("configs", "--describe", *default).lines[0] == (
            "Default configs for brokers in the cluster are:"
        )
        assert configs(succeed, *default) == {name: "77777"}
        assert configs(succeed, "--broker", "1") == {}
        assert configs(succeed, "--broker", "1", "--all")[name] == "77777"
    finally:
        succeed("configs", "--alter", "--broker-defaults", "--delete-config", name)
    succeed("configs", "--alter", "--broker-logger", "1", "--add-config", "ottla.broker=WARN")
    loggers = configs(succeed, "--broker-logger", "1")
    assert loggers["ottla.broker"] == "WARN"
    succeed("configs", "--alter", "--broker-logger", "1", "--delete-config", "ottla.broker")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--describe", "--topic", "missing"], "Topic 'missing' does not exist"),
        (["--describe", "--broker", "77"], "Broker 77 does not exist"),
        (["--alter", "--topic", "t"], "--alter requires --add-config"),
        (["--alter", "--topic", "t", "--add-config", "x"], "name=value"),
        (
            ["--alter", "--topic", "t", "--add-config", "a b=1"],
            "'a b' is not a valid property name",
        ),
        (
            ["--alter", "--entity-type", "topics", "--add-config", "a=1"],
            "--alter requires --entity-name",
        ),
        (["--describe", "--entity-type", "tables"], "--entity-type tables is unknown. Use one of"),
        (
            ["--describe", "--entity-type", "topics", "--entity-default"],
            "Entities of type topics have no default",
        ),
        (["--describe"], "Name an entity with --topic"),
        (["--describe", "--entity-name", "x"], "require an --entity-type"),
        (
            ["--describe", "--topic", "t", "--broker", "1"],
            "Only a user and a client can be combined",
        ),
        (["--describe", "--topic", "t", "--add-config", "a=1"], "can only be used with --alter"),
        (["--alter", "--topic", "t", "--add-config-file", "/none"], "/none"),
        (["--topic", "t"], "one of --describe and --alter"),
        (
            ["--alter", "--user", "a", "--add-config", "producer_byte_rate=fast"],
            "must be a number, not 'fast'",
        ),
        (
            ["--alter", "--user", "a", "--add-config", "SCRAM-SHA-256=[pass=x]"],
            "A SCRAM credential must look like",
        ),
        (["--alter", "--entity-type", "users", "--add-config", "a=1"], "--alter requires a name"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    fail: Fail, arguments: list[str], message: str
) -> None:
    assert message in fail("configs", *arguments)


def test_wrong_values_and_names_are_refused_by_name(fail: Fail, existing: str) -> None:
    alter = ("configs", "--alter", "--topic", existing)
    assert "retention.ms" in fail(*alter, "--add-config", "retention.ms=long")
    assert "no.such" in fail(*alter, "--add-config", "no.such=1")
    unset = fail(*alter, "--delete-config", "flush.ms")
    assert unset == f"Invalid config(s): flush.ms not set for topic {existing}.\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--user", "{name}"], "user-principal '{name}'"),
        (["--client", "{name}"], "client-id '{name}'"),
        (["--entity-type", "clients", "--entity-name", "{name}"], "client-id '{name}'"),
        (
            ["--user", "{name}", "--client-defaults"],
            "user-principal '{name}', the default client-id",
        ),
        (["--user", "{name}", "--client", "{name}"], "user-principal '{name}', client-id '{name}'"),
    ],
)
def test_quotas_of_users_and_clients_are_set_shown_and_taken_back(
    succeed: Run, topic: str, options: list[str], shown: str
) -> None:
    entity = [each.format(name=topic) for each in options]
    added = "producer_byte_rate=1024,request_percentage=12.5"
    succeed("configs", "--alter", *entity, "--add-config", added)
    described = succeed("configs", "--describe", *entity).out
    values = "producer_byte_rate=1024.0, request_percentage=12.5"
    assert described == f"Quota configs for {shown.format(name=topic)} are {values}\n"
    deleted = "producer_byte_rate,request_percentage"
    succeed("configs", "--alter", *entity, "--delete-config", deleted)
    assert succeed("configs", "--describe", *entity).out == ""


def test_quotas_of_addresses_are_set_shown_and_taken_back(succeed: Run, fail: Fail) -> None:
    entity = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    alter = ("configs", "--alter", *entity)
    succeed(*alter, "--add-config", "connection_creation_rate=5")
    described = succeed("configs", "--describe", *entity).out
    assert described == "Quota configs for ip '192.0.2.1' are connection_creation_rate=5.0\n"
    assert "fractional" in fail(*alter, "--add-config", "connection_creation_rate=0.5")
    assert "greater than 0" in fail(*alter, "--add-config", "connection_creation_rate=-1")
    assert "Invalid configuration key" in fail(*alter, "--add-config", "producer_byte_rate=5")
    succeed(*alter, "--delete-config", "connection_creation_rate")
    assert succeed("configs", "--describe", *entity).out == ""


@pytest.mark.parametrize("kind", [["--user"], ["--entity-type", "users", "--entity-name"]])
def test_a_users_passwords_are_set_shown_and_deleted(
    succeed: Run, fail: Fail, topic: str, kind: list[str]
) -> None:
    user = f"{topic}-ü"
    alter = ("configs", "--alter", *kind, user)
    passwords = "SCRAM-SHA-512=[iterations=8192,password=hunter2,=x],SCRAM-SHA-256=[password=h2]"
    altered = succeed(*alter, "--add-config", passwords)
    assert altered.out == f"Completed updating config for user {user}.\n"
    described = f"SCRAM credential configs for user-principal '{user}' are "
    shown = succeed("configs", "--describe", *kind, user)
    infos = "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192"
    assert shown.out == f"{described}{infos}\n"
    succeed(*alter, "--delete-config", "SCRAM-SHA-512")
    everybody = succeed("configs", "--describe", "--entity-type", "users")
    assert f"{described}SCRAM-SHA-256=iterations=4096" in everybody.lines
    as_json = succeed("configs", "--describe", *kind, user, "--json").json
    assert as_json["scram_users"] == {user: {"SCRAM-SHA-256": 4096}}
    gone = fail(*alter, "--delete-config", "SCRAM-SHA-512")
    assert gone == f"User '{user}' has no SCRAM-SHA-512 credential that could be deleted.\n"
    succeed(*alter, "--delete-config", "SCRAM-SHA-256")
    assert succeed("configs", "--describe", *kind, user).out == ""


@pytest.mark.parametrize("value", [
    "SCRAM-SHA-512=[iterations=8192,hunter2]", "SCRAM-SHA-512=password=hunter2",
    "SCRAM-SHA-512=[password=x],hunter2=a b", "SCRAM-SHA-512=hunter2",
    "SCRAM-512=[password=hunter2]", "scram-sha-512=[password=hunter2]",
    "SCRAM-SHA-512=password=x,hunter2 y=z", "SCRAM-SHA-512=[iterations=1,password=hunter2]",
    "SCRAM-SHA-512=[iterations=99999999999,password=hunter2]",
])  # fmt: skip
def test_a_password_on_a_wrong_command_line_is_not_printed(fail: Fail, value: str) -> None:
    assert "hunter2" not in fail("configs", "--alter", "--user", "alice", "--add-config", value)
