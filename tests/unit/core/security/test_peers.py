"""Who is a broker of the cluster."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.security.peers import PeerRule, parse_principals
from ottla.core.security.principal import ANONYMOUS, Principal

OWN = Principal("User", "CN=broker")
OTHER = Principal("User", "CN=broker-2,O=x")
CLIENT = Principal("User", "alice")
RULE = PeerRule("INTERNAL", True, frozenset({OTHER}), OWN)


@pytest.mark.parametrize(
    ("listener", "principal", "expected"),
    [
        ("INTERNAL", OWN, True),
        ("INTERNAL", OTHER, True),
        ("INTERNAL", CLIENT, False),
        ("INTERNAL", ANONYMOUS, False),
        ("INTERNAL", Principal("Group", OWN.name), False),
        ("EXTERNAL", OWN, False),
        ("EXTERNAL", OTHER, False),
    ],
)
def test_a_peer_needs_the_listener_and_the_principal(
    listener: str, principal: Principal, expected: bool
) -> None:
    assert RULE.is_peer(listener, principal) == expected


def test_everybody_on_a_listener_without_authentication_may_be_a_broker() -> None:
    rule = PeerRule("INTERNAL", authenticates=False)
    assert rule.is_peer("INTERNAL", ANONYMOUS)
    assert not rule.is_peer("EXTERNAL", ANONYMOUS)


def test_nobody_is_a_broker_while_the_own_principal_is_unknown() -> None:
    rule = PeerRule("INTERNAL", authenticates=True)
    assert not rule.is_peer("INTERNAL", ANONYMOUS)


def test_super_users_are_known_on_every_listener() -> None:
    assert RULE.is_super_user(OTHER)
    assert not RULE.is_super_user(OWN)


def test_super_users_brokers_and_clients_without_authentication_manage_brokers() -> None:
    for each in (OTHER, OWN, ANONYMOUS):
        RULE.check_manages_brokers(each)
    with pytest.raises(KafkaError) as caught:
        RULE.check_manages_brokers(CLIENT)
    assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_everybody_manages_brokers_without_super_users() -> None:
    PeerRule("INTERNAL", True, own=OWN).check_manages_brokers(CLIENT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ", []),
        ("User:admin", [("User", "admin")]),
        (" User:a ;User:CN=b,O=c:d; ", [("User", "a"), ("User", "CN=b,O=c:d")]),
        ("Group:x;User:x", [("Group", "x"), ("User", "x")]),
    ],
)
def test_super_users_are_separated_by_semicolons(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert parse_principals(text) == {Principal(*each) for each in expected}
