"""CreateDelegationToken (key 38), versions 1–3 (KIP-48, KIP-373): a credential of limited lifetime.

Behaviours
- The token acts for the client's own principal or, from version 3, for another owner if the client
  has CREATE_TOKENS on that user; without an authorizer, if it is one of `super.users`.
- The controller decides; `core.controller.delegation_tokens` lists the error codes. The other
  brokers learn of the token at once, whatever else they do (`metadata.follower`).
- DELEGATION_TOKEN_AUTH_DISABLED if `delegation.token.secret.key` is not set.

Deviations
- In Kafka without an authorizer, every client may create tokens of other owners.
- Limits on tokens, renewers and names, which Kafka does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import Principal
from ottla.broker.context import RequestContext
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.ports import PeerRecognition
from ottla.core.controller.delegation_tokens import TokenRequest, check_may_use_tokens
from ottla.core.security.permissions import CREATE_TOKENS

if TYPE_CHECKING:
    from ottla.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponseDict,
    )

OWNER_VERSION = 3
NO_TIME = 0
"""Time in responses with an error. Kafka sends -1, which some clients cannot read as a date."""


def _may_create_for(broker: PeerRecognition, context: RequestContext, owner: Principal) -> bool:
    if context.access is None:
        return broker.peer_rule.is_super_user(context.principal)
    return context.may(CREATE_TOKENS, str(owner))


class TokenPorts(PeerRecognition, Protocol):
    """The parts of a broker that the handlers for delegation tokens use."""

    @property
    def delegation_tokens(self) -> DelegationTokens: ...


async def handle(
    broker: TokenPorts, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponseDict:
    requester = context.principal
    owner = requester
    if context.api_version >= OWNER_VERSION and request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response: CreateDelegationTokenResponseDict = {
        "error_code": ErrorCode.NONE,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp_ms": NO_TIME,
        "expiry_timestamp_ms": NO_TIME,
        "max_timestamp_ms": NO_TIME,
        "token_id": "",
        "hmac": b"",
    }
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    wanted = TokenRequest(requester, owner, renewers, request.max_lifetime_ms)
    tokens = broker.delegation_tokens
    try:
        check_may_use_tokens(requester)
        token = await tokens.create(
            wanted, acts_for_others=owner == requester or _may_create_for(broker, context, owner)
        )
    except KafkaError as error:
        response["error_code"] = error.code
        return response
    response["issue_timestamp_ms"] = token.issued_ms
    response["expiry_timestamp_ms"] = token.expires_ms
    response["max_timestamp_ms"] = token.max_ms
    response["token_id"] = token.token_id
    response["hmac"] = tokens.hmac_of(token.token_id)
    return response
