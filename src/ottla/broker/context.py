"""Types of the handler interface: the request context and the possible responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ottla.base.acl import CLUSTER_NAME, AclResourceType
from ottla.base.errors import KafkaError
from ottla.broker.authorization import Access
from ottla.core.security.authorizer import OPERATIONS
from ottla.core.security.permissions import Permission
from ottla.core.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.broker.quotas import RequestCharge
    from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponseDict
    from ottla.wire.messages.sasl_handshake import SaslHandshakeResponseDict

Body: TypeAlias = dict[str, Any]
"""A response of any API, as the router and the connection see it. Handlers use the types in
`ottla.wire.messages`."""

BodyT = TypeVar("BodyT")

Response: TypeAlias = (
    BodyT | asyncio.Future[BodyT | None] | Coroutine[Any, Any, BodyT | None] | None
)
"""Return type of a handler, for the type of its response.

    dict        the response
    None        no response is sent (acks=0)
    Future      the response comes later (or None: no response is sent). The connection serves
                later requests meanwhile, and sends responses in the order of the requests. The
                future is cancelled when the connection is lost, so check `done()` before
                completing it.
    coroutine   runs as a task, and the connection serves no other request until it is done. It is
                not cancelled when the connection is lost, except for Fetch.

A handler that raises KafkaError closes the connection, and the broker logs the error; prefer an
error response where the API has one. Any other exception is a bug in the broker.

`records` views in a request are valid until the handler returns, or, for an `async def` handler,
until it is done. A plain function that returns a coroutine must copy what the coroutine needs."""

PortsT = TypeVar("PortsT")

Handler: TypeAlias = Callable[[PortsT, "RequestContext", Any], Response[Any]]
"""(parts of the broker, context, decoded request) -> response."""


class ClientAuthentication(Protocol):
    """The SASL dialogue of a connection, as handlers see it."""

    def handshake(self, version: int, mechanism: str) -> Response[SaslHandshakeResponseDict]:
        """Select a mechanism, and return the response to SaslHandshake."""

    def authenticate(self, token: bytes) -> Response[SaslAuthenticateResponseDict]:
        """Pass a token to the mechanism, and return the response to SaslAuthenticate."""


class ClientConnection(Protocol):
    """The connection of a client, as handlers see it."""

    @property
    def listener(self) -> str:
        """Name of the listener that accepted the connection."""

    @property
    def peer(self) -> str:
        """Host of the client."""

    @property
    def principal(self) -> Principal:
        """The authenticated client."""

    @property
    def access(self) -> Access | None:
        """Permissions of the client; None if the broker has no authorizer."""

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""

    @property
    def is_peer(self) -> bool:
        """Whether another broker of the cluster opened the connection."""

    @property
    def authentication(self) -> ClientAuthentication | None:
        """The SASL dialogue, or None if the client may not authenticate."""


@dataclass(slots=True)
class RequestContext:
    """The request header, and the connection that the request arrived on."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    """Name of the listener that accepted the connection."""
    peer: str
    """Host of the client."""
    connection: ClientConnection | None = None
    charge: RequestCharge | None = None
    """The cost of the request for the quotas of the client; None if no quota limits it."""

    @property
    def is_tls(self) -> bool:
        """Whether the response is encrypted before it is sent."""
        return self.connection is not None and self.connection.is_tls

    @property
    def is_peer(self) -> bool:
        """Whether another broker of the cluster sent the request."""
        return self.connection is not None and self.connection.is_peer

    @property
    def principal(self) -> Principal:
        """The authenticated client."""
        return ANONYMOUS if self.connection is None else self.connection.principal

    # ---------------------------------------------------------------------------- permissions

    @property
    def access(self) -> Access | None:
        """Permissions of the client; None if the broker has no authorizer."""
        return None if self.connection is None else self.connection.access

    def may(
        self, permission: Permission, name: str = CLUSTER_NAME, *, is_audited: bool = True
    ) -> bool:
        """Return whether the client has a permission.

        Args:
            permission: One of those that `core.security.permissions` lists for the API.
            name: Name of the resource; not needed for the cluster.
            is_audited: Whether the audit log shows a denial. False for a permission that is one of
                several that would suffice, except for the last of them.
        """
        access = self.access
        return access is None or access.may(self.api_key, permission, name, is_audited=is_audited)

    def check(self, permission: Permission, name: str = CLUSTER_NAME) -> None:
        """Check that the client has a permission.

        Raises:
            KafkaError: The error code of the permission.
        """
        if not self.may(permission, name):
            raise KafkaError(permission.error)

    def visible(self, permission: Permission, names: Iterable[str]) -> list[str]:
        """Return the resources that a listing shows, without a trace in the audit log.

        Args:
            permission: The permission that the client needs to see a resource.
            names: Names of the resources.
        """
        access = self.access
        return list(names) if access is None else access.filter(self.api_key, permission, names)

    def operations(self, type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on a resource, as bits."""
        access = self.access
        return _EVERY_OPERATION[type] if access is None else access.operations(type, name)


_EVERY_OPERATION = {
    type: sum(1 << each for each in operations) for type, operations in OPERATIONS.items()
}
"""Operations of clients of a broker without an authorizer, as bits."""
