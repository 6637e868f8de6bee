"""Delegation tokens of a broker: how they are changed, found by their HMAC, and used to log in.

The metadata has the tokens without their HMACs (`ottla.base.delegation_token`), which every broker
computes with `delegation.token.secret.key`. To a client, the HMAC is a password for SCRAM. The
SCRAM credential is derived when a client logs in with the token for the first time, in a thread,
and kept until the token is removed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ottla.base.delegation_token import DelegationToken, token_hmac, token_password
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Create, Delete, Op, Replace
from ottla.base.principal import Principal
from ottla.base.scram import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    derive_credential,
    salt_password,
)
from ottla.base.types import format_uuid, new_uuid
from ottla.broker.ports import Configuration, Metadata, Threads, TimeSource
from ottla.core.controller.delegation_tokens import (
    TokenLimits,
    TokenRequest,
    decide_create,
    decide_expire,
    decide_renew,
    tokens_to_remove,
)
from ottla.core.security.scram import SALT_BYTES, TokenCredential
from ottla.metadata import tree

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AccessChanges(Protocol):
    """The controller's changes of who may use the cluster."""

    async def change_access(self, decide: Callable[[], tuple[T, Sequence[Op]]]) -> T:
        """Decide and commit one change, after those before. Raises KafkaError."""


class TokenPorts(Configuration, Metadata, Threads, TimeSource, Protocol):
    """The parts of a broker that delegation tokens use."""

    @property
    def controller(self) -> AccessChanges: ...


class DelegationTokens:
    """The delegation tokens, as one broker sees them."""

    def __init__(
        self, broker: TokenPorts, *, new_id: Callable[[], str] = lambda: format_uuid(new_uuid())
    ) -> None:
        """Create the component.

        Args:
            broker: The broker it runs in.
            new_id: Returns the ID of a new token.
        """
        self._broker = broker
        self._new_id = new_id
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        """IDs by HMAC: the reverse of `_hmacs`."""
        self._credentials: dict[tuple[ScramMechanism, str], asyncio.Future[ScramCredential]] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether this broker has the secret."""
        return bool(self._broker.config.delegation_token_secret_key)

    def check_enabled(self) -> None:
        """Raise KafkaError (DELEGATION_TOKEN_AUTH_DISABLED) if this broker has no secret."""
        if not self.is_enabled:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        found = self._hmacs.get(token_id)
        if found is None:
            found = token_hmac(self._broker.config.delegation_token_secret_key or "", token_id)
            self._hmacs[token_id] = found
            self._ids[found] = token_id
        return found

    def find(self, hmac: bytes) -> DelegationToken | None:
        """Return the token with an HMAC, or None."""
        tokens = self._broker.image.tokens
        self._forget_removed()
        for token_id in tokens.keys() - self._hmacs.keys():
            self.hmac_of(token_id)
        return tokens.get(self._ids.get(hmac, ""))

    # ---------------------------------------------------------------------------------- changes

    async def create(self, request: TokenRequest, *, acts_for_others: bool) -> DelegationToken:
        """Create a token. Raises KafkaError."""

        def decide() -> tuple[DelegationToken, list[Op]]:
            token = decide_create(
                request,
                self._limits,
                token_id=self._new_id(),
                token_count=len(self._broker.image.tokens),
                acts_for_others=acts_for_others,
                now_ms=self._broker.clock.time_ms(),
            )
            return token, [Create(tree.token_path(token.token_id), tree.encode_token(token))]

        self.check_enabled()
        token = await self._broker.controller.change_access(decide)
        logger.info("created delegation token %s for %s", token.token_id, token.owner)
        return token

    async def renew(self, hmac: bytes, requester: Principal, period_ms: int) -> int:
        """Renew a token and return the time when it expires. Raises KafkaError."""

        def decide() -> tuple[int, list[Op]]:
            now_ms = self._broker.clock.time_ms()
            token = decide_renew(self.find(hmac), requester, period_ms, self._limits, now_ms)
            return token.expires_ms, _replacement(token)

        self.check_enabled()
        return await self._broker.controller.change_access(decide)

    async def expire(self, hmac: bytes, requester: Principal, period_ms: int) -> int:
        """Change the time when a token expires, and return it. Raises KafkaError."""

        def decide() -> tuple[int, list[Op]]:
            now_ms, before = self._broker.clock.time_ms(), self.find(hmac)
            token = decide_expire(before, requester, period_ms, now_ms)
            if token is not None:
                return token.expires_ms, _replacement(token)
            assert before is not None
            return now_ms, [Delete(tree.token_path(before.token_id))]

        self.check_enabled()
        return await self._broker.controller.change_access(decide)

    async def remove_expired(self) -> None:
        """Remove expired tokens, if this broker is the controller."""

        def decide() -> tuple[int, list[Op]]:
            now_ms = self._broker.clock.time_ms()
            removed = tokens_to_remove(self._broker.image.tokens.values(), now_ms)
            return len(removed), [Delete(tree.token_path(each.token_id)) for each in removed]

        try:
            while count := await self._broker.controller.change_access(decide):
                logger.info("removed %d expired delegation tokens", count)
        except KafkaError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                raise

    @property
    def _limits(self) -> TokenLimits:
        config = self._broker.config
        return TokenLimits(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )

    # ------------------------------------------------------------------------------------ logins

    async def token_credential(
        self, mechanism: ScramMechanism, token_id: str
    ) -> TokenCredential | None:
        """Return the SCRAM credential of a token, or None if there is no valid one."""
        token = self._broker.image.tokens.get(token_id)
        if token is None or not self.is_enabled or token.is_expired(self._broker.clock.time_ms()):
            return None
        credential = await self._credential(mechanism, token_id)
        expires_at = min(token.expires_ms, token.max_ms) / 1000
        return TokenCredential(credential, token.owner, expires_at)

    async def _credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        found = self._credentials.get((mechanism, token_id))
        if found is None:
            self._forget_removed()
            found = asyncio.ensure_future(self._derive(mechanism, self.hmac_of(token_id)))
            self._credentials[mechanism, token_id] = found
        try:
            # Clients that log in at the same time share the computation.
            return await asyncio.shield(found)
        except BaseException:
            if found.done():
                self._credentials.pop((mechanism, token_id), None)
            raise

    async def _derive(self, mechanism: ScramMechanism, secret: bytes) -> ScramCredential:
        salt = hmac.digest(secret, mechanism.sasl_name.encode(), "sha512")[:SALT_BYTES]
        password = token_password(secret)
        salted = await self._broker.run_blocking(
            lambda: salt_password(mechanism, password, salt, MIN_ITERATIONS)
        )
        return derive_credential(mechanism, salted, salt, MIN_ITERATIONS)

    def _forget_removed(self) -> None:
        tokens = self._broker.image.tokens
        if len(self._hmacs) > len(tokens):
            self._hmacs = {id: value for id, value in self._hmacs.items() if id in tokens}
            self._ids = {value: id for id, value in self._hmacs.items()}
        if len(self._credentials) > len(ScramMechanism) * len(tokens):
            self._credentials = {
                key: value for key, value in self._credentials.items() if key[1] in tokens
            }


def _replacement(token: DelegationToken) -> list[Op]:
    return [Replace(tree.token_path(token.token_id), tree.encode_token(token))]
