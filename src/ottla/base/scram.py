"""SCRAM credentials: what a cluster stores instead of a user's password (RFC 5802).

The stored key lets a broker check that a client knows the password, and the server key proves to
the client that the broker knows it, too. Neither of them is the password, nor can a client log in
with them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from enum import Enum

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
"""Kafka's limits for the iterations of a new credential."""
SALT_BYTES = 24


class ScramMechanism(Enum):
    """The SCRAM mechanisms, with the codes of Kafka's protocol."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Name of the SASL mechanism, such as `SCRAM-SHA-256`."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash_name(self) -> str:
        """Name of the hash function in `hashlib`, such as `sha256`."""
        return self.name.replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of one user for one mechanism. The representation contains no secrets."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def derive_credential(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password, which is what clients send to set it."""
    hash_name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. This takes milliseconds, so never call it on the event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def new_credential(
    mechanism: ScramMechanism,
    password: str,
    *,
    iterations: int = MIN_ITERATIONS,
    salt: bytes | None = None,
) -> ScramCredential:
    """Return a credential for a password. This takes milliseconds.

    Args:
        mechanism: The mechanism.
        password: The password.
        iterations: Number of iterations; more make a stolen credential harder to crack.
        salt: The salt; None generates a random one.
    """
    salt = salt or secrets.token_bytes(SALT_BYTES)
    salted = salt_password(mechanism, password, salt, iterations)
    return derive_credential(mechanism, salted, salt, iterations)
