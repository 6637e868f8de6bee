"""Short questions to other brokers: one connection to each, opened when it is needed.

For requests between coordinators and leaders of partitions. Requests that may take long (fetches
of followers, what is forwarded to the controller) have connections of their own: a broker answers
the requests of a connection one after another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.net.connection import Connection

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0


class Peers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[int, Connection] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def request(
        self, broker_id: int, api: int, body: dict[str, Any], *, min_version: int
    ) -> Any:
        """The answer. Raises ClientError."""
        connection = await self._connected(broker_id)
        return await connection.request(api, body, ANSWER_TIMEOUT_S, min_version=min_version)

    async def _connected(self, broker_id: int) -> Connection:
        address = self._broker.peer_endpoint(broker_id)
        async with self._locks.setdefault(broker_id, asyncio.Lock()):
            known = self._connections.get(broker_id)
            # A broker may come back elsewhere.
            if known is not None and known.is_open and known.name == f"{address[0]}:{address[1]}":
                return known
            if known is not None:
                known.close()
            client_id = f"broker-{self._broker.node_id}"
            opened = await Connection.open(
                *address, client_id=client_id, timeout_s=CONNECT_TIMEOUT_S
            )
            self._connections[broker_id] = opened
            return opened

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
