"""Verification of OAUTHBEARER tokens: the signature with an issuer's keys, then the claims."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

from ottla.base.config.oauthbearer_settings import OAuthBearerSettings
from ottla.base.errors import UserError
from ottla.broker.jwks import Jwks, VerificationKey, open_jwks
from ottla.broker.ports import Threads
from ottla.core.security.jwt import (
    TokenFacts,
    TokenPolicy,
    TokenRejected,
    UnverifiedToken,
    check_claims,
    parse_token,
)
from ottla.core.security.oauthbearer import InitialResponse, OAuthBearerExchange
from ottla.core.security.sasl import Rejected, Step

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

logger = logging.getLogger(__name__)


def token_policy(settings: OAuthBearerSettings) -> TokenPolicy:
    """Return the properties of a listener that decide which tokens it accepts."""
    return TokenPolicy(
        issuer=settings.expected_issuer,
        audiences=frozenset(settings.expected_audience),
        clock_skew_s=settings.clock_skew_seconds,
        scope_claim=settings.scope_claim_name,
        subject_claim=settings.sub_claim_name,
    )


class TokenVerifier:
    """The verification of the tokens of one listener."""

    def __init__(
        self,
        keys: Jwks,
        policy: TokenPolicy,
        threads: Threads,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create a verifier.

        Args:
            keys: The issuer's keys.
            policy: The properties of the listener.
            threads: Threads for slow signature algorithms.
            now: Source of the time in seconds since 1970.
        """
        self.keys = keys
        self._policy = policy
        self._threads = threads
        self._now = now

    async def verify(self, text: str) -> TokenFacts:
        """Verify a token.

        Raises:
            TokenRejected: The token is not valid.
        """
        token = parse_token(text)
        candidates = await self.keys.candidates(token)
        if not candidates:
            raise TokenRejected("no key of the issuer fits the token")
        for key in candidates:
            if await self._is_signed(token, key):
                return check_claims(token.claims, self._policy, self._now())
        raise TokenRejected("the signature is wrong")

    async def _is_signed(self, token: UnverifiedToken, key: VerificationKey) -> bool:
        verification = partial(signature_is_valid, token, key)
        if key.is_slow(token.algorithm):
            return await self._threads.run_blocking(verification)
        # Other algorithms take 30 to 100 µs, less than the way to a thread and back.
        return verification()


def signature_is_valid(token: UnverifiedToken, key: VerificationKey) -> bool:
    """Return whether a key has signed a token."""
    try:
        return _algorithms()[token.algorithm].verify(token.signed, key.key, token.signature)
    except (ValueError, TypeError):
        return False


@cache
def _algorithms() -> dict[str, Algorithm]:
    from jwt.algorithms import get_default_algorithms

    return get_default_algorithms()


class OAuthBearerMechanism:
    """The mechanism OAUTHBEARER of a listener."""

    may_wait = True

    def __init__(self, verify: Callable[[str], Awaitable[TokenFacts]]) -> None:
        """Create the mechanism.

        Args:
            verify: Verifies a token, or raises TokenRejected.
        """
        self._verify = verify

    def start(self) -> _Exchange:
        return _Exchange(self._verify)


class _Exchange:
    def __init__(self, verify: Callable[[str], Awaitable[TokenFacts]]) -> None:
        self._verify = verify
        self._exchange = OAuthBearerExchange()

    def step(self, message: bytes) -> Step | Awaitable[Step]:
        response = self._exchange.begin(message)
        return response if isinstance(response, Rejected) else self._verified(response)

    async def _verified(self, response: InitialResponse) -> Step:
        try:
            facts = await self._verify(response.token)
        except TokenRejected as error:
            return self._exchange.reject(str(error))
        return self._exchange.accept(response, facts)


class TokenVerifiers:
    """The verifiers of a broker's listeners, by their settings."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._verifiers: dict[OAuthBearerSettings, asyncio.Task[TokenVerifier]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_started = False

    async def start(self, wanted: Iterable[OAuthBearerSettings]) -> None:
        """Read the keys of all listeners.

        Raises:
            UserError: A file or a package cannot be used.
        """
        settings = set(wanted)
        self.use(settings)
        await asyncio.gather(*(self._verifiers[each] for each in settings))
        self._is_started = True

    def use(self, wanted: Iterable[OAuthBearerSettings]) -> None:
        """Read the keys of changed settings in the background, and drop unused ones."""
        settings = set(wanted)
        for each in settings - self._verifiers.keys():
            task = asyncio.create_task(self._open(each), name="jwks-open")
            task.add_done_callback(self._opened)
            self._verifiers[each] = task
        for each in self._verifiers.keys() - settings:
            closing = asyncio.create_task(_close(self._verifiers.pop(each)), name="jwks-close")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop reading keys."""
        self.use(())
        await asyncio.gather(*self._closing)

    def mechanism(self, settings: OAuthBearerSettings) -> OAuthBearerMechanism:
        """Return the mechanism of a listener."""
        return OAuthBearerMechanism(partial(self._verify, settings))

    async def _verify(self, settings: OAuthBearerSettings, token: str) -> TokenFacts:
        opening = self._verifiers.get(settings)
        if opening is None:
            raise TokenRejected("the settings of the listener have changed")
        try:
            verifier = await asyncio.shield(opening)
        except UserError as error:
            raise TokenRejected(str(error)) from None
        return await verifier.verify(token)

    async def _open(self, settings: OAuthBearerSettings) -> TokenVerifier:
        threads = self._threads
        keys = await threads.run_blocking(lambda: open_jwks(settings, threads))
        await keys.start()
        return TokenVerifier(keys, token_policy(settings), threads)

    def _opened(self, task: asyncio.Task[TokenVerifier]) -> None:
        # Before, `start` raises the error.
        if self._is_started and not task.cancelled() and (error := task.exception()) is not None:
            logger.error("cannot verify OAUTHBEARER tokens: %s", error)


async def _close(opening: asyncio.Task[TokenVerifier]) -> None:
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().keys.close()
