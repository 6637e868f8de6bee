"""ExpireDelegationToken (key 40), versions 1–2 (KIP-48): an earlier or later end of a token.

The controller decides; `core.controller.delegation_tokens` lists the error codes.
One of `super.users` may end every token, because a user who is removed may have tokens.
DELEGATION_TOKEN_AUTH_DISABLED if `delegation.token.secret.key` is not set.

Deviation: in Kafka, only the owner and the renewers may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.handlers.create_delegation_token import TokenPorts
from ottla.core.controller.delegation_tokens import check_may_use_tokens

if TYPE_CHECKING:
    from ottla.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponseDict,
    )


async def handle(
    broker: TokenPorts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponseDict:
    try:
        check_may_use_tokens(context.principal)
        expires_ms = await broker.delegation_tokens.expire(
            bytes(request.hmac),
            context.principal,
            request.expiry_time_period_ms,
            acts_for_others=broker.peer_rule.is_super_user(context.principal),
        )
    except KafkaError as error:
        return {"error_code": error.code, "expiry_timestamp_ms": 0}
    return {"error_code": ErrorCode.NONE, "expiry_timestamp_ms": expires_ms}
