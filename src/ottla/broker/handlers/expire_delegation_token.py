"""ExpireDelegationToken (key 40), versions 1–2 (KIP-48): an earlier or later end of a token.

The controller decides; `core.controller.delegation_tokens` lists the error codes.
DELEGATION_TOKEN_AUTH_DISABLED if `delegation.token.secret.key` is not set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.core.controller.delegation_tokens import check_may_use_tokens

if TYPE_CHECKING:
    from ottla.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponseDict,
    )


class TokenPorts(Protocol):
    """The part of a broker that this handler uses."""

    @property
    def delegation_tokens(self) -> DelegationTokens: ...


async def handle(
    broker: TokenPorts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponseDict:
    try:
        check_may_use_tokens(context.principal)
        expires_ms = await broker.delegation_tokens.expire(
            bytes(request.hmac), context.principal, request.expiry_time_period_ms
        )
    except KafkaError as error:
        return {"error_code": error.code, "expiry_timestamp_ms": 0}
    return {"error_code": ErrorCode.NONE, "expiry_timestamp_ms": expires_ms}
