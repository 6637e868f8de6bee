"""`kafka-acls` against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.running import Ran, running_on
from tests.integration.security.acl_broker import PASSWORDS, acl_properties

from ottla import Admin
from ottla.base.acl import AclFilter
from ottla.testing.broker_thread import BrokerThread

ORDERS = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
CLUSTER = "ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)"


def entry(operation: str, principal: str = "User:alice", permission: str = "ALLOW") -> str:
    return f"\t(principal={principal}, host=*, operation={operation}, permissionType={permission})"


class Acls:
    """`kafka-acls` as a user of the broker."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self._run = running_on(bootstrap)

    def profile(self, user: str = "admin") -> Path:
        path = self.directory / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username={user}\nsasl.password={PASSWORDS[user]}\n"
        )
        return path

    def run(self, *words: str, user: str = "admin", stdin: str | None = None) -> Ran:
        return self._run("acls", "--command-config", str(self.profile(user)), *words, stdin=stdin)

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        ran = self.run(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran.out

    def fail(self, *words: str, user: str = "admin") -> str:
        ran = self.run(*words, user=user)
        assert ran.code == 1, ran
        return ran.err

    def listed(self, *words: str) -> list[tuple[str, str, str, str]]:
        """Return resource type, name, principal and operation of each ACL."""
        return [
            (each["resource_type"], each["name"], each["principal"], each["operation"])
            for each in json.loads(self("--list", "--json", *words))
        ]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=acl_properties()) as broker:
        yield broker


@pytest.fixture
def acls(broker: BrokerThread, tmp_path: Path) -> Iterator[Acls]:
    acls = Acls(f"127.0.0.1:{broker.port}", tmp_path)
    yield acls
    with Admin(acls.bootstrap, profile=str(acls.profile())) as admin:
        admin.delete_acls(AclFilter())


def test_the_text_of_added_and_listed_acls_is_kafkas(acls: Acls) -> None:
    add = ("--add", "--allow-principal", "User:alice", "--topic", "orders")
    operations = ("--operation", "Write", "--operation", "describeconfigs")
    assert acls(*add, *operations) == (
        f"Adding ACLs for resource `{ORDERS}`: \n {entry('WRITE')}\n{entry('DESCRIBE_CONFIGS')}\n\n"
    )
    again = acls(*add, "--operation", "Write", "--operation", "Read")
    assert again == (
        f"Acl (pattern={ORDERS}, entry={entry('WRITE').strip()}) already exists.\n"
        f"Adding ACLs for resource `{ORDERS}`: \n {entry('READ')}\n\n"
    )
    assert acls("--list") == (
        f"Current ACLs for resource `{ORDERS}`:\n"
        f"{entry('READ')}\n{entry('WRITE')}\n{entry('DESCRIBE_CONFIGS')}\n\n"
    )


def test_acls_of_a_principal_are_listed(acls: Acls) -> None:
    acls("--add", "--cluster", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1")
    acls("--add", "--topic", "orders", "--allow-principal", "User:alice")
    found = acls("--list", "--principal", "User:alice", "--principal", "User:nobody")
    assert found == (
        "ACLs for principal `User:alice`\n"
        f"Current ACLs for resource `{ORDERS}`:\n{entry('ALL')}\n\n"
        "ACLs for principal `User:nobody`\n"
    )
    assert acls("--list", "--principal", "User:bob").splitlines()[1:] == [
        f"Current ACLs for resource `{CLUSTER}`:",
        "\t(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)",
        "",
    ]


def test_a_producer_gets_what_producers_need(acls: Acls) -> None:
    words = ("--topic", "orders", "--transactional-id", "t", "--group", "ignored")
    acls("--add", "--allow-principal", "User:alice", "--producer", "--idempotent", *words)
    assert set(acls.listed()) == {
        ("TOPIC", "orders", "User:alice", "WRITE"),
        ("TOPIC", "orders", "User:alice", "DESCRIBE"),
        ("TOPIC", "orders", "User:alice", "CREATE"),
        ("TRANSACTIONAL_ID", "t", "User:alice", "WRITE"),
        ("TRANSACTIONAL_ID", "t", "User:alice", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "User:alice", "IDEMPOTENT_WRITE"),
    }
    acls(
        *("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--idempotent"),
        *words,
    )
    assert acls.listed() == []


def test_a_consumer_gets_what_consumers_need(acls: Acls) -> None:
    words = ("--topic", "orders", "--group", "billing")
    acls("--add", "--allow-principal", "User:alice", "--consumer", *words)
    assert set(acls.listed()) == {
        ("TOPIC", "orders", "User:alice", "READ"),
        ("TOPIC", "orders", "User:alice", "DESCRIBE"),
        ("GROUP", "billing", "User:alice", "READ"),
    }
    acls("--add", "--allow-principal", "User:bob", "--consumer", "--producer", *words)
    of_bob = {each[3] for each in acls.listed("--topic", "orders") if each[2] == "User:bob"}
    assert of_bob == {"READ", "DESCRIBE", "WRITE", "CREATE"}


def test_every_type_of_resource_has_an_option(acls: Acls) -> None:
    alice = ("--add", "--allow-principal", "User:alice")
    acls(
        *alice, "--operation", "Describe", "--delegation-token", "token", "--transactional-id", "t"
    )
    acls(*alice, "--operation", "CreateTokens", "--user-principal", "User:bob")
    acls(*alice, "--operation", "ClusterAction", "--cluster")
    acls(*alice, "--operation", "Delete", "--group", "*")
    assert sorted(acls.listed()) == [
        ("CLUSTER", "kafka-cluster", "User:alice", "CLUSTER_ACTION"),
        ("DELEGATION_TOKEN", "token", "User:alice", "DESCRIBE"),
        ("GROUP", "*", "User:alice", "DELETE"),
        ("TRANSACTIONAL_ID", "t", "User:alice", "DESCRIBE"),
        ("USER", "User:bob", "User:alice", "CREATE_TOKENS"),
    ]


def test_pattern_types_select_acls(acls: Acls) -> None:
    alice = ("--add", "--allow-principal", "User:alice", "--operation", "Read")
    acls(*alice, "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls(*alice, "--topic", "orders", "--topic", "*")
    by_type = {
        type: [name for _, name, _, _ in acls.listed("--topic", name, *pattern)]
        for type, name, pattern in (
            ("default", "orders", ()),
            ("prefixed", "ord", ("--resource-pattern-type", "PREFIXED")),
            ("any", "ord", ("--resource-pattern-type", "any")),
            ("match", "orders", ("--resource-pattern-type", "match")),
        )
    }
    assert by_type == {
        "default": ["orders"],
        "prefixed": ["ord"],
        "any": ["ord"],
        "match": ["*", "orders", "ord"],
    }
    acls("--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    assert acls.listed() == []


@pytest.mark.parametrize(("answer", "is_removed"), [("y\n", True), ("n\n", False), ("", False)])
def test_a_removal_is_confirmed(acls: Acls, answer: str, is_removed: bool) -> None:
    acls("--add", "--topic", "orders", "--allow-principal", "User:alice")
    remove = ("--remove", "--topic", "orders")
    assert acls(*remove, "--allow-principal", "User:alice", stdin="n\n") == (
        f"Are you sure you want to remove ACLs: \n {entry('ALL')}\n"
        f" from resource filter `{ORDERS}`? (y/n)\n"
    )
    assert acls(*remove, stdin=answer) == (
        f"Are you sure you want to delete all ACLs for resource filter `{ORDERS}`? (y/n)\n"
    )
    assert (acls.listed() == []) == is_removed


def test_the_json_of_changes_has_the_acls(acls: Acls) -> None:
    words = ("--json", "--topic", "orders", "--allow-principal", "User:alice", "--force")
    added = json.loads(acls("--add", *words))
    assert added["existing"] == []
    assert added["added"] == [
        {
            "resource_type": "TOPIC",
            "pattern_type": "LITERAL",
            "name": "orders",
            "principal": "User:alice",
            "host": "*",
            "operation": "ALL",
            "permission": "ALLOW",
        }
    ]
    assert json.loads(acls("--add", *words)) == {"added": [], "existing": added["added"]}
    assert json.loads(acls("--remove", *words)) == {"removed": added["added"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "exactly one action: --list, --add, --remove."),
        ("--add --list", "exactly one action"),
        ("--list --bootstrap-controller localhost:1", "Use --bootstrap-server"),
        ("--list --producer", 'Option "[list]" can\'t be used with option "[producer]"'),
        ("--list --deny-host h", 'Option "[list]" can\'t be used with option "[deny-host]"'),
        (
            "--add --producer --operation Read --topic t",
            'Option "[producer]" can\'t be used with option "[operation]"',
        ),
        (
            "--add --consumer --deny-principal User:a --topic t --group g",
            'Option "[consumer]" can\'t be used with option "[deny-principal]"',
        ),
        ("--add --principal User:a", "--principal option is only available if --list is set"),
        ("--add --producer", "With --producer you must specify a --topic"),
        ("--add --idempotent", "--idempotent option is only available if --producer is set"),
        ("--add --consumer --topic t", "With --consumer you must specify a --topic and a --group"),
        ("--add --consumer --topic t --group g --cluster", "no --cluster"),
        ("--add --allow-principal User:a", "You must provide at least one resource"),
        ("--remove", "You must provide at least one resource"),
        ("--add --topic t", "--allow-principal, --deny-principal when trying to add ACLs"),
        (
            "--add --topic t --allow-principal User:a --resource-pattern-type match",
            "value of 'MATCH' is not valid when adding acls",
        ),
        (
            "--add --topic t --allow-principal User:a --operation ClusterAction",
            "ResourceType TOPIC only supports operations [ALL, READ, WRITE, CREATE, DELETE, ALTER,"
            " DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]",
        ),
        (
            "--add --group t --allow-principal User:a --operation nothing",
            "ResourceType GROUP only supports operations",
        ),
        (
            "--add --topic t --allow-principal alice",
            "expected a string in format principalType:principalName but got alice",
        ),
        ("--list --principal alice", "principalType:principalName but got alice"),
        ("--add --topic t --allow-principal User:a --allow-host x", "'x' is not a host"),
    ],
)
def test_what_cannot_be_meant_is_refused(acls: Acls, words: str, message: str) -> None:
    assert message in acls.fail(*words.split())
    assert acls.listed() == []


def test_what_the_broker_refuses_is_an_error(acls: Acls, broker: BrokerThread) -> None:
    add = ("--add", "--topic", "t", "--allow-principal", "User:bob")
    for words in (("--list",), add, ("--remove", "--topic", "t", "--force")):
        error = acls.fail(*words, user="bob")
        assert error.startswith("Error while executing ACL command: ")
        assert "CLUSTER_AUTHORIZATION_FAILED" in error or "authoriz" in error


def test_a_broker_without_an_authorizer_is_named_as_the_reason(broker: BrokerThread) -> None:
    with BrokerThread() as other:
        ran = running_on(f"127.0.0.1:{other.port}")("acls", "--list")
    assert (ran.code, ran.out) == (1, "")
    assert "No authorizer is configured" in ran.err
