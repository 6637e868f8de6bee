"""Authentication of a client's connections: SASL with PLAIN or SCRAM.

Credentials come from `sasl.username` and `sasl.password`, or from Java's `sasl.jaas.config`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from ottla.client.config import CommonConfig
from ottla.client.errors import AuthenticationFailed, InvalidConfig
from ottla.client.jaas import jaas_options
from ottla.client.oauth import token_source
from ottla.net.oauthbearer import OAUTHBEARER, OAuthBearer, rejection
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.net.connection import Authenticate, Connection

MIN_SCRAM_ITERATIONS = 4096
MAX_SCRAM_ITERATIONS = 1_000_000
"""Upper bound, so that a malicious broker cannot keep the client's CPU busy."""


def authenticator(config: CommonConfig) -> Authenticate | None:
    if not config.security_protocol.upper().startswith("SASL"):
        return None
    timeout_s = config.socket_connection_setup_timeout_ms / 1000
    if config.sasl_mechanism == OAUTHBEARER:
        return _with_tokens(OAuthBearer(token_source(config)), timeout_s)
    username, password = credentials(config)

    async def authenticate(connection: Connection) -> None:
        dialogue = _SaslExchange(connection, timeout_s)
        await dialogue.handshake(config.sasl_mechanism)
        if config.sasl_mechanism == "PLAIN":
            await dialogue.exchange(b"\0" + username.encode() + b"\0" + password.encode())
        else:
            scram = Scram(config.sasl_mechanism, username, password)
            challenge = await dialogue.exchange(scram.first())
            scram.verify(await dialogue.exchange(scram.final(challenge)))

    return authenticate


def _with_tokens(mechanism: OAuthBearer, timeout_s: float) -> Authenticate:
    async def authenticate(connection: Connection) -> None:
        dialogue = _SaslExchange(connection, timeout_s)
        await dialogue.handshake(mechanism.name)
        exchange = mechanism.start()
        message: bytes | None = await exchange.first()
        while message is not None:
            message = await exchange.respond(await dialogue.exchange(message))

    return authenticate


def credentials(config: CommonConfig) -> tuple[str, str]:
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config:
        options = jaas_options(config.sasl_jaas_config)
        username = username or options.get("username", "")
        password = password or options.get("password", "")
    if not username:
        raise InvalidConfig(
            f"security.protocol is {config.security_protocol}: "
            "sasl.username and sasl.password must be set."
        )
    return username, password


class _SaslExchange:
    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def handshake(self, mechanism: str) -> None:
        response = await self._connection.request(
            rpc.sasl_handshake(mechanism=mechanism), self._timeout_s, min_version=1
        )
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "nothing"
            raise AuthenticationFailed(
                f"{self._connection.name} does not support the SASL mechanism {mechanism}; "
                f"it supports {offered}"
            )

    async def exchange(self, content: bytes) -> bytes:
        response = await self._connection.request(
            rpc.sasl_authenticate(auth_bytes=content), self._timeout_s
        )
        if response.error_code:
            reason = rejection(response.error_message or "wrong user name or password")
            raise AuthenticationFailed(
                f"{self._connection.name} rejected the credentials: {reason}"
            )
        return bytes(response.auth_bytes)


class Scram:
    """Client side of SCRAM (RFC 5802), without channel binding."""

    def __init__(
        self, mechanism: str, username: str, password: str, nonce: str | None = None
    ) -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._password = password.encode()
        self._nonce = secrets.token_urlsafe(24) if nonce is None else nonce
        self._first_bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, challenge: bytes) -> bytes:
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
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        client_key = self._sign(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._sign(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._sign(self._sign(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        """Check the broker's signature, which proves that it knows the password's hash."""
        try:
            fields = dict(part.split("=", 1) for part in final.decode().split(","))
            if "e" in fields:
                raise AuthenticationFailed(f"the broker rejected the credentials: {fields['e']}")
            signature = base64.b64decode(fields["v"], validate=True)
        except (ValueError, KeyError) as error:
            raise AuthenticationFailed("the broker's SCRAM proof is malformed") from error
        if not hmac.compare_digest(signature, self._signature):
            raise AuthenticationFailed("the broker could not prove that it knows the password")

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()
