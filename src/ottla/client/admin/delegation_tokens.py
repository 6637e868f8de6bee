"""Delegation tokens: credentials of limited lifetime that act for their owner.

    CreateDelegationToken 1+, RenewDelegationToken 1+, ExpireDelegationToken 1+    to the controller
    DescribeDelegationToken 1+                                                     to any broker

A broker accepts these requests only from clients that are authenticated, and not with a token."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.principal import Principal
from ottla.client.admin.dispatch import raise_for
from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidConfig
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.describe_delegation_token import DescribedDelegationToken
    from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
    from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenResponse

OWNER_VERSION = 3
"""First version of CreateDelegationToken with an owner (KIP-373)."""


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token. Times are in milliseconds since 1970.

    The representation does not contain the HMAC, which is the token's password."""

    token_id: str
    """ID of the token, which is the user name for SCRAM."""
    hmac: bytes = field(repr=False)
    """The HMAC of the token."""
    owner: Principal
    """The principal that clients with the token act for."""
    requester: Principal
    """The principal that created the token."""
    renewers: tuple[Principal, ...]
    """Principals that may renew the token, besides its owner."""
    issue_timestamp_ms: int
    """Time at which the token was created."""
    expiry_timestamp_ms: int
    """Time at which the token expires unless it is renewed."""
    max_timestamp_ms: int
    """Time beyond which the token cannot be renewed."""

    @property
    def hmac_base64(self) -> str:
        """The HMAC in base64, which is the password for SCRAM."""
        return base64.b64encode(self.hmac).decode()


def parse_principal(text: Principal | str) -> Principal:
    """Parse a principal of the form `User:alice`.

    Raises:
        InvalidConfig: The text has another form.
    """
    if isinstance(text, Principal):
        return text
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidConfig(f"A principal has the form User:alice, unlike {text!r}.")
    return Principal(kind, name)


async def create_delegation_token(
    cluster: Cluster,
    owner: Principal | None,
    renewers: Iterable[Principal],
    max_lifetime_ms: int,
) -> DelegationToken:
    """Create a token."""
    request = rpc.create_delegation_token(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[{"principal_type": each.type, "principal_name": each.name} for each in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )

    async def ask() -> DelegationToken:
        version = 1 if owner is None else OWNER_VERSION
        found = await cluster.call_controller(request, min_version=version)
        raise_for(found.error_code, None)
        principal = Principal(found.principal_type, found.principal_name)
        requester = Principal(
            getattr(found, "token_requester_principal_type", "") or principal.type,
            getattr(found, "token_requester_principal_name", "") or principal.name,
        )
        return DelegationToken(
            token_id=found.token_id,
            hmac=bytes(found.hmac),
            owner=principal,
            requester=requester,
            renewers=tuple(renewers),
            issue_timestamp_ms=found.issue_timestamp_ms,
            expiry_timestamp_ms=found.expiry_timestamp_ms,
            max_timestamp_ms=found.max_timestamp_ms,
        )

    return await cluster.retrying(ask, what="creating a delegation token")


async def renew_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Renew a token and return its new time of expiry."""
    request = rpc.renew_delegation_token(hmac=hmac, renew_period_ms=period_ms)
    return await _changed(cluster, request, "renewing a delegation token")


async def expire_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Change the time at which a token expires and return it."""
    request = rpc.expire_delegation_token(hmac=hmac, expiry_time_period_ms=period_ms)
    return await _changed(cluster, request, "expiring a delegation token")


async def _changed(
    cluster: Cluster,
    request: Request[RenewDelegationTokenResponse] | Request[ExpireDelegationTokenResponse],
    what: str,
) -> int:
    async def ask() -> int:
        found: (
            RenewDelegationTokenResponse | ExpireDelegationTokenResponse
        ) = await cluster.call_controller(request)
        raise_for(found.error_code, None)
        return found.expiry_timestamp_ms

    return await cluster.retrying(ask, what=what)


async def describe_delegation_tokens(
    cluster: Cluster, owners: Iterable[Principal] | None
) -> list[DelegationToken]:
    """Return the tokens that the client may see."""
    request = rpc.describe_delegation_token(
        owners=None
        if owners is None
        else [{"principal_type": each.type, "principal_name": each.name} for each in owners]
    )

    async def ask() -> list[DelegationToken]:
        found = await cluster.call(request)
        raise_for(found.error_code, None)
        return [_described(each) for each in found.tokens]

    return await cluster.retrying(ask, what="describing delegation tokens")


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = Principal(token.principal_type, token.principal_name)
    return DelegationToken(
        token_id=token.token_id,
        hmac=bytes(token.hmac),
        owner=owner,
        requester=Principal(
            getattr(token, "token_requester_principal_type", "") or owner.type,
            getattr(token, "token_requester_principal_name", "") or owner.name,
        ),
        renewers=tuple(
            Principal(each.principal_type, each.principal_name) for each in token.renewers
        ),
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
    )
