"""Tests of the authorizer: Kafka's rules, one by one."""

from __future__ import annotations

import pytest

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.core.security.authorizer import CLUSTER, Authorizer, Reason, Resource

ALICE, HERE = "User:alice", "10.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = AclResourceType.TOPIC
ORDERS = Resource(TOPIC, "orders")


def acl(
    operation: AclOperation = READ,
    name: str = "orders",
    permission: AclPermission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    type: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(type, pattern, name, principal, host, operation, permission)


def may(
    *bindings: AclBinding,
    operation: AclOperation = READ,
    resource: Resource = ORDERS,
    principal: str = ALICE,
    host: str = HERE,
) -> bool:
    authorizer = Authorizer(bindings=bindings)
    allowed = authorizer.is_allowed(principal, host, operation, resource)
    assert authorizer.explain(principal, host, operation, resource).is_allowed == allowed
    return allowed


def test_nobody_may_do_anything_without_a_binding() -> None:
    assert not may()


def test_a_binding_allows_its_principal_its_operation_on_its_resource() -> None:
    assert may(acl())
    assert not may(acl(), principal="User:bob")
    assert not may(acl(), principal="Group:alice")
    assert not may(acl(), operation=WRITE)
    assert not may(acl(), resource=Resource(TOPIC, "orders2"))
    assert not may(acl(), resource=Resource(AclResourceType.GROUP, "orders"))


def test_a_prefix_applies_to_the_names_that_begin_with_it() -> None:
    prefixed = acl(name="ord", pattern=PREFIXED)

    assert may(prefixed)
    assert may(prefixed, resource=Resource(TOPIC, "ord"))
    assert not may(prefixed, resource=Resource(TOPIC, "or"))
    assert not may(acl(name="ord"))


def test_a_star_is_a_wildcard_only_in_literal_patterns() -> None:
    assert may(acl(name="*"))
    assert not may(acl(name="*", pattern=PREFIXED))
    assert may(acl(name="*", pattern=PREFIXED), resource=Resource(TOPIC, "*orders"))


def test_a_binding_for_every_user_applies_to_all_principals() -> None:
    assert may(acl(principal="User:*"), principal="User:bob")
    assert may(acl(principal="User:*"), principal="Token:bob")


@pytest.mark.parametrize(
    ("host", "applies"),
    [
        ("*", True),
        (HERE, True),
        ("10.0.0.2", False),
        ("10.0.0.0/24", True),
        ("10.0.1.0/24", False),
        ("2001:db8::/32", False),
    ],
)
def test_a_binding_applies_at_its_host(host: str, applies: bool) -> None:
    assert may(acl(host=host)) == applies


def test_a_denial_beats_every_permission() -> None:
    assert not may(acl(), acl(name="*", permission=DENY, principal="User:*"))
    assert not may(acl(name="*"), acl(name="o", pattern=PREFIXED, permission=DENY))
    assert may(acl(), acl(host="10.9.9.9", permission=DENY))


def test_all_stands_for_every_operation() -> None:
    for operation in AclOperation:
        if operation > AclOperation.ALL:
            assert may(acl(AclOperation.ALL), operation=operation)
            assert not may(acl(operation), acl(AclOperation.ALL, permission=DENY))


@pytest.mark.parametrize(
    ("allowed", "implied"),
    [
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (AclOperation.DELETE, DESCRIBE),
        (AclOperation.ALTER, DESCRIBE),
        (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
    ],
)
def test_permissions_imply_description_and_denials_do_not(
    allowed: AclOperation, implied: AclOperation
) -> None:
    assert may(acl(allowed), operation=implied)
    assert not may(acl(implied), operation=allowed)
    assert may(acl(allowed, permission=DENY), acl(implied), operation=implied)


def test_nothing_else_is_implied() -> None:
    operations = [each for each in AclOperation if each > AclOperation.ALL]
    implied = {
        (allowed, other) for allowed in operations for other in operations if allowed != other
    }
    found = {pair for pair in implied if may(acl(pair[0]), operation=pair[1])}

    assert len(found) == 5


def test_a_super_user_may_do_everything() -> None:
    authorizer = Authorizer(super_users=[ALICE], bindings=[acl(permission=DENY)])

    assert authorizer.is_allowed(ALICE, HERE, READ, ORDERS)
    assert authorizer.is_allowed(ALICE, HERE, AclOperation.CLUSTER_ACTION, CLUSTER)
    assert authorizer.explain(ALICE, HERE, READ, ORDERS).cause is Reason.SUPER_USER


def test_a_resource_without_bindings_may_be_open_to_everybody() -> None:
    authorizer = Authorizer(allow_if_no_binding=True, bindings=[acl(principal="User:bob")])

    assert authorizer.is_allowed(ALICE, HERE, READ, Resource(TOPIC, "free"))
    assert not authorizer.is_allowed(ALICE, HERE, READ, ORDERS)


def test_a_removed_binding_no_longer_applies() -> None:
    bindings = [acl(), acl(WRITE), acl(name="ord", pattern=PREFIXED)]
    authorizer = Authorizer(bindings=bindings)
    for binding in bindings:
        authorizer.remove(binding)
        authorizer.remove(binding)

    assert not authorizer.is_allowed(ALICE, HERE, READ, ORDERS)
    assert authorizer.explain(ALICE, HERE, READ, ORDERS).cause is Reason.NO_BINDINGS_DENY
    assert list(authorizer.bindings) == []


def test_the_generation_grows_with_changes_only() -> None:
    authorizer = Authorizer()
    generations = [authorizer.generation]
    for change in (
        lambda: authorizer.add(acl()),
        lambda: authorizer.remove(acl()),
        lambda: authorizer.set_super_users([ALICE]),
        lambda: authorizer.set_allow_if_no_binding(True),
    ):
        change()
        generations.append(authorizer.generation)
        change()
        assert authorizer.generation == generations[-1]

    assert sorted(set(generations)) == generations


def test_authorized_operations_are_those_that_the_type_has() -> None:
    authorizer = Authorizer(bindings=[acl(AclOperation.ALL), acl(WRITE, permission=DENY)])
    bits = authorizer.allowed_operations(ALICE, HERE, ORDERS)

    names = {each.name for each in AclOperation if bits >> each & 1}
    assert names == {
        *("READ", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    }


def test_an_explanation_names_the_binding() -> None:
    allowing, denying = acl(name="*"), acl(name="ord", pattern=PREFIXED, permission=DENY)

    assert Authorizer(bindings=[allowing]).explain(ALICE, HERE, READ, ORDERS) == (True, allowing)
    both = Authorizer(bindings=[allowing, denying])
    assert both.explain(ALICE, HERE, READ, ORDERS) == (False, denying)
    other = Authorizer(bindings=[acl(WRITE)]).explain(ALICE, HERE, READ, ORDERS)
    assert other == (False, Reason.NO_BINDING_APPLIES)


# ------------------------------------------------------------------------ on any resource


@pytest.mark.parametrize(
    ("bindings", "allowed"),
    [
        ([], False),
        ([acl(WRITE)], True),
        ([acl(AclOperation.ALL)], True),
        ([acl(WRITE, "ord", pattern=PREFIXED)], True),
        ([acl(READ)], False),
        ([acl(WRITE, principal="User:bob")], False),
        ([acl(WRITE, host="10.9.9.9")], False),
        ([acl(WRITE), acl(WRITE, "*", DENY)], False),
        ([acl(WRITE), acl(WRITE, permission=DENY)], False),
        ([acl(WRITE), acl(WRITE, "other", DENY)], True),
        ([acl(WRITE), acl(WRITE, "or", DENY, pattern=PREFIXED)], False),
        ([acl(WRITE, "or", pattern=PREFIXED), acl(WRITE, "ord", DENY, pattern=PREFIXED)], True),
        ([acl(WRITE, "ord", pattern=PREFIXED), acl(WRITE, "ord", DENY)], True),
        ([acl(WRITE, "*"), acl(WRITE, permission=DENY)], True),
    ],
)
def test_an_operation_may_be_allowed_on_at_least_one_resource(
    bindings: list[AclBinding], allowed: bool
) -> None:
    authorizer = Authorizer(bindings=bindings)

    assert authorizer.is_allowed_on_any(ALICE, HERE, WRITE, TOPIC) == allowed


def test_only_an_equal_operation_counts_on_at_least_one_resource() -> None:
    authorizer = Authorizer(bindings=[acl(WRITE)])

    assert not authorizer.is_allowed_on_any(ALICE, HERE, DESCRIBE, TOPIC)


# ------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (AclFilter(), 4),
        (AclFilter(name="orders"), 1),
        (AclFilter(name="orders", pattern_type=LITERAL), 1),
        (AclFilter(name="orders", pattern_type=PREFIXED), 0),
        (AclFilter(name="ord", pattern_type=PatternType.ANY), 1),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), 3),
        (AclFilter(pattern_type=PatternType.MATCH), 4),
        (AclFilter(pattern_type=PREFIXED), 1),
        (AclFilter(principal="User:bob"), 1),
        (AclFilter(host="*"), 4),
        (AclFilter(host=HERE), 0),
        (AclFilter(operation=WRITE), 1),
        (AclFilter(permission=DENY), 1),
        (AclFilter(resource_type=AclResourceType.GROUP), 1),
    ],
)
def test_a_filter_finds_the_bindings_that_agree_with_it(filter: AclFilter, found: int) -> None:
    bindings = [
        acl(),
        acl(WRITE, "ord", DENY, pattern=PREFIXED),
        acl(name="*", principal="User:bob"),
        acl(name="grp", type=AclResourceType.GROUP),
    ]

    assert len(list(Authorizer(bindings=bindings).found_by(filter))) == found
