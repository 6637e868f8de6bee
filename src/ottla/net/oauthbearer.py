"""The client's side of SASL/OAUTHBEARER (RFC 7628, KIP-255), with extensions (KIP-342)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.net.errors import AuthenticationFailed

OAUTHBEARER = "OAUTHBEARER"
ACKNOWLEDGEMENT = b"\x01"
"""The client's answer to an error of the broker, which then ends the authentication."""
MAX_TOKEN_BYTES = 64 * 1024

_TOKEN = re.compile(r"[-_.~+/A-Za-z0-9]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class TokenError(Exception):
    """A token or an extension cannot be sent. The message completes a sentence."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token with its extensions. The representation does not contain the token."""

    value: str = field(repr=False)
    expires_at: float
    """Time in seconds since 1970."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource(Protocol):
    """Source of the tokens of one client."""

    async def token(self) -> BearerToken:
        """Return a token that has not expired.

        Raises:
            ClientError: There is no token.
        """


class OAuthBearer:
    """The mechanism, with a source of tokens."""

    name = OAUTHBEARER

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def start(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(self._source)


class OAuthBearerExchange:
    """The client's messages in one authentication."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._has_failed = False

    async def first(self) -> bytes:
        """Return the message with the token."""
        return initial_response(await self._source.token())

    async def respond(self, challenge: bytes) -> bytes | None:
        """Return the acknowledgement of an error, or None if the authentication is complete."""
        if not challenge:
            return None
        if self._has_failed:
            raise AuthenticationFailed(f"the broker rejected the token: {rejection(challenge)}")
        self._has_failed = True
        return ACKNOWLEDGEMENT


def initial_response(token: BearerToken) -> bytes:
    """Return the client's first message.

    Raises:
        TokenError: The token or an extension contains characters that are not allowed.
    """
    check_token(token.value)
    pairs = [f"auth=Bearer {token.value}"]
    for key, value in token.extensions.items():
        if not _KEY.fullmatch(key) or key == "auth":
            raise TokenError(f"the name of the extension {key!r} must consist of letters")
        if not _VALUE.fullmatch(value):
            raise TokenError(f"the extension {key} has a value that is not printable ASCII text")
        pairs.append(f"{key}={value}")
    return "\x01".join(["n,,", *pairs, "\x01"]).encode()


def check_token(text: str) -> None:
    """Raise TokenError if a text cannot be a token. The message does not contain the text."""
    if len(text) > MAX_TOKEN_BYTES:
        raise TokenError(f"the token has more than {MAX_TOKEN_BYTES} characters")
    if not _TOKEN.fullmatch(text):
        raise TokenError("the token contains characters that are not allowed in a token")


def rejection(message: bytes | str) -> str:
    """Return a phrase for a broker's error, which is JSON such as `{"status":"invalid_token"}`."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    try:
        found = json.loads(text)
    except ValueError:
        return text
    status = found.get("status") if isinstance(found, dict) else None
    if not isinstance(status, str):
        return text
    phrase = status.replace("_", " ")
    needed = found.get("scope")
    return f"{phrase} (required scope: {needed})" if isinstance(needed, str) and needed else phrase
