"""The server's side of the SASL mechanism PLAIN (RFC 4616), with Kafka's error messages.

A wrong password and an unknown user get the same response, and take the same time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.core.security.principal import USER, Principal
from ottla.core.security.sasl import Authenticated, Rejected, Step

_REFUSED = "Authentication failed: Invalid username or password"
_OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainMechanism:
    """PLAIN with a fixed set of users."""

    may_wait = False

    def __init__(self, users: Mapping[str, str]) -> None:
        """Create the mechanism.

        Args:
            users: Passwords by the names of users.
        """
        self._digests = {user: _digest(password) for user, password in users.items()}
        """Digests have equal lengths, so comparing them takes the same time for all passwords."""

    def start(self) -> PlainMechanism:
        return self

    def step(self, message: bytes) -> Step:
        parts = message.split(b"\0", 3)
        try:
            authorization_id, user, password = (part.decode() for part in parts)
        except ValueError:  # not three parts, or not UTF-8
            return Rejected("the client sent a malformed message")
        if not user:
            return _rejected("Authentication failed: username not specified")
        if not password:
            return _rejected("Authentication failed: password not specified")
        expected = self._digests.get(user)
        is_equal = hmac.compare_digest(_digest(password), expected or bytes(32))
        if expected is None or not is_equal:
            what = "unknown user" if expected is None else "wrong password of user"
            return Rejected(f"{what} {user[:100]!r}", _REFUSED)
        if authorization_id and authorization_id != user:
            return _rejected(_OTHER_USER)
        return Authenticated(Principal(USER, user))


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _rejected(message: str) -> Rejected:
    return Rejected(message.removeprefix("Authentication failed: "), message)
