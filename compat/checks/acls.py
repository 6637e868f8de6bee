"""Checks of Java's tools on a broker with TLS, SASL and ACLs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from compat.checks.security import USER, Secured, secured_broker
from compat.java import Java, Output
from ottla.testing.broker import HOST

BOB = "User:bob"
SOURCE = Path(__file__).resolve().parents[2] / "src"
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The checks set the first passwords without authentication, and alice administers.
    "super.users": f"User:ANONYMOUS;User:{USER}",
}
_numbers = count()


@contextmanager
def closed_broker(java: Java, scratch: Path) -> Iterator[Secured]:
    """Provide a secured broker with an authorizer, its super user alice, and the user bob."""
    with secured_broker(java, scratch, ACLS) as secured:
        for user in ("bob", "carol"):
            altered = secured.run(
                *("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", user),
                *("--add-config", f"SCRAM-SHA-512=[password={user}-secret]"),
                to="SASL_SSL",
                properties=secured.scram("512"),
            )
            assert not altered.code, altered.all
        yield secured


class _Users:
    """Java's tools as alice, who administers, and as others."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self.topic = f"closed-{next(_numbers)}"
        self.group = f"group-{self.topic}"
        self.succeed("kafka-topics", "--create", "--topic", self.topic)

    def run(self, tool: str, *arguments: str, user: str = USER, stdin: str = "") -> Output:
        properties = self._secured.scram("512")
        if user != USER:
            properties = self._secured.scram("512", f"{user}-secret")
            login = properties["sasl.jaas.config"].replace(f'"{USER}"', f'"{user}"')
            properties["sasl.jaas.config"] = login
        return self._secured.run(
            tool, *arguments, to="SASL_SSL", properties=properties, stdin=stdin
        )

    def succeed(self, tool: str, *arguments: str, user: str = USER, stdin: str = "") -> Output:
        done = self.run(tool, *arguments, user=user, stdin=stdin)
        assert not done.code, done.all
        return done

    def fail(self, error: str, tool: str, *arguments: str, user: str, stdin: str = "") -> None:
        done = self.run(tool, *arguments, user=user, stdin=stdin)
        assert error in done.all, done.all

    def acls(self, *arguments: str) -> Output:
        return self.succeed("kafka-acls", *arguments)

    def listed_by_ours(self) -> list[str]:
        """Return the lines of our `kafka-acls --list`."""
        program = "from ottla.cli.kafka_acls import main; main()"
        address = f"{HOST}:{self._secured.ports['PLAINTEXT']}"
        return subprocess.run(
            [sys.executable, "-c", program, "--list", "--bootstrap-server", address],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()


def acls_are_managed(secured: Secured) -> None:
    """kafka-acls adds, lists and removes ACLs, and ours lists the same."""
    users = _Users(secured)
    resources = ("--topic", users.topic, "--group", users.group)
    role = ("--allow-principal", BOB, "--producer", "--consumer", "--idempotent", *resources)
    added = users.acls("--add", *role)
    assert f"name={users.topic}, patternType=LITERAL" in added.out, added.all
    again = users.acls("--add", *role)
    assert "already exists." in again.out, again.all
    assert "Adding ACLs" not in again.out, again.all
    users.acls(
        *("--add", "--deny-principal", "User:*", "--deny-host", "192.0.2.0/24"),
        *("--operation", "AlterConfigs", "--topic", "closed-", "--resource-pattern-type"),
        "prefixed",
    )
    listed = users.acls("--list")
    assert sorted(listed.lines) == sorted(users.listed_by_ours()), listed.all
    assert (
        "(principal=User:*, host=192.0.2.0/24, operation=ALTER_CONFIGS, permissionType=DENY)"
        in (listed.out)
    )
    of_bob = users.acls("--list", "--principal", BOB)
    assert "User:*" not in of_bob.out, of_bob.all
    match = ("--topic", users.topic, "--resource-pattern-type", "match")
    assert "name=closed-, patternType=PREFIXED" in users.acls("--list", *match).out
    users.acls("--remove", "--force", *role)
    users.acls("--remove", "--force", *match)
    assert users.acls("--list").out.strip() == ""
    assert users.listed_by_ours() == []


def what_is_wrong_is_refused(secured: Secured) -> None:
    """kafka-acls prints what the broker refuses: wrong hosts, and users without permission."""
    users = _Users(secured)
    add = ("--add", "--allow-principal", BOB, "--topic", users.topic)
    refused = users.run("kafka-acls", *add, "--allow-host", "nowhere")
    assert "InvalidRequestException: 'nowhere' is not a host" in refused.all, refused.all
    for arguments in (add, ("--list",), ("--remove", "--force", "--topic", users.topic)):
        users.fail("ClusterAuthorizationException", "kafka-acls", *arguments, user="bob")
    assert users.acls("--list").out.strip() == ""


def acls_decide_on_records(secured: Secured) -> None:
    """The console tools write and read with ACLs only, and no longer without them."""
    users = _Users(secured)
    write = ("kafka-console-producer", "--topic", users.topic)
    read = (
        *("kafka-console-consumer", "--topic", users.topic, "--from-beginning"),
        *("--group", users.group, "--max-messages", "1", "--timeout-ms", "30000"),
    )
    users.fail("TopicAuthorizationException", *write, user="bob", stdin="no\n")
    allow = ("--allow-principal", BOB)
    users.acls("--add", *allow, "--producer", "--topic", users.topic)
    users.succeed(*write, user="bob", stdin="yes\n")
    users.fail("GroupAuthorizationException", *read, user="bob")
    consumer = ("--consumer", "--topic", users.topic, "--group", users.group)
    users.acls("--add", *allow, *consumer)
    assert users.succeed(*read, user="bob").lines == ["yes"]
    users.fail("TopicAuthorizationException", *write, user="carol", stdin="no\n")
    users.acls("--remove", "--force", *allow, "--producer", "--topic", users.topic)
    users.acls("--remove", "--force", *allow, *consumer)
    users.fail("TopicAuthorizationException", *write, user="bob", stdin="no\n")


def acls_decide_on_configurations(secured: Secured) -> None:
    """kafka-configs alters and describes with ACLs only: topics, brokers and users."""
    users = _Users(secured)
    topic = ("--entity-type", "topics", "--entity-name", users.topic)
    alter = ("kafka-configs", "--alter", *topic, "--add-config", "retention.ms=1000000")
    describe = ("kafka-configs", "--describe", *topic)
    users.fail("TopicAuthorizationException", *alter, user="bob")
    allow = ("--add", "--allow-principal", BOB, "--operation")
    users.acls(*allow, "AlterConfigs", "--topic", users.topic)
    users.succeed(*alter, user="bob")
    # The tool lists the topics first, to report those that do not exist.
    assert "doesn't exist" in users.succeed(*describe, user="bob").out
    users.acls(*allow, "Describe", "--topic", users.topic)
    assert "retention.ms=1000000" in users.succeed(*describe, user="bob").out
    broker = ("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1")
    users.fail("ClusterAuthorizationException", *broker, "--all", user="bob")
    set_password = ("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "eve")
    password = ("--add-config", "SCRAM-SHA-512=[password=eve-secret]")
    users.fail("ClusterAuthorizationException", *set_password, *password, user="bob")
    users.acls(*allow, "Alter", "--operation", "DescribeConfigs", "--cluster")
    assert "super.users" in users.succeed(*broker, "--all", user="bob").out
    users.succeed(*set_password, *password, user="bob")
    users.acls("--remove", "--force", "--cluster")
    users.acls("--remove", "--force", "--topic", users.topic)


CHECKS = [
    acls_are_managed,
    what_is_wrong_is_refused,
    acls_decide_on_records,
    acls_decide_on_configurations,
]
