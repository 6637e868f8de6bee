"""Connections from this broker to the other brokers of its cluster, and clients that pose as one.

There is one connection per broker ID. It is opened on first use, and again after it was lost or the
broker has registered a new endpoint.

Responses arrive in the order of the requests, so slow and urgent requests must not share a
connection: each purpose has its own `Peers`."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.ports import PeerEndpoints, PeerRecognition
from ottla.core.security.permissions import ACT_AS_BROKER, Permission
from ottla.net.connection import Connection
from ottla.wire.request import Request

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0


def peer_client_id(broker_id: int) -> str:
    """Return the client ID of a broker, for logs. It proves nothing, because any client can use it;
    `RequestContext.is_peer` tells brokers and clients apart."""
    return f"broker-{broker_id}"


def report_stranger(broker: PeerRecognition, context: RequestContext, attempt: str) -> None:
    """Log that a connection which is not a broker's was refused something.

    Args:
        broker: The broker that refused it.
        context: The request.
        attempt: What the client attempted, such as "to fetch as a follower".
    """
    context.may(ACT_AS_BROKER)  # for the audit log
    listener = broker.peer_rule.listener
    broker.client_log.log(
        logging.WARNING,
        f"Refused the attempt {attempt} by {context.principal} at {context.peer} on the listener "
        f"{context.listener}. If it is a broker, it must connect to the listener {listener}, with "
        "the principal of this broker or one of super.users",
    )


def check_manages_brokers(
    broker: PeerRecognition, context: RequestContext, permission: Permission
) -> None:
    """Check that a client may change users or brokers.

    Args:
        broker: The broker.
        context: The request.
        permission: The permission that the client needs. Without an authorizer, `PeerRule` decides.

    Raises:
        KafkaError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if context.access is None:
        broker.peer_rule.check_manages_brokers(context.principal)
    else:
        context.check(permission)


class Peers:
    """One connection to each other broker, for one purpose."""

    def __init__(self, broker: PeerEndpoints) -> None:
        self._broker = broker
        self._connections: dict[int, Connection] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def request(
        self,
        broker_id: int,
        request: Request[T],
        timeout_s: float,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> T:
        """Send a request to a broker and return the response.

        Raises:
            ClientError: The broker could not be reached or did not respond in time.
        """
        connection = await self._connected(broker_id)
        return await connection.request(
            request, timeout_s, min_version=min_version, max_version=max_version
        )

    async def _connected(self, broker_id: int) -> Connection:
        host, port = self._broker.peer_endpoint(broker_id)
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            known = self._connections.get(broker_id)
            if known is not None and known.is_open and known.name == f"{host}:{port}":
                return known
            self.disconnect(broker_id)
            connection = await Connection.open(
                host,
                port,
                client_id=peer_client_id(self._broker.node_id),
                timeout_s=CONNECT_TIMEOUT_S,
                tls=self._broker.peer_tls(),
                authenticate=self._broker.peer_authenticator(),
            )
            self._connections[broker_id] = connection
            return connection

    def disconnect(self, broker_id: int) -> None:
        """Close the connection to a broker. Requests in flight fail with ConnectionLost."""
        connection = self._connections.pop(broker_id, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for broker_id in list(self._connections):
            self.disconnect(broker_id)
