"""Delegation tokens: credentials of limited lifetime that act for their owner (KIP-48).

A token is an ID and an HMAC of it, which brokers compute with a secret that all of them know. The
HMAC is the password; it is not stored.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass

from ottla.base.principal import Principal


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token without its HMAC. Times are in milliseconds since 1970."""

    token_id: str
    owner: Principal
    requester: Principal
    """The principal that created the token, for itself or for another owner (KIP-373)."""
    renewers: tuple[Principal, ...]
    """Principals that may renew and expire the token, besides its owner."""
    issued_ms: int
    expires_ms: int
    """Time at which the token expires unless it is renewed."""
    max_ms: int
    """Time beyond which the token cannot be renewed."""

    def is_expired(self, now_ms: int) -> bool:
        return min(self.max_ms, self.expires_ms) < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Return whether a principal is the owner or a renewer."""
        return principal == self.owner or principal in self.renewers


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC of a token: enough to log in, so it must be kept secret."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_password(token_hmac: bytes) -> str:
    """Return the password of a token for SCRAM."""
    return b64encode(token_hmac).decode()
