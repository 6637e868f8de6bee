"""Tokens from an OAuth 2 token endpoint, by the client credentials grant (RFC 6749), or a file.

These functions block their thread. Messages contain neither the client's secret nor the token.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.client.errors import AuthenticationFailed, ConnectionLost, InvalidConfig
from ottla.net.http_request import HttpResponse, NoResponse, send_request
from ottla.net.oauthbearer import MAX_TOKEN_BYTES, BearerToken, TokenError, check_token

MAX_RESPONSE_BYTES = 256 * 1024
MAX_ATTEMPTS = 4
MAX_SHOWN_CHARS = 200
_TEMPORARY = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class TokenEndpoint:
    """A token endpoint and the credentials of a client."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    is_urlencoded: bool = False
    """Whether the credentials are URL-encoded in the header, as RFC 6749 requires."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    backoff_s: float = 0.1
    max_backoff_s: float = 10.0
    authority_file: str = ""
    authority_pem: str = field(default="", repr=False)

    def fetch(
        self,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> BearerToken:
        """Return a new token. Failures that may be temporary are retried.

        Raises:
            AuthenticationFailed: The endpoint refused the client.
            ConnectionLost: The endpoint cannot be reached, or its response cannot be used.
            InvalidConfig: The file of the trusted authorities cannot be used.
        """
        request, tls = self._request(), self._tls()
        timeout_s = self.connect_timeout_s + self.read_timeout_s
        pause_s, reason = self.backoff_s, ""
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                sleep(random.uniform(0.8, 1.2) * pause_s)
                pause_s = min(2 * pause_s, self.max_backoff_s)
            try:
                response = send_request(request, timeout_s, tls=tls, max_bytes=MAX_RESPONSE_BYTES)
            except NoResponse as error:
                reason = str(error)
                continue
            if response.status not in _TEMPORARY:
                return self._token(response, now())
            reason = f"HTTP status {response.status}"
        raise ConnectionLost(f"The token endpoint {self._place} cannot be used: {reason}.")

    @property
    def _place(self) -> str:
        """Address of the endpoint without what may be secret in it."""
        parts = urllib.parse.urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))

    def _request(self) -> urllib.request.Request:
        user, secret = self.client_id, self.client_secret
        if self.is_urlencoded:
            user, secret = urllib.parse.quote_plus(user), urllib.parse.quote_plus(secret)
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        credentials = base64.b64encode(f"{user}:{secret}".encode()).decode()
        return urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {
                "Accept": "application/json",
                "Authorization": f"Basic {credentials}",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            method="POST",
        )

    def _tls(self) -> ssl.SSLContext | None:
        if not (self.authority_file or self.authority_pem):
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(
                cafile=self.authority_file or None, cadata=self.authority_pem or None
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it has no certificates in PEM format"
            name = f"https.ca.location={self.authority_file}"
            raise InvalidConfig(
                f"{name if self.authority_file else 'https.ca.pem'} cannot be used: "
                f"{str(reason).lower()}."
            ) from None
        return context

    def _token(self, response: HttpResponse, now: float) -> BearerToken:
        content = _json(response.body)
        if response.status != 200:
            raise AuthenticationFailed(
                f"The token endpoint {self._place} refused the client {self.client_id}: "
                f"{self._error(content) or f'HTTP status {response.status}'}."
            )
        value = content.get("access_token")
        if not isinstance(value, str) or not value:
            raise ConnectionLost(f"The response of {self._place} has no access_token.")
        try:
            check_token(value)
        except TokenError as error:
            raise ConnectionLost(f"{self._place} returned an unusable token: {error}.") from None
        lifetime = content.get("expires_in")
        expires_at = expiry_of(value)
        if isinstance(lifetime, str) and lifetime.isdecimal():
            lifetime = int(lifetime)
        if isinstance(lifetime, int | float) and not isinstance(lifetime, bool):
            expires_at = min(now + lifetime, now + lifetime if expires_at is None else expires_at)
        if expires_at is None:
            raise ConnectionLost(f"The response of {self._place} does not say when it expires.")
        return BearerToken(value, expires_at)

    def _error(self, content: dict[str, Any]) -> str:
        """Return the error in a response, which must not reveal the secret."""
        texts = [content.get("error"), content.get("error_description")]
        found = ": ".join(each for each in texts if isinstance(each, str) and each)
        if self.client_secret:
            found = found.replace(self.client_secret, "[hidden]")
        printable = "".join(each if each.isprintable() else " " for each in found)
        return printable[:MAX_SHOWN_CHARS].rstrip(". ")


def read_token(path: str, *, now: Callable[[], float] = time.time) -> BearerToken:
    """Return the token in a file, as Kubernetes and other systems write them.

    Args:
        path: Path of the file.
        now: Source of the time in seconds since 1970.

    Raises:
        ConnectionLost: The file cannot be read, or does not contain a token that is valid.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise ConnectionLost(f"Cannot read the token file {path}: {reason}.") from None
    text = data.decode("ascii", "replace").strip()
    expires_at = expiry_of(text)
    try:
        check_token(text)
    except TokenError:
        expires_at = None
    if expires_at is None:
        raise ConnectionLost(f"The file {path} does not contain a token with an expiry time.")
    if expires_at <= now():
        raise ConnectionLost(f"The token in {path} has expired.")
    return BearerToken(text, expires_at)


def expiry_of(token: str) -> float | None:
    """Return the time in the claim `exp` of a token, or None if it is not a JWT with that claim.

    The signature is not verified: that is for the broker to do.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    found = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found)


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
