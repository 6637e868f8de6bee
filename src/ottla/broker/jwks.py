"""The public keys that verify tokens: a JSON Web Key Set from a URL or a file (RFC 7517).

The keys are fetched in a thread, at intervals, and again when a token names a key that is not
known. Tokens with made-up keys cannot cause more than one fetch per
`sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`, and leave nothing in memory. If a fetch
fails, the known keys stay in use.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Protocol

from ottla.base.config.oauthbearer_settings import OAuthBearerSettings
from ottla.base.errors import UserError
from ottla.base.installation import install_extra
from ottla.broker.ports import Threads
from ottla.core.security.jwt import UnverifiedToken
from ottla.net.tls import client_context

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse

    from jwt.algorithms import AllowedPublicKeys

logger = logging.getLogger(__name__)

MAX_DOCUMENT_BYTES = 512 * 1024
MAX_KEYS = 256
MAX_CANDIDATES = 4
"""Keys that are tried for a token that names none."""
FILE_CHECK_S = 1.0
FETCH_TIMEOUT_S = 10.0
"""Longest time to wait for the endpoint to connect, or to send the next bytes."""
FETCH_DEADLINE_S = 20.0
"""Longest time that a whole response may take."""
LOOK_UP_TIMEOUT_S = 10.0
"""Longest time that a client waits for a fetch that its token caused."""
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 16_384

_PUBLIC_MEMBERS = ("kty", "n", "e", "crv", "x", "y")
_RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVE_ALGORITHMS = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
    ("OKP", "Ed448"): "EdDSA",
}
_SLOW_ALGORITHMS = frozenset({"ES384", "ES512"})
"""Algorithms that take longer than about 0.1 ms: 0.4 ms, measured with cryptography 46."""
_SLOW_RSA_BITS = 4096


class InvalidKeySet(Exception):
    """A key set cannot be fetched, read or parsed. The message is a sentence without its end."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and the algorithms that it may verify."""

    key_id: str | None
    algorithms: frozenset[str]
    key: AllowedPublicKeys = field(repr=False)
    bits: int = 0

    def is_slow(self, algorithm: str) -> bool:
        """Return whether a verification takes too long for the event loop."""
        return algorithm in _SLOW_ALGORITHMS or self.bits > _SLOW_RSA_BITS


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer."""

    keys: tuple[VerificationKey, ...] = ()

    def candidates(self, token: UnverifiedToken) -> tuple[VerificationKey, ...]:
        """Return the keys that may have signed a token."""
        return tuple(
            each
            for each in self.keys
            if token.algorithm in each.algorithms
            and (token.key_id is None or each.key_id == token.key_id)
        )[:MAX_CANDIDATES]


def parse_key_set(document: bytes) -> KeySet:
    """Parse a JSON Web Key Set. Keys for other purposes and of unknown types are skipped.

    Raises:
        InvalidKeySet: The document is not a key set, or has no key that can verify tokens.
    """
    try:
        decoded = json.loads(document)
    except (ValueError, RecursionError):
        raise InvalidKeySet("it is not a JSON document") from None
    entries = decoded.get("keys") if isinstance(decoded, dict) else None
    if not isinstance(entries, list):
        raise InvalidKeySet("it is not a JSON Web Key Set: it has no list 'keys'")
    if len(entries) > MAX_KEYS:
        raise InvalidKeySet(f"it has more than {MAX_KEYS} keys")
    keys = tuple(key for each in entries if (key := _parsed_key(each)) is not None)
    if not keys:
        raise InvalidKeySet("it has no key that can verify tokens")
    return KeySet(keys)


def _parsed_key(entry: object) -> VerificationKey | None:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    algorithms = _algorithms(entry)
    key_id = entry.get("kid")
    if not algorithms or not isinstance(key_id, str | None):
        return None
    try:
        # Only the public part, in case an issuer publishes private keys by mistake.
        public = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
        key = PyJWK(public, algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("skipping a key of the JSON Web Key Set: %s", error)
        return None
    bits = getattr(key, "key_size", 0) if entry["kty"] == "RSA" else 0
    if entry["kty"] == "RSA" and not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        logger.warning("skipping an RSA key of the JSON Web Key Set: it has %d bits", bits)
        return None
    return VerificationKey(key_id, algorithms, key, bits)


def _algorithms(entry: dict[str, object]) -> frozenset[str]:
    """Return the algorithms of a key. Symmetric keys have none, so they are never used."""
    if entry.get("kty") == "RSA":
        found = _RSA_ALGORITHMS
    else:
        name = _CURVE_ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv"))))
        found = frozenset() if name is None else frozenset({name})
    return found if entry.get("alg") is None else found & {str(entry["alg"])}


# ---------------------------------------------------------------------------------------- sources


class JwksSource(Protocol):
    """The place that a key set comes from. `read` may block, so it runs in a thread."""

    interval_s: float
    """Time between reads, in seconds."""

    def read(self) -> bytes | None:
        """Return the document, or None if it has not changed since the last read.

        Raises:
            InvalidKeySet: The document cannot be read.
        """


class JwksFile:
    """A key set in a file."""

    interval_s = FILE_CHECK_S

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return self._path

    def read(self) -> bytes | None:
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                stamp = status.st_mtime_ns, status.st_size, status.st_ino
                if stamp == self._stamp:
                    return None
                # Set before reading: a file that cannot be used is not read again and again.
                self._stamp = stamp
                document = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            self._stamp = None
            raise InvalidKeySet((error.strerror or "unknown error").lower()) from None
        return _bounded(document)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects, but never from https to http, where keys could be replaced on the way."""

    max_redirections = 3

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        allowed = ("https://",) if req.type == "https" else ("https://", "http://")
        if not newurl.lower().startswith(allowed):
            raise InvalidKeySet(f"the endpoint redirects from {req.type} to another protocol")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class JwksEndpoint:
    """A key set at an HTTP endpoint."""

    def __init__(self, settings: OAuthBearerSettings) -> None:
        """Prepare the TLS context.

        Raises:
            UserError: The trust store cannot be used.
        """
        self._url = settings.jwks_endpoint_url
        self.interval_s = settings.jwks_endpoint_refresh_ms / 1000
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if settings.url.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=client_context(settings.tls)))
        self._opener = urllib.request.build_opener(*handlers)

    def __str__(self) -> str:
        return self._url

    def read(self) -> bytes | None:
        request = urllib.request.Request(
            self._url, headers={"Accept": "application/jwk-set+json, application/json"}
        )
        deadline = time.monotonic() + FETCH_DEADLINE_S
        try:
            with self._opener.open(request, timeout=FETCH_TIMEOUT_S) as response:
                return _bounded(_read_until(response, deadline))
        except urllib.error.HTTPError as error:
            error.close()
            raise InvalidKeySet(f"the endpoint answers with status {error.code}") from None
        except urllib.error.URLError as error:
            raise InvalidKeySet(str(error.reason)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise InvalidKeySet(str(error) or type(error).__name__) from None


def _read_until(response: HTTPResponse, deadline: float) -> bytes:
    content = bytearray()
    while len(content) <= MAX_DOCUMENT_BYTES and (more := response.read1(64 * 1024)):
        content += more
        if time.monotonic() > deadline:
            raise InvalidKeySet(f"the endpoint takes longer than {FETCH_DEADLINE_S:.0f} s")
    return bytes(content)


def _bounded(document: bytes) -> bytes:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise InvalidKeySet(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
    return document


# ------------------------------------------------------------------------------------------- keys


class Jwks:
    """The current keys of a listener, which are refreshed in the background."""

    def __init__(
        self,
        source: JwksSource,
        threads: Threads,
        *,
        backoff_s: float = 0.1,
        max_backoff_s: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty set of keys.

        Args:
            source: The place that the keys come from.
            threads: Threads for reads.
            backoff_s: Time to wait before a failed read is repeated, in seconds.
            max_backoff_s: Longest time to wait before a failed read is repeated, and shortest time
                between reads that tokens cause, in seconds.
            monotonic: Source of monotonic time in seconds.
        """
        self._source = source
        self._threads = threads
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._monotonic = monotonic
        self._keys = KeySet()
        self._failures = 0
        self._problem = ""
        """Reason of the last failure; logged when it changes."""
        self._refresh: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._look_up_allowed_at = float("-inf")

    @property
    def keys(self) -> KeySet:
        """The keys of the last successful read."""
        return self._keys

    async def start(self) -> None:
        """Read the keys, and go on reading them in the background. A failure is logged."""
        await asyncio.wait([self._begin_refresh()], timeout=LOOK_UP_TIMEOUT_S)
        self._loop = asyncio.create_task(self._run(), name="jwks-refresh")

    async def close(self) -> None:
        """Stop reading keys."""
        tasks = [each for each in (self._loop, self._refresh) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def candidates(self, token: UnverifiedToken) -> tuple[VerificationKey, ...]:
        """Return the keys that may have signed a token. If there is none, wait for one refresh,
        unless an unknown key has caused one a short time ago."""
        found = self._keys.candidates(token)
        if found:
            return found
        if self._refresh is None:
            if self._monotonic() < self._look_up_allowed_at:
                return ()
            self._look_up_allowed_at = self._monotonic() + self._max_backoff_s
        await asyncio.wait([self._begin_refresh()], timeout=LOOK_UP_TIMEOUT_S)
        return self._keys.candidates(token)

    async def refresh(self) -> None:
        """Read the keys now, or wait for the read that is under way."""
        await asyncio.wait([self._begin_refresh()])

    def _begin_refresh(self) -> asyncio.Task[None]:
        if self._refresh is None:
            self._refresh = asyncio.create_task(self._read(), name="jwks-read")
            self._refresh.add_done_callback(self._refreshed)
        return self._refresh

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refresh = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("reading the keys of %s failed", self._source, exc_info=error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._next_interval_s())
            await self.refresh()

    def _next_interval_s(self) -> float:
        if not self._failures:
            return self._source.interval_s
        # An exponent above 64 would overflow, and the bound applies long before.
        backoff = self._backoff_s * 2.0 ** min(self._failures - 1, 64)
        return max(min(backoff, self._max_backoff_s), self._backoff_s)

    async def _read(self) -> None:
        try:
            keys = await self._threads.run_blocking(self._load)
        except InvalidKeySet as error:
            self._failures += 1
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("cannot get keys for tokens from %s: %s", self._source, error)
            return
        self._failures = 0
        if keys is None:
            return
        self._problem = ""
        if keys != self._keys:
            self._keys = keys
            logger.info("%d keys for tokens from %s", len(keys.keys), self._source)

    def _load(self) -> KeySet | None:
        document = self._source.read()
        return None if document is None else parse_key_set(document)


def open_jwks(settings: OAuthBearerSettings, threads: Threads) -> Jwks:
    """Return the keys of a listener, which have not been read yet. May block.

    A file is checked now, when a mistake can still be reported to the user. An endpoint may be
    unavailable for a while, so it is not.

    Raises:
        UserError: A package is missing, the trust store cannot be used, or the file does not
            contain a key set.
    """
    if settings.jwks_file is not None:
        check_keys(settings)
    _warn_of_risks(settings)
    return Jwks(
        _source(settings),
        threads,
        backoff_s=settings.jwks_endpoint_retry_backoff_ms / 1000,
        max_backoff_s=settings.jwks_endpoint_retry_backoff_max_ms / 1000,
    )


def check_keys(settings: OAuthBearerSettings) -> int:
    """Read the keys of a listener once, and return their number. May block.

    Raises:
        UserError: A package is missing, or the keys cannot be read.
    """
    source = _source(settings)
    try:
        return len(parse_key_set(source.read() or b"").keys)
    except InvalidKeySet as error:
        name = settings.name_of("jwks.endpoint.url")
        raise UserError(f"{name}={settings.jwks_endpoint_url} cannot be used: {error}.") from None


def _source(settings: OAuthBearerSettings) -> JwksSource:
    for package in ("cryptography", "jwt"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"OAUTHBEARER requires the package {package}. Install it with: "
                f"{install_extra('security')}"
            )
    if settings.jwks_file is not None:
        return JwksFile(settings.jwks_file)
    return JwksEndpoint(settings)


def _warn_of_risks(settings: OAuthBearerSettings) -> None:
    if settings.url.scheme == "http":
        logger.warning(
            "%s is not encrypted: an attacker in the network can replace the keys that verify "
            "tokens; use https",
            settings.name_of("jwks.endpoint.url"),
        )
    for claim, expected in (
        ("issuer", settings.expected_issuer),
        ("audience", settings.expected_audience),
    ):
        if not expected:
            logger.warning(
                "%s=true: tokens of every %s are accepted; set %s",
                settings.name_of(f"allow.unverified.{claim}"),
                claim,
                settings.name_of(f"expected.{claim}"),
            )
