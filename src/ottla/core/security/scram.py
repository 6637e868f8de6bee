"""The server's side of SCRAM (RFC 5802), without channel binding.

A client must not learn which users exist. An unknown user therefore gets a challenge, too: its salt
is derived from the name and from a secret key of another user, so that it does not change between
attempts, nor between brokers. The length of the salt and the number of iterations are those of that
user. The unknown user is rejected at the end, with the same response as after a wrong password.

Kafka's extension `tokenauth=true` in the client's first message means that the user name is the ID
of a delegation token, and the password its HMAC.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from ottla.base.scram import MIN_ITERATIONS, ScramCredential, ScramMechanism
from ottla.core.security.principal import USER, Principal
from ottla.core.security.sasl import Authenticated, Challenge, Rejected, Step

SALT_BYTES = 24
"""Length of the salts that `kafka-configs` creates."""
MAX_NONCE_CHARACTERS = 1024
MAX_MESSAGE_BYTES = 16 * 1024
"""Longer than any user name with its nonce. Parsing half a megabyte would take 0.2 s."""

_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,[A-Za-z]=[^,]*)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPED = re.compile("=(2C|3D)?")
_NEVER = float("inf")
_TOKEN_EXTENSION = "tokenauth=true"


class ScramCredentials(Protocol):
    """The credentials of the cluster's users."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism, or None if the user has none."""

    def example(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the credential of some user, always the same one, or None if there is none."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token."""

    credential: ScramCredential
    owner: Principal
    expires_at: float
    """Time when the token expires, in seconds since 1970."""


class TokenCredentials(Protocol):
    """The credentials of the cluster's delegation tokens."""

    async def token_credential(
        self, mechanism: ScramMechanism, token_id: str
    ) -> TokenCredential | None:
        """Return the credential of a token, or None if there is no such token."""


class ScramMechanismServer:
    """One of the SCRAM mechanisms."""

    may_wait = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: ScramCredentials,
        tokens: TokenCredentials | None,
        *,
        secret: bytes,
        new_nonce: Callable[[], str],
    ) -> None:
        """Create the mechanism.

        Args:
            mechanism: The mechanism.
            credentials: The credentials of users.
            tokens: The credentials of delegation tokens; None if the cluster has none.
            secret: Random bytes from which the challenges of unknown users are derived if there are
                no users.
            new_nonce: Returns a random nonce of printable characters without commas.
        """
        self.mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._secret = secret
        self._new_nonce = new_nonce

    def start(self) -> ScramExchange:
        return ScramExchange(self, self._new_nonce())

    def user_credential(self, user: str) -> TokenCredential | None:
        """Return the credential and the principal of a user."""
        credential = self._credentials.credential(self.mechanism, user)
        if credential is None:
            return None
        return TokenCredential(credential, Principal(USER, user), _NEVER)

    async def token_credential(self, token_id: str) -> TokenCredential | None:
        """Return the credential of a token, and the principal of its owner."""
        if self._tokens is None:
            return None
        found = await self._tokens.token_credential(self.mechanism, token_id)
        if found is None:
            return None
        owner = Principal(found.owner.type, found.owner.name, is_token_authenticated=True)
        return found._replace(owner=owner)

    def decoy(self, user: str) -> ScramCredential:
        """Return a credential for an unknown user, whose password nobody knows."""
        hash_name = self.mechanism.hash_name
        example = self._credentials.example(self.mechanism)
        secret, salt_bytes, iterations = self._secret, SALT_BYTES, MIN_ITERATIONS
        if example is not None:
            secret, salt_bytes = example.server_key, len(example.salt)
            iterations = example.iterations
        seed, stored_key, server_key = (
            hmac.digest(secret, b"%s %s" % (kind, user.encode()), hash_name)
            for kind in (b"salt", b"stored", b"server")
        )
        salt = hashlib.shake_256(seed).digest(salt_bytes)
        return ScramCredential(salt, stored_key, server_key, iterations)


class ScramExchange:
    """The messages of one authentication."""

    __slots__ = (
        "_authorization_id",
        "_client_first",
        "_credential",
        "_first_messages",
        "_found",
        "_header",
        "_kind",
        "_nonce",
        "_server",
        "_user",
    )

    def __init__(self, server: ScramMechanismServer, nonce: str) -> None:
        self._server = server
        self._nonce = nonce
        """The server's nonce, and after the first message the client's followed by the server's."""
        self._credential: ScramCredential | None = None
        self._found: TokenCredential | None = None
        self._user = ""
        self._kind = "user"
        """Kind of the name in `_user`, for the log."""
        self._authorization_id = ""
        self._header = b""
        self._client_first = ""
        self._first_messages = ""

    def step(self, message: bytes) -> Step | Awaitable[Step]:
        if len(message) > MAX_MESSAGE_BYTES:
            return _malformed()
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return _malformed()
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> Step | Awaitable[Step]:
        match = _FIRST.fullmatch(text)
        if match is None or len(match["nonce"]) > MAX_NONCE_CHARACTERS:
            return _malformed()
        user, authorization_id = _unescaped(match["user"]), _unescaped(match["authorization"] or "")
        if user is None or authorization_id is None:
            return _malformed()
        is_token = _TOKEN_EXTENSION in match["extensions"].lower().split(",")
        self._user, self._authorization_id = user, authorization_id
        self._header = match["header"].encode()
        self._client_first = match["bare"]
        self._nonce = match["nonce"] + self._nonce
        if is_token:
            self._kind = "delegation token"
            # Deriving the credential of a token takes milliseconds, so it happens in a thread.
            return self._challenge_later(user)
        return self._challenge(self._server.user_credential(user))

    async def _challenge_later(self, token_id: str) -> Step:
        return self._challenge(await self._server.token_credential(token_id))

    def _challenge(self, found: TokenCredential | None) -> Step:
        self._found = found
        decoy = self._server.decoy(self._user)  # always created, so that known users take as long
        credential = decoy if found is None else found.credential
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"{self._client_first},{challenge}"
        return Challenge(challenge.encode())

    def _final(self, text: str) -> Step:
        match = _FINAL.fullmatch(text)
        if match is None:
            return _malformed()
        if match["binding"].encode() != base64.b64encode(self._header):
            return Rejected("the client's channel binding does not match its first message")
        # librdkafka before 2.6.1, which most packages of kcat use, puts the client's nonce in front
        # once more (its pull request 4895). Kafka 3.9 accepts that as well. The broker's nonce at
        # the end is what proves that the message is fresh.
        if not match["nonce"].endswith(self._nonce):
            return Rejected("the client's nonce does not match the broker's")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            return _malformed()
        credential, found = self._credential, self._found
        assert credential is not None
        hash_name = self._server.mechanism.hash_name
        signed = f"{self._first_messages},{match['unsigned']}".encode()
        is_proved = _proves(proof, credential, signed, hash_name)
        if found is None:
            return Rejected(f"unknown {self._kind} {self._user[:100]!r}")
        if not is_proved:
            return Rejected(f"wrong password of {self._kind} {self._user[:100]!r}")
        if self._authorization_id not in ("", self._user):
            message = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            return Rejected("the client requested to act as another user", message)
        signature = hmac.digest(credential.server_key, signed, hash_name)
        expires_at = None if found.expires_at == _NEVER else found.expires_at
        return Authenticated(found.owner, b"v=" + base64.b64encode(signature), expires_at)


def _proves(proof: bytes, credential: ScramCredential, signed: bytes, hash_name: str) -> bool:
    """Return whether a proof shows that the client knows the password."""
    signature = hmac.digest(credential.stored_key, signed, hash_name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    stored_key = hashlib.new(hash_name, client_key).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


def _unescaped(name: str) -> str | None:
    """Return a user name without the escapes of `,` and `=`, or None if it is malformed."""
    if any(match[1] is None for match in _ESCAPED.finditer(name)):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")


def _malformed() -> Rejected:
    return Rejected("the client sent a malformed message")
