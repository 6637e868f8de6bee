"""Decisions about delegation tokens (KIP-48, KIP-373).

| condition | error |
|---|---|
| the client is anonymous, or logged in with a token | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| a renewer is not a user | INVALID_PRINCIPAL_TYPE |
| the requester may not act for the owner | DELEGATION_TOKEN_AUTHORIZATION_FAILED |
| no token has the HMAC | DELEGATION_TOKEN_NOT_FOUND |
| the requester is not the owner, a renewer, or a super user that ends it | …_OWNER_MISMATCH |
| the token has expired | DELEGATION_TOKEN_EXPIRED |
| there are too many tokens or renewers, or their names are too long | POLICY_VIOLATION |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ottla.base.delegation_token import DelegationToken
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import ANONYMOUS, USER, Principal

MAX_TOKENS = 10_000
MAX_TOKENS_OF_REQUESTER = 1_000
MAX_RENEWERS = 100
MAX_NAME_BYTES = 512
MAX_NAMES_BYTES = 4096
"""Limits that Kafka does not have. They bound the memory of brokers and the size of a node, and one
client cannot use up all tokens."""
MAX_REMOVALS = 500
"""Tokens that one sweep removes. They are one transaction, whose size is limited by ZooKeeper."""
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The properties of a broker that limit the lifetime of tokens."""

    max_lifetime_ms: int
    """`delegation.token.max.lifetime.ms`."""
    expiry_ms: int
    """`delegation.token.expiry.time.ms`."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request to create a token."""

    requester: Principal
    owner: Principal
    renewers: Sequence[Principal]
    max_lifetime_ms: int
    """Lifetime that the client asks for; the broker's limit applies if it is not positive."""


def check_may_use_tokens(principal: Principal) -> None:
    """Check that a client may manage tokens. A token must not be a way to more tokens.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if principal == ANONYMOUS or principal.is_token_authenticated:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation tokens can be managed only by clients that authenticate with SASL or a "
            "certificate, and not with a delegation token.",
        )


def check_has_no_token(principal: Principal) -> None:
    """Check that a client did not log in with a delegation token.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if principal.is_token_authenticated:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Clients that log in with a delegation token may not manage users.",
        )


def decide_create(
    request: TokenRequest,
    limits: TokenLimits,
    *,
    token_id: str,
    token_count: int,
    own_count: int,
    acts_for_others: bool,
    now_ms: int,
) -> DelegationToken:
    """Return the token to create.

    Args:
        request: The request.
        limits: The lifetime of tokens.
        token_id: ID of the new token.
        token_count: Number of tokens in the cluster.
        own_count: Number of those that the same principal has requested.
        acts_for_others: Whether the requester may create tokens of other owners.
        now_ms: Time in milliseconds since 1970.

    Raises:
        KafkaError: The request is not acceptable.
    """
    if request.owner != request.requester and not acts_for_others:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            f"{request.requester} may not create tokens for {request.owner}.",
        )
    if any(each.type != USER for each in request.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"Renewers must be of type {USER}.")
    _check_size(request, token_count, own_count)
    max_ms = _sum(now_ms, _shorter(limits.max_lifetime_ms, request.max_lifetime_ms))
    return DelegationToken(
        token_id=token_id,
        owner=_plain(request.owner),
        requester=_plain(request.requester),
        renewers=tuple(dict.fromkeys(map(_plain, request.renewers))),
        issued_ms=now_ms,
        expires_ms=min(max_ms, _sum(now_ms, limits.expiry_ms)),
        max_ms=max_ms,
    )


def decide_renew(
    token: DelegationToken | None,
    requester: Principal,
    period_ms: int,
    limits: TokenLimits,
    now_ms: int,
) -> DelegationToken:
    """Return a token with its new time of expiry.

    Args:
        token: The token, or None if there is none with the HMAC in the request.
        requester: The principal that sent the request.
        period_ms: New time to live; the broker's default applies if it is not positive.
        limits: The lifetime of tokens.
        now_ms: Time in milliseconds since 1970.

    Raises:
        KafkaError: The token cannot be renewed.
    """
    token = _existing(token)
    _check_not_expired(token, now_ms)
    _check_belongs(token, requester)
    expires_ms = _sum(now_ms, _shorter(limits.expiry_ms, period_ms))
    return replace(token, expires_ms=min(token.max_ms, expires_ms))


def decide_expire(
    token: DelegationToken | None,
    requester: Principal,
    period_ms: int,
    *,
    acts_for_others: bool,
    now_ms: int,
) -> DelegationToken | None:
    """Return a token with its new time of expiry, or None if it expires now and is removed.

    Args:
        token: The token, or None if there is none with the HMAC in the request.
        requester: The principal that sent the request.
        period_ms: New time to live; if it is negative, the token expires now.
        acts_for_others: Whether the requester may end tokens of other owners.
        now_ms: Time in milliseconds since 1970.

    Raises:
        KafkaError: The token cannot be changed.
    """
    token = _existing(token)
    if period_ms >= 0 or not acts_for_others:
        _check_belongs(token, requester)
    if period_ms < 0:
        return None
    _check_not_expired(token, now_ms)
    return replace(token, expires_ms=min(token.max_ms, _sum(now_ms, period_ms)))


def visible_tokens(
    tokens: Iterable[DelegationToken],
    requester: Principal,
    owners: Collection[Principal] | None,
    *,
    sees_others: Callable[[DelegationToken], bool],
) -> list[DelegationToken]:
    """Return the tokens that a client may see, by ID.

    Args:
        tokens: All tokens.
        requester: The principal that sent the request.
        owners: Owners or renewers of the tokens to return; None for everybody's.
        sees_others: Returns whether the requester may see a token of somebody else.
    """
    found = [
        each
        for each in tokens
        if (owners is None or any(map(each.belongs_to, owners)))
        and (each.belongs_to(requester) or sees_others(each))
    ]
    return sorted(found, key=lambda each: each.token_id)


def tokens_to_remove(tokens: Iterable[DelegationToken], now_ms: int) -> list[DelegationToken]:
    """Return expired tokens, up to the number that one transaction may remove."""
    return [each for each in tokens if each.is_expired(now_ms)][:MAX_REMOVALS]


def _check_size(request: TokenRequest, token_count: int, own_count: int) -> None:
    principals = (request.owner, request.requester, *request.renewers)
    sizes = [len(each.name.encode()) for each in principals]
    if token_count >= MAX_TOKENS:
        problem = f"The cluster has {MAX_TOKENS} delegation tokens."
    elif own_count >= MAX_TOKENS_OF_REQUESTER:
        problem = f"{request.requester} has requested {MAX_TOKENS_OF_REQUESTER} delegation tokens."
    elif len(request.renewers) > MAX_RENEWERS:
        problem = f"A token can have at most {MAX_RENEWERS} renewers."
    elif max(sizes) > MAX_NAME_BYTES:
        problem = f"The name of a principal must not exceed {MAX_NAME_BYTES} bytes."
    elif sum(sizes) > MAX_NAMES_BYTES:
        problem = f"The names of the principals must not exceed {MAX_NAMES_BYTES} bytes together."
    else:
        return
    raise KafkaError(ErrorCode.POLICY_VIOLATION, problem)


def _existing(token: DelegationToken | None) -> DelegationToken:
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_belongs(token: DelegationToken, requester: Principal) -> None:
    if not token.belongs_to(requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _shorter(limit_ms: int, requested_ms: int) -> int:
    return min(limit_ms, requested_ms) if requested_ms > 0 else limit_ms


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _LONG_MAX)


def _plain(principal: Principal) -> Principal:
    return Principal(principal.type, principal.name)
