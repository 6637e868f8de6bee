"""Tests of the sentences of `ottla secure explain`."""

from __future__ import annotations

import pytest

from ottla.base.acl import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import UserError
from ottla.cli.secure.explain import Explanation, explain, filters_of, parse_question
from ottla.cli.secure.policy import Policy

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
KNOWN = Policy(frozenset({"User:admin"}))


def acl(
    name: str = "orders",
    operation: AclOperation = AclOperation.WRITE,
    permission: AclPermission = ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    type: AclResourceType = AclResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(type, pattern, name, principal, host, operation, permission)


def ask(
    *acls: AclBinding,
    words: str = "WRITE topic orders",
    host: str | None = None,
    policy: Policy = KNOWN,
) -> Explanation:
    operation, type, *name = words.split()
    question = parse_question("User:alice", operation, type, "".join(name) or None, host)
    return explain(question, acls, policy)


def test_an_acl_that_allows_is_named() -> None:
    found = ask(acl())
    assert (found.allowed, found.acl) == (True, acl())
    assert found.reason.endswith("patternType=LITERAL) allows WRITE on topic 'orders'.")


def test_a_denial_overrides_what_is_allowed() -> None:
    denial = acl("*", AclOperation.ALL, DENY, principal="User:*")
    found = ask(acl(), denial)
    assert (found.allowed, found.acl) == (False, denial)
    assert "denies WRITE on topic 'orders'." in found.reason


def test_operations_that_imply_the_one_in_question_are_explained() -> None:
    found = ask(acl(), words="describe topic orders")
    assert found.reason.endswith("because WRITE implies DESCRIBE.")


def test_a_resource_without_acls_is_denied_with_advice() -> None:
    assert ask(words="WRITE transactional-id a;b") == Explanation(
        False,
        "Transactional ID 'a;b' has no ACLs. Allow it with: kafka-acls --add --allow-principal "
        "User:alice --operation Write --transactional-id 'a;b'",
    )
    assert ask(words="DescribeConfigs cluster").reason == (
        "The cluster has no ACLs. Allow it with: kafka-acls --add --allow-principal User:alice "
        "--operation DescribeConfigs --cluster"
    )


def test_acls_of_others_do_not_apply() -> None:
    found = ask(acl(principal="User:bob"))
    assert not found.allowed
    assert found.reason.startswith("Topic 'orders' has ACLs, but the only ACL does not apply to ")


def test_resources_without_acls_can_be_open_to_everybody() -> None:
    found = ask(policy=Policy(frozenset(), allows_without_acls=True))
    assert found == Explanation(
        True, "Topic 'orders' has no ACLs, and allow.everyone.if.no.acl.found is set."
    )


def test_the_host_of_the_client_decides_if_acls_have_hosts() -> None:
    local = acl(host="10.0.0.0/8")
    assert ask(local, host="10.1.2.3").allowed
    assert not ask(local, host="192.0.2.1").allowed
    unknown = ask(local)
    assert not unknown.allowed
    assert unknown.reason.endswith(
        "\nSome ACLs apply to certain hosts only; name the client's address with --host."
    )


def test_super_users_may_do_everything_and_may_be_unknown() -> None:
    denial = acl(permission=DENY)
    assert ask(denial, policy=Policy(frozenset({"User:alice"}))).allowed
    unknown = ask(denial, policy=Policy(None))
    assert not unknown.allowed
    assert "The super users are unknown" in unknown.reason


def test_a_topic_can_be_created_with_the_permission_on_the_cluster() -> None:
    on_cluster = acl("kafka-cluster", AclOperation.CREATE, type=AclResourceType.CLUSTER)
    question = parse_question("User:alice", "create", "topic", "orders", None)
    assert [each.resource_type for each in filters_of(question)] == [
        AclResourceType.TOPIC,
        AclResourceType.CLUSTER,
    ]
    assert ask(on_cluster, words="CREATE topic orders").acl == on_cluster
    assert not ask(on_cluster, words="WRITE topic orders").allowed


def test_a_cluster_without_an_authorizer_allows_everything() -> None:
    question = parse_question("User:alice", "WRITE", "topic", "orders", None)
    found = explain(question, None, KNOWN)
    assert found.allowed
    assert "no authorizer" in found.reason


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("alice", "READ", "topic", "t"), "'alice' is not a principal"),
        (("User:*", "READ", "topic", "t"), "is not a principal"),
        (("User:a", "READ", "table", "t"), "'table' is not a type of resources. There are: topic,"),
        (("User:a", "READ", "topic", None), "The name of the topic is missing"),
        (("User:a", "READ", "transactional-id", "t"), "has no operation 'READ'. It has: DESCRIBE"),
        (("User:a", "ALL", "topic", "t"), "has no operation 'ALL'"),
        (("User:a", "CREATE", "cluster", "c"), "The cluster has no name"),
    ],
)
def test_a_question_about_nothing_is_refused(
    words: tuple[str, str, str, str | None], message: str
) -> None:
    with pytest.raises(UserError, match="(?s).*" + message.replace("*", r"\*")):
        parse_question(*words, None)
