"""DescribeDelegationToken (key 41), versions 1–3 (KIP-48, KIP-373): tokens with their HMACs.

Behaviours
- A client sees the tokens that it owns or may renew. With an authorizer, it also sees tokens on
  which it has DESCRIBE, and those of owners on which it has DESCRIBE_TOKENS; without one,
  `super.users` see all.
- No list of owners describes the tokens of all owners and renewers, an empty list none.
- Any broker answers, from its own image. Expired tokens are not described.
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for anonymous clients and for clients that logged in with a
  token, DELEGATION_TOKEN_AUTH_DISABLED if `delegation.token.secret.key` is not set.

Deviations
- In Kafka without an authorizer, every client sees all tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import Principal
from ottla.broker.context import RequestContext
from ottla.broker.handlers.create_delegation_token import TokenPorts
from ottla.broker.ports import Metadata, TimeSource
from ottla.core.controller.delegation_tokens import check_may_use_tokens, visible_tokens
from ottla.core.security.permissions import DESCRIBE_TOKEN, DESCRIBE_TOKENS

if TYPE_CHECKING:
    from ottla.wire.messages.describe_delegation_token import (
        DescribedDelegationTokenDict,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponseDict,
    )


class Ports(TokenPorts, Metadata, TimeSource, Protocol):
    """The parts of a broker that this handler uses."""


def handle(
    broker: Ports, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponseDict:
    try:
        check_may_use_tokens(context.principal)
        broker.delegation_tokens.check_enabled()
    except KafkaError as error:
        return {"error_code": error.code, "tokens": []}
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
    now_ms = broker.clock.time_ms()
    found = visible_tokens(
        (each for each in broker.image.tokens.values() if not each.is_expired(now_ms)),
        context.principal,
        owners,
        sees_others=partial(_sees, broker, context),
    )
    hmac_of = broker.delegation_tokens.hmac_of
    return {
        "error_code": ErrorCode.NONE,
        "tokens": [_described(each, hmac_of(each.token_id)) for each in found],
    }


def _sees(broker: Ports, context: RequestContext, token: DelegationToken) -> bool:
    """Return whether a client may see a token of somebody else."""
    if context.access is None:
        return broker.peer_rule.is_super_user(context.principal)
    return context.may(DESCRIBE_TOKEN, token.token_id, is_audited=False) or context.may(
        DESCRIBE_TOKENS, str(token.owner), is_audited=False
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationTokenDict:
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": hmac,
        "renewers": [
            {"principal_type": each.type, "principal_name": each.name} for each in token.renewers
        ],
    }
