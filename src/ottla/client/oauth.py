"""Tokens for SASL/OAUTHBEARER: from a token endpoint, a file, or a function of the application.

A token is kept until most of its lifetime has passed (`sasl.login.refresh.…`). The next
authentication after that, of a new connection or of one whose session is about to end, gets a new
token. If that fails, the old one is used as long as it is valid.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from ottla.client.config import CommonConfig
from ottla.client.errors import AuthenticationFailed, ClientError, ConnectionLost, InvalidConfig
from ottla.client.jaas import jaas_options
from ottla.client.token_endpoint import TokenEndpoint, read_token
from ottla.client.token_provider import TokenProvider
from ottla.net.oauthbearer import BearerToken, TokenError, TokenSource, initial_response

logger = logging.getLogger(__name__)

RETRY_S = 10.0
"""Pause before another attempt to replace a token that is still valid."""
LATEST_SECONDS = 1e11
"""Expiry times above this one, of the year 5138, are in milliseconds."""
_EXTENSION = "extension_"


class RefreshPolicy(NamedTuple):
    """Time at which a token is replaced, with Kafka's rules."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    def refresh_at(self, now: float, expires_at: float, chance: float) -> float:
        """Return when to replace a token, in seconds since 1970.

        Args:
            now: Time at which the token was obtained.
            expires_at: Time at which it expires.
            chance: Random number from 0 to 1.
        """
        lifetime = expires_at - now
        planned = now + lifetime * (self.window_factor + self.window_jitter * chance)
        if self.min_period_s + self.buffer_s > lifetime:
            return planned
        return max(min(planned, expires_at - self.buffer_s), now + self.min_period_s)


class Tokens:
    """The tokens of one client. It belongs to one event loop."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[BearerToken]],
        policy: RefreshPolicy,
        *,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Keep tokens that a function fetches.

        Args:
            fetch: Function that returns a new token, or raises ClientError.
            policy: When to replace a token.
            now: Source of the time in seconds since 1970.
            chance: Source of random numbers from 0 to 1.
        """
        self._fetch = fetch
        self._policy = policy
        self._now = now
        self._chance = chance
        self._token: BearerToken | None = None
        self._refresh_at = 0.0
        self._fetching = asyncio.Lock()

    async def token(self) -> BearerToken:
        """Return a token that has not expired.

        Raises:
            AuthenticationFailed: The client's credentials were refused.
            ConnectionLost: No token could be obtained now.
        """
        async with self._fetching:
            if self._token is None or self._now() >= self._refresh_at:
                await self._refresh()
            assert self._token is not None
            return self._token

    async def _refresh(self) -> None:
        started_at = self._now()
        try:
            token = await self._fetch()
            if token.expires_at <= self._now():
                raise ConnectionLost("The new OAUTHBEARER token has expired already.")
        except ClientError as error:
            if self._token is None or self._token.expires_at <= self._now():
                self._token = None
                raise
            self._refresh_at = self._now() + RETRY_S
            logger.warning("keeping the OAUTHBEARER token, which is still valid: %s", error)
            return
        self._token = token
        self._refresh_at = self._policy.refresh_at(started_at, token.expires_at, self._chance())


class FileTokens:
    """The token in a file, which is read for each authentication because others replace it."""

    def __init__(self, path: str, extensions: Mapping[str, str]) -> None:
        self._path = path
        self._extensions = extensions

    async def token(self) -> BearerToken:
        """Return the token in the file.

        Raises:
            ConnectionLost: The file does not contain a valid token.
        """
        found = await asyncio.to_thread(read_token, self._path)
        return BearerToken(found.value, found.expires_at, self._extensions)


# ----------------------------------------------------------------------------------- properties


def token_source(config: CommonConfig) -> TokenSource:
    """Return the source of tokens that the properties of a client select.

    Raises:
        InvalidConfig: The properties are incomplete, or contradict each other.
    """
    options = jaas_options(config.sasl_jaas_config)
    if any(name.startswith("unsecured") for name in options):
        raise InvalidConfig("sasl.jaas.config asks for an unsecured token, which is not supported.")
    extensions = _extensions(config, options)
    policy = RefreshPolicy(
        config.sasl_login_refresh_window_factor,
        config.sasl_login_refresh_window_jitter,
        config.sasl_login_refresh_min_period_seconds,
        config.sasl_login_refresh_buffer_seconds,
    )
    if config.oauth_cb is not None:
        return Tokens(_from_provider(config.oauth_cb, config, extensions), policy)
    url = config.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise InvalidConfig(
            "sasl.mechanism is OAUTHBEARER: set sasl.oauthbearer.token.endpoint.url, or pass a "
            "function that returns a token as oauth_cb."
        )
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return FileTokens(urllib.request.url2pathname(parts.path), extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidConfig(
            "sasl.oauthbearer.token.endpoint.url must be a URL with https, http or file."
        )
    return Tokens(_from_endpoint(_endpoint(config, options, url), extensions), policy)


def _endpoint(config: CommonConfig, options: Mapping[str, str], url: str) -> TokenEndpoint:
    user = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    secret = secret or options.get("clientSecret", "")
    if not user or not secret:
        raise InvalidConfig(
            "The token endpoint needs sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret."
        )
    return TokenEndpoint(
        url,
        user,
        secret,
        config.sasl_oauthbearer_scope or options.get("scope", ""),
        is_urlencoded=config.sasl_oauthbearer_header_urlencode,
        connect_timeout_s=config.sasl_login_connect_timeout_ms / 1000,
        read_timeout_s=config.sasl_login_read_timeout_ms / 1000,
        backoff_s=config.sasl_login_retry_backoff_ms / 1000,
        max_backoff_s=config.sasl_login_retry_backoff_max_ms / 1000,
        authority_file=config.https_ca_location,
        authority_pem=config.https_ca_pem,
    )


def _extensions(config: CommonConfig, options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions of the properties, checked."""
    found = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    for pair in config.sasl_oauthbearer_extensions:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidConfig(f"{key!r} in sasl.oauthbearer.extensions must look like key=value.")
        found[key.strip()] = value.strip()
    try:
        initial_response(BearerToken("token", 0.0, found))
    except TokenError as error:
        raise InvalidConfig(f"sasl.oauthbearer.extensions: {error}.") from None
    return found


def _from_endpoint(
    endpoint: TokenEndpoint, extensions: Mapping[str, str]
) -> Callable[[], Awaitable[BearerToken]]:
    async def fetch() -> BearerToken:
        found = await asyncio.to_thread(endpoint.fetch)
        return BearerToken(found.value, found.expires_at, extensions)

    return fetch


# ------------------------------------------------------------------------------------- functions


def _from_provider(
    provider: TokenProvider, config: CommonConfig, extensions: Mapping[str, str]
) -> Callable[[], Awaitable[BearerToken]]:
    """Return a function that calls the application's, and checks what it returns."""
    text = config.sasl_oauthbearer_config
    arguments = (text,) if _has_parameter(provider) else ()
    function = cast("Callable[..., Any]", provider)

    async def fetch() -> BearerToken:
        try:
            if inspect.iscoroutinefunction(function):
                found = await function(*arguments)
            else:
                found = await asyncio.to_thread(function, *arguments)
                if inspect.isawaitable(found):
                    found = await found
        except ClientError:
            raise
        except Exception as error:
            raise ConnectionLost(
                f"oauth_cb raised {type(error).__name__}, so that there is no token."
            ) from error
        return provided(found, extensions)

    return fetch


def provided(found: object, extensions: Mapping[str, str]) -> BearerToken:
    """Return the token that an application's function has returned.

    Args:
        found: What the function returned.
        extensions: SASL extensions of the properties, which those of the function override.

    Raises:
        AuthenticationFailed: It is not a token.
    """
    if not isinstance(found, tuple) or not 2 <= len(found) <= 4:
        raise AuthenticationFailed(
            f"oauth_cb must return a tuple of a token and its expiry time, not "
            f"{type(found).__name__}."
        )
    value, expires_at, *more = found
    own = more[1] if len(more) > 1 else None
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if not isinstance(value, str):
        raise AuthenticationFailed("The token that oauth_cb returned is not text.")
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise AuthenticationFailed(
            "The expiry time that oauth_cb returned is not a number of seconds since 1970."
        )
    if own is not None and not isinstance(own, Mapping):
        raise AuthenticationFailed("The extensions that oauth_cb returned are not a dictionary.")
    seconds = expires_at / 1000 if expires_at > LATEST_SECONDS else float(expires_at)
    whole = {**extensions, **{str(name): str(text) for name, text in (own or {}).items()}}
    token = BearerToken(value, seconds, whole)
    try:
        initial_response(token)
    except TokenError as error:
        raise AuthenticationFailed(f"oauth_cb returned what cannot be sent: {error}.") from None
    return token


def _has_parameter(provider: TokenProvider) -> bool:
    try:
        signature = inspect.signature(provider)
    except (TypeError, ValueError):
        return True
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(each.kind in positional for each in signature.parameters.values())
