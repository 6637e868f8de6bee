"""The client's side of SASL: the dialogue with a broker, and the mechanisms PLAIN and SCRAM.

A mechanism has the credentials of a user, and is used for any number of connections. For each
authentication it starts an exchange, which creates the client's messages. Another mechanism only
needs the two protocols `SaslMechanism` and `SaslExchange`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Protocol

from ottla.net.errors import AuthenticationFailed
from ottla.net.oauthbearer import rejection
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.net.connection import Authenticate, Connection

PLAIN = "PLAIN"
MIN_SCRAM_ITERATIONS = 4096
MAX_SCRAM_ITERATIONS = 1_000_000
"""Upper bound, so that a malicious broker cannot keep the client's CPU busy."""
NONCE_BYTES = 24


class SaslExchange(Protocol):
    """The client's messages in one authentication."""

    async def first(self) -> bytes:
        """Return the first message."""

    async def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to a message of the broker, or None if the authentication is
        complete.

        Raises:
            AuthenticationFailed: The broker's message is malformed, or it could not prove its
                identity.
        """


class SaslMechanism(Protocol):
    """A SASL mechanism with the credentials of a user."""

    @property
    def name(self) -> str:
        """Name of the mechanism, such as `SCRAM-SHA-256`."""

    def start(self) -> SaslExchange:
        """Start an authentication."""


def authenticator(mechanism: SaslMechanism, timeout_s: float) -> Authenticate:
    """Return a function that authenticates connections.

    Args:
        mechanism: The mechanism.
        timeout_s: How long to wait for each response of the broker, in seconds.
    """

    async def authenticate(connection: Connection) -> float:
        handshake = await connection.request(
            rpc.sasl_handshake(mechanism=mechanism.name), timeout_s, min_version=1
        )
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "nothing"
            raise AuthenticationFailed(
                f"{connection.name} does not support the SASL mechanism {mechanism.name}; "
                f"it supports {offered}"
            )
        exchange = mechanism.start()
        message: bytes | None = await exchange.first()
        lifetime_ms = 0
        while message is not None:
            response = await connection.request(
                rpc.sasl_authenticate(auth_bytes=message), timeout_s
            )
            if response.error_code:
                reason = rejection(response.error_message or "wrong user name or password")
                raise AuthenticationFailed(f"{connection.name} rejected the credentials: {reason}")
            lifetime_ms = response.session_lifetime_ms
            message = await exchange.respond(bytes(response.auth_bytes))
        return lifetime_ms / 1000

    return authenticate


# --------------------------------------------------------------------------------------- PLAIN


class Plain:
    """PLAIN (RFC 4616): the password itself."""

    name = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0".join((b"", username.encode(), password.encode()))

    def start(self) -> Plain:
        return self

    async def first(self) -> bytes:
        return self._message

    async def respond(self, challenge: bytes) -> bytes | None:
        return None


# --------------------------------------------------------------------------------------- SCRAM


class Scram:
    """SCRAM (RFC 5802), without channel binding.

    The salted password is kept, because it takes milliseconds to compute, and a broker uses the
    same salt for every connection of a user.
    """

    def __init__(self, name: str, username: str, password: str, *, is_token: bool = False) -> None:
        """Create the mechanism.

        Args:
            name: Name of the mechanism, such as `SCRAM-SHA-256`.
            username: Name of the user, or ID of a delegation token.
            password: Password of the user, or HMAC of the token in base64.
            is_token: Whether the credentials are those of a delegation token (KIP-48).
        """
        self.name = name
        self.is_token = is_token
        self.hash_name = name.removeprefix("SCRAM-").replace("-", "").lower()
        self.username = username
        self._password = password.encode()
        self._salted: tuple[bytes, int, bytes] | None = None
        """The last salt and number of iterations, and the salted password."""

    def start(self, nonce: str | None = None) -> ScramExchange:
        """Start an authentication.

        Args:
            nonce: The client's nonce; a random one by default.
        """
        return ScramExchange(self, secrets.token_urlsafe(NONCE_BYTES) if nonce is None else nonce)

    async def salted_password(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password, computed in a thread."""
        known = self._salted
        if known is not None and known[:2] == (salt, iterations):
            return known[2]
        salted: bytes = await asyncio.get_running_loop().run_in_executor(
            None, hashlib.pbkdf2_hmac, self.hash_name, self._password, salt, iterations
        )
        self._salted = (salt, iterations, salted)
        return salted


class ScramExchange:
    """The client's messages in one authentication with SCRAM."""

    def __init__(self, mechanism: Scram, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        name = mechanism.username.replace("=", "=3D").replace(",", "=2C")
        extensions = ",tokenauth=true" if mechanism.is_token else ""
        self._first_bare = f"n={name},r={nonce}{extensions}"
        self._signature: bytes | None = None
        """Expected signature of the broker, once the proof has been sent."""

    async def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    async def respond(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return await self._prove(challenge)
        self._verify(challenge, self._signature)
        return None

    async def _prove(self, challenge: bytes) -> bytes:
        try:
            fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (ValueError, KeyError) as error:
            raise AuthenticationFailed("the broker's SCRAM challenge is malformed") from error
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker's SCRAM nonce does not extend the client's")
        if not MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker requires {iterations} SCRAM iterations, "
                f"not {MIN_SCRAM_ITERATIONS} to {MAX_SCRAM_ITERATIONS}"
            )
        salted = await self._mechanism.salted_password(salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        client_key = self._sign(salted, b"Client Key")
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        signature = self._sign(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._sign(self._sign(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, final: bytes, expected: bytes) -> None:
        """Check the broker's signature, which proves that it knows the password's hash."""
        try:
            fields = dict(part.split("=", 1) for part in final.decode().split(","))
            if "e" in fields:
                raise AuthenticationFailed(f"the broker rejected the credentials: {fields['e']}")
            signature = base64.b64decode(fields["v"], validate=True)
        except (ValueError, KeyError) as error:
            raise AuthenticationFailed("the broker's SCRAM proof is malformed") from error
        if not hmac.compare_digest(signature, expected):
            raise AuthenticationFailed("the broker could not prove that it knows the password")

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._mechanism.hash_name).digest()
