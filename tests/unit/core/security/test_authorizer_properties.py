"""Random ACLs: the authorizer against a naive reference, while ACLs are added and removed.

The reference keeps a plain list and follows the rules in Kafka's documentation one by one. Names,
principals and hosts are chosen so that they often match, nearly match, or look like something else.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from ottla.base.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.core.security.authorizer import OPERATIONS, Authorizer, Resource, canonical_host

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
SETS_PER_RUN = 1_500
MANY_SETS = 120_000

LONG = "long." * 50
NAMES = (
    ("a", "ab", "abc", "abcd", "b", "*"),
    ("*", "**", "*a", "a*", "a", ""),
    ("é", "e\u0301", "éa", "日本", "日本語", "\U0001f600", "\U0001f600a", "\ud83d", "A", "a"),
    (LONG, LONG[:-1], LONG + "x", LONG * 100, LONG[:100], "l"),
    ("hardcode", "hard", "hardcoded", "h", "H", "*"),
    ("a\0b", "a\0", "a", "a b", "a\n", "a/b", "User:*"),
)
"""Families of names of resources; each set of ACLs has names of one family."""

PRINCIPALS = (
    "User:alice",
    "User:bob",
    "User:CN=é,O=Example",
    "User:alice2",
    "user:alice",
    "Group:alice",
    "User:*",
)
"""Principals of ACLs; `User:*` is also asked about, because nothing stops a user of that name."""

HOSTS = (
    *("*", "10.0.0.1", "10.0.0.2", "::1", "2001:db8::1", "2001:0DB8:0:0:0:0:0:1"),
    *("::ffff:10.0.0.1", "10.0.0.0/30", "10.0.0.1/32", "10.0.0.3/8", "0.0.0.0/0", "::/0"),
    *("2001:db8::/32", "::ffff:10.0.0.0/126", "::ffff:0.0.0.0/96", "::ffff:0:0/95"),
    *("fe80::1", "fe80::1%eth0", "fe80::/10", "10.0.0.1%eth0", "", "/", "10.0.0.1/", "/8"),
    *("10.0.0.1/33", "10.0.0", "256.1.1.1", "010.0.0.1", "broker-1", "brokér", "*/0", "10.0.0.*"),
)
"""Hosts of ACLs. Those that are not valid cannot be created, but exist in adopted directories."""

CLIENTS = (
    *("10.0.0.1", "10.0.0.2", "10.0.0.9", "::ffff:10.0.0.1", "::ffff:a00:1", "::1"),
    *("2001:db8::1", "2001:db8:0:0:0:0:0:1", "2001:db9::1", "fe80::1", "fe80::1%eth0"),
    *("broker-1", "", "*"),
)
"""Addresses of clients, and what a simulated network has in their place."""


# -------------------------------------------------------------------------------------- reference

IMPLIED_BY = {
    AclOperation.DESCRIBE: {
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def as_number(address: str) -> tuple[int, int] | None:
    """Return the version and the number of an address; mapped addresses are those of version 4."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    number = int(found)
    if found.version == 6 and number >> 32 == 0xFFFF:
        return 4, number & 0xFFFFFFFF
    return found.version, number


def in_range(host: str, client: str) -> bool:
    base, _, length_text = host.partition("/")
    first, asked = as_number(base), as_number(client)
    if first is None or asked is None or not length_text.isdecimal():
        return False
    length, bits = int(length_text), 128 if ":" in base else 32
    if length > bits:
        return False
    if bits == 128 and first[0] == 4:  # a mapped address
        if length < 96:  # the range has more than mapped addresses
            return asked[0] == 6 and asked[1] >> 128 - length == 0xFFFF << 32 >> 128 - length
        length, bits = length - 96, 32
    return first[0] == asked[0] and first[1] >> bits - length == asked[1] >> bits - length


def is_at(host: str, client: str) -> bool:
    if host == "*":
        return True
    if "/" in host:
        return in_range(host, client)
    found = as_number(host)
    return host == client if found is None else found == as_number(client)


class Reference:
    """The rules, without any index."""

    def __init__(self, super_users: Sequence[str], *, default: bool) -> None:
        self.bindings: list[AclBinding] = []
        self._super_users = super_users
        self._default = default

    def is_allowed(
        self, principal: str, client: str, operation: AclOperation, resource: Resource
    ) -> bool:
        if principal in self._super_users:
            return True
        matching = [each for each in self.bindings if self._matches(each, resource)]
        fitting = [each for each in matching if self._fits(each, principal, client)]
        denied = {each.operation for each in fitting if each.permission is DENY}
        if denied & {operation, AclOperation.ALL}:
            return False
        allowed = {each.operation for each in fitting if each.permission is ALLOW}
        if allowed & {operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}:
            return True
        return self._default and not matching

    def allowed_operations(self, principal: str, client: str, resource: Resource) -> int:
        return sum(
            1 << each
            for each in OPERATIONS[resource.type]
            if self.is_allowed(principal, client, each, resource)
        )

    def is_allowed_on_any(
        self, principal: str, client: str, operation: AclOperation, type: AclResourceType
    ) -> bool:
        if self.is_allowed(principal, client, operation, Resource(type, "hardcode")):
            return True
        fitting = [
            each
            for each in self.bindings
            if each.resource_type is type
            and self._fits(each, principal, client)
            and each.operation in (operation, AclOperation.ALL)
        ]
        patterns = {
            permission: {
                (each.pattern_type, each.name) for each in fitting if each.permission is permission
            }
            for permission in (ALLOW, DENY)
        }
        if (LITERAL, "*") in patterns[DENY]:
            return False
        return any(
            (kind, name) == (LITERAL, "*") or not self._dominates(patterns[DENY], kind, name)
            for kind, name in patterns[ALLOW]
        )

    @staticmethod
    def _dominates(denied: set[tuple[PatternType, str]], kind: PatternType, name: str) -> bool:
        if kind is LITERAL and (LITERAL, name) in denied:
            return True
        return any((PREFIXED, name[:length]) in denied for length in range(len(name) + 1))

    @staticmethod
    def _matches(binding: AclBinding, resource: Resource) -> bool:
        if binding.resource_type is not resource.type:
            return False
        if binding.pattern_type is PREFIXED:
            return resource.name[: len(binding.name)] == binding.name
        return binding.name in (resource.name, "*")

    @staticmethod
    def _fits(binding: AclBinding, principal: str, client: str) -> bool:
        return binding.principal in (principal, "User:*") and is_at(binding.host, client)


# ------------------------------------------------------------------------------------ random sets


class Drawn(NamedTuple):
    """A set of ACLs of one family, and how to draw more."""

    chance: random.Random
    names: Sequence[str]
    types: Sequence[AclResourceType]
    operations: Sequence[AclOperation]
    hosts: Sequence[str]
    clients: Sequence[str]

    def binding(self) -> AclBinding:
        pick = self.chance.choice
        return AclBinding(
            pick(self.types),
            pick((LITERAL, PREFIXED)),
            pick(self.names),
            pick(PRINCIPALS),
            pick(self.hosts),
            pick(self.operations),
            pick((ALLOW, ALLOW, DENY)),
        )


def draw(seed: int) -> Drawn:
    chance = random.Random(seed)
    types = chance.sample([*OPERATIONS], chance.choice((1, 1, 2)))
    operations = [each for each in AclOperation if each >= AclOperation.ALL]
    # Few operations and hosts, so that they often meet; a few seeds have all of them.
    return Drawn(
        chance,
        (*chance.choice(NAMES), CLUSTER_NAME) if chance.random() < 0.1 else chance.choice(NAMES),
        types,
        operations if chance.random() < 0.2 else [AclOperation.ALL, *chance.sample(operations, 4)],
        HOSTS if chance.random() < 0.2 else ["*", *chance.sample(HOSTS, 3)],
        CLIENTS if chance.random() < 0.2 else chance.sample(CLIENTS, 3),
    )


def check_set(seed: int) -> int:
    """Add and remove random ACLs, and compare decisions in between. Returns their number."""
    drawn = draw(seed)
    chance = drawn.chance
    super_users = chance.choice(((), (), ("User:bob",)))
    default = chance.random() < 0.3
    reference = Reference(super_users, default=default)
    initial = [drawn.binding() for _ in range(chance.choice((0, 2, 6, 6, 12)))]
    authorizer = Authorizer(super_users=super_users, allow_if_no_binding=default, bindings=initial)
    reference.bindings += dict.fromkeys(initial)
    asked = 0
    for _ in range(chance.choice((1, 2, 3))):
        for _ in range(chance.choice((0, 1, 3))):
            change(reference, authorizer, drawn)
        for _ in range(2):
            asked += compare(seed, reference, authorizer, drawn)
    assert list(authorizer.bindings) == reference.bindings, seed
    return asked


def change(reference: Reference, authorizer: Authorizer, drawn: Drawn) -> None:
    """Add an ACL, or remove one that may not exist."""
    chance = drawn.chance
    if chance.random() < 0.5:
        binding = drawn.binding()
        authorizer.add(binding)
        if binding not in reference.bindings:
            reference.bindings.append(binding)
        return
    binding = chance.choice([drawn.binding(), *reference.bindings])
    authorizer.remove(binding)
    if binding in reference.bindings:
        reference.bindings.remove(binding)


def compare(seed: int, reference: Reference, authorizer: Authorizer, drawn: Drawn) -> int:
    pick = drawn.chance.choice
    principal, client = pick(PRINCIPALS), pick(drawn.clients)
    resource = Resource(pick(drawn.types), pick(drawn.names))
    operation = pick([each for each in drawn.operations if each > AclOperation.ALL])
    host = canonical_host(client)
    story = (seed, reference.bindings, principal, client, operation, resource)
    expected = reference.is_allowed(principal, client, operation, resource)
    assert authorizer.is_allowed(principal, host, operation, resource) == expected, story
    assert authorizer.explain(principal, host, operation, resource).is_allowed == expected, story
    on_any = reference.is_allowed_on_any(principal, client, operation, resource.type)
    assert authorizer.is_allowed_on_any(principal, host, operation, resource.type) == on_any, story
    operations = reference.allowed_operations(principal, client, resource)
    assert authorizer.allowed_operations(principal, host, resource) == operations, story
    return 4


def test_decisions_equal_those_of_the_naive_reference() -> None:
    for seed in range(SETS_PER_RUN):
        check_set(seed)


@pytest.mark.chaos
def test_decisions_of_many_sets_equal_those_of_the_naive_reference(
    record_property: Callable[[str, object], None],
) -> None:
    start = time.monotonic()
    decisions = sum(map(check_set, range(SETS_PER_RUN, SETS_PER_RUN + MANY_SETS)))
    taken = time.monotonic() - start
    record_property("decisions", decisions)
    print(f"{MANY_SETS} sets of ACLs, {decisions} decisions in {taken:.0f} s")


def test_random_sets_have_decisions_of_every_kind() -> None:
    """The sets above would prove little if nearly all of their decisions were refusals."""
    seen = {True: 0, False: 0}
    for seed in range(500):
        drawn = draw(seed)
        reference = Reference((), default=False)
        reference.bindings += {drawn.binding() for _ in range(6)}
        for _ in range(4):
            pick = drawn.chance.choice
            resource = Resource(pick(drawn.types), pick(drawn.names))
            asked = pick(PRINCIPALS), pick(drawn.clients), pick(drawn.operations[1:]), resource
            seen[reference.is_allowed(*asked)] += 1
    assert min(seen.values()) > 50, seen


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("::ffff:10.0.0.0/120", "10.0.0.7"),
        ("::ffff:10.0.0.0/120", "::ffff:10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("10.0.0.0/24", "::ffff:10.0.0.7"),
        ("2001:DB8::/32", "2001:db8::7"),
        ("fe80::7", "fe80::7%eth0"),
    ],
)
def test_a_denial_applies_to_a_client_in_whichever_form_its_address_comes(
    host: str, client: str
) -> None:
    resource = Resource(AclResourceType.TOPIC, "orders")
    allowing = AclBinding(
        *(AclResourceType.TOPIC, LITERAL, "orders", "User:*", "*", AclOperation.READ, ALLOW)
    )
    authorizer = Authorizer(bindings=[allowing, allowing._replace(host=host, permission=DENY)])

    asked = "User:alice", canonical_host(client), AclOperation.READ, resource
    assert not authorizer.is_allowed(*asked)
    assert not authorizer.explain(*asked).is_allowed
