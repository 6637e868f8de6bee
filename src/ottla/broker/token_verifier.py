"""Verification of OAUTHBEARER tokens: the signature with an issuer's keys, then the claims."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from ottla.base.config.oauthbearer_settings import OAuthBearerSettings
from ottla.broker.jwks import Jwks, VerificationKey
from ottla.broker.ports import Threads
from ottla.core.security.jwt import (
    TokenFacts,
    TokenPolicy,
    TokenRejected,
    UnverifiedToken,
    check_claims,
    parse_token,
)

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm


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
        self._keys = keys
        self._policy = policy
        self._threads = threads
        self._now = now

    async def verify(self, text: str) -> TokenFacts:
        """Verify a token.

        Raises:
            TokenRejected: The token is not valid.
        """
        token = parse_token(text)
        candidates = await self._keys.candidates(token)
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
