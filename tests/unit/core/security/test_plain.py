"""Tests of the mechanism PLAIN."""

from __future__ import annotations

import pytest

from ottla.core.security.plain import PlainMechanism
from ottla.core.security.principal import Principal
from ottla.core.security.sasl import Authenticated, Rejected

REFUSED = "Authentication failed: Invalid username or password"


def step(message: bytes) -> object:
    return PlainMechanism({"alice": "secret", "élan": "pässword"}).start().step(message)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0élan\0pässword".encode(), "élan"),
    ],
)
def test_a_user_with_the_right_password_is_authenticated(message: bytes, user: str) -> None:
    assert step(message) == Authenticated(Principal("User", user))


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b"\0alice\0guess", REFUSED),
        (b"\0nobody\0secret", REFUSED),
        (b"\0alice\0secret2", REFUSED),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
        (b"", ""),
        (b"alice", ""),
        (b"\0alice", ""),
        (b"\0alice\0secret\0", ""),
        (b"\0\xff\0secret", ""),
    ],
)
def test_another_message_is_rejected(message: bytes, answer: str) -> None:
    found = step(message)
    assert isinstance(found, Rejected)
    assert found.message == answer
    assert found.reason
    assert "secret" not in found.reason


def test_the_wrong_password_is_not_in_the_reason() -> None:
    found = step(b"\0alice\0guess")
    assert isinstance(found, Rejected)
    assert found.reason == "wrong password of user 'alice'"
