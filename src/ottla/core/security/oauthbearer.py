"""The server's side of SASL/OAUTHBEARER (RFC 7628, KIP-255), with extensions (KIP-342).

A client sends its token in its first message. If the token is invalid, the server answers with an
error in JSON, the client acknowledges it with a single byte 0x01, and then authentication fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.principal import USER, Principal
from ottla.core.security.jwt import MAX_TOKEN_BYTES, TokenFacts
from ottla.core.security.sasl import Authenticated, Challenge, Rejected

ACKNOWLEDGEMENT = b"\x01"
"""The client's answer to an error."""
INVALID_TOKEN = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()
"""The error that Kafka sends for every token that is not valid."""
_MALFORMED = "Invalid OAUTHBEARER client first message"
MAX_EXTENSIONS = 64
MAX_RESPONSE_BYTES = 2 * MAX_TOKEN_BYTES

_SEPARATOR = "\x01"
_GS2_HEADER = re.compile(r"n,(?:a=((?:[^\x00\x01=,]|=2C|=3D)+))?,")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH = re.compile(r"([A-Za-z0-9_]+) +([-_.a-zA-Z0-9]+)")


class MalformedResponse(Exception):
    """The first message of a client is malformed. The message does not contain the token."""


@dataclass(frozen=True, slots=True)
class InitialResponse:
    """The first message of a client. The representation does not contain the token."""

    token: str = field(repr=False)
    authorization_id: str = ""
    """The name that the client wants to have; '' for the subject of the token."""
    extensions: Mapping[str, str] = field(default_factory=dict)


def parse_initial_response(message: bytes) -> InitialResponse:
    """Parse the first message of a client.

    Raises:
        MalformedResponse: The message is malformed or too large.
    """
    if len(message) > MAX_RESPONSE_BYTES:
        raise MalformedResponse(f"the message has more than {MAX_RESPONSE_BYTES} bytes")
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedResponse("the message is not in UTF-8") from None
    header, *pairs = text.split(_SEPARATOR, MAX_EXTENSIONS + 4)
    if pairs[-2:] != ["", ""] or len(pairs) > MAX_EXTENSIONS + 3:
        raise MalformedResponse("the message is not a list of keys and values")
    extensions = _parsed_pairs(pairs[:-2])
    scheme, token = _parsed_authorization(extensions.pop("auth", None))
    if scheme.lower() != "bearer":
        raise MalformedResponse("the authorization scheme is not Bearer")
    return InitialResponse(token, _authorization_id(header), extensions)


def _authorization_id(header: str) -> str:
    match = _GS2_HEADER.fullmatch(header)
    if match is None:
        raise MalformedResponse("the GS2 header is invalid")
    return (match[1] or "").replace("=2C", ",").replace("=3D", "=")


def _parsed_pairs(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise MalformedResponse("a key or a value is invalid")
        if key in found:
            raise MalformedResponse(f"the key {key[:40]} occurs twice")
        found[key] = value
    return found


def _parsed_authorization(value: str | None) -> tuple[str, str]:
    match = None if value is None else _AUTH.fullmatch(value)
    if match is None:
        raise MalformedResponse("the key auth is missing or malformed")
    return match[1], match[2]


class OAuthBearerExchange:
    """The messages of one authentication, without the verification of the token."""

    __slots__ = ("_is_rejected",)

    def __init__(self) -> None:
        self._is_rejected = False

    def begin(self, message: bytes) -> InitialResponse | Rejected:
        """Return the contents of a message of the client, or why it is rejected."""
        if self._is_rejected:
            # RFC 7628 requires the acknowledgement; anything else fails as well.
            return Rejected("", INVALID_TOKEN.decode())
        try:
            return parse_initial_response(message)
        except MalformedResponse as error:
            return Rejected(f"the client sent a malformed message: {error}", _MALFORMED)

    def accept(self, response: InitialResponse, facts: TokenFacts) -> Authenticated | Rejected:
        """Return the answer to a client with a valid token.

        Args:
            response: The message of the client.
            facts: The facts in its token.
        """
        if response.authorization_id not in ("", facts.subject):
            message = (
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
            return Rejected("the client requested to act as another principal", message)
        return Authenticated(Principal(USER, facts.subject), expires_at=facts.expires_at)

    def reject(self, reason: str) -> Challenge:
        """Return the answer to a client with an invalid token.

        Args:
            reason: Description for the log.
        """
        self._is_rejected = True
        return Challenge(INVALID_TOKEN, failure=reason)
