"""Server with handlers under the test's control, and raw clients that send exact bytes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import uvloop

from ottla.base.ports import Piece
from ottla.broker.context import Body, Handler, RequestContext, Response
from ottla.broker.router import Router
from ottla.broker.server import Listener, Server, ServerConfig
from ottla.wire import codec

PRODUCE, FETCH, METADATA, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 0, 1, 3, 11, 12, 13, 14
VERSIONS = {
    PRODUCE: 9,
    FETCH: 4,
    METADATA: 9,
    JOIN_GROUP: 7,
    HEARTBEAT: 4,
    LEAVE_GROUP: 4,
    SYNC_GROUP: 5,
}
LISTENER = Listener("PLAINTEXT", "127.0.0.1", 0)
PATIENCE_S = 20
"""Timeout for events that must happen, in seconds. A passing test never waits this long."""


class Service:
    """Request handlers with a different way of responding for each API.

    Heartbeat responds at once, Metadata with about 1,000 bytes, LeaveGroup when the test completes
    its future, SyncGroup from a coroutine. JoinGroup raises. Produce keeps its records. Fetch
    responds with `fetch_bytes` bytes or with the result of `fetch_records`; with `parks_fetches`,
    it is delayed first."""

    def __init__(self) -> None:
        self.served: list[tuple[int, int]] = []
        """Pairs of API key and correlation ID, in the order in which the handlers were called."""
        self.parked: list[asyncio.Future[Body | None]] = []
        self.records: list[bytes] = []
        self.may_finish = asyncio.Event()
        self.finished: list[int] = []
        self.cancelled: list[int] = []
        self.fetch_bytes = 0
        self.fetch_records: Callable[[], Piece] | None = None
        self.parks_fetches = False

    def handlers(self) -> dict[int, Handler]:
        return {
            PRODUCE: self.produce,
            FETCH: self.fetch,
            METADATA: self.metadata,
            JOIN_GROUP: self.join_group,
            HEARTBEAT: self.heartbeat,
            LEAVE_GROUP: self.leave_group,
            SYNC_GROUP: self.sync_group,
        }

    def produce(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        for topic in request.topic_data:
            for partition in topic.partition_data:
                self.records.append(bytes(partition.records))
        return {"responses": []} if request.acks else None

    def fetch(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        if self.parks_fetches:
            return self._park()
        return self.fetched()

    def fetched(self) -> Body:
        made = self.fetch_records() if self.fetch_records else bytes(self.fetch_bytes)
        partitions = [{"partition_index": 0, "records": made}]
        return {"responses": [{"topic": "t", "partitions": partitions}]}

    def metadata(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        return {"cluster_id": "c" * 1_000}

    def join_group(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        raise RuntimeError("the handler has a fault")

    def heartbeat(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        return {}

    def leave_group(self, broker: Any, context: RequestContext, request: Any) -> Response:
        self._note(context)
        return self._park()

    async def sync_group(self, broker: Any, context: RequestContext, request: Any) -> Body:
        self._note(context)
        try:
            await self.may_finish.wait()
        except asyncio.CancelledError:
            self.cancelled.append(context.correlation_id)
            raise
        self.records += [bytes(each.assignment) for each in request.assignments]
        self.finished.append(context.correlation_id)
        return {}

    def ids(self) -> list[int]:
        return [correlation_id for _, correlation_id in self.served]

    def _park(self) -> asyncio.Future[Body | None]:
        future: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
        self.parked.append(future)
        return future

    def _note(self, context: RequestContext) -> None:
        self.served.append((context.api_key, context.correlation_id))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """Return the correlation ID and the remaining bytes of the next response."""
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            frame = await self.reader.readexactly(size)
        return struct.unpack(">i", frame[:4])[0], frame[4:]

    async def receive_ids(self, count: int) -> list[int]:
        return [(await self.receive())[0] for _ in range(count)]

    async def rest(self) -> bytes:
        """Return the bytes that arrive before the server closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


def frame_of(
    api_key: int, correlation_id: int, body: Body | None = None, version: int | None = None
) -> bytes:
    version = VERSIONS[api_key] if version is None else version
    pieces = codec.encode_request(api_key, version, correlation_id, "test", body or {})
    return b"".join(bytes(piece) for piece in pieces)


def produce_frame(correlation_id: int, records: bytes, acks: int = 1) -> bytes:
    partitions = [{"index": 0, "records": records}]
    body = {"acks": acks, "topic_data": [{"name": "t", "partition_data": partitions}]}
    return frame_of(PRODUCE, correlation_id, body)


def sync_frame(correlation_id: int, assignment: bytes) -> bytes:
    body = {"assignments": [{"member_id": "m", "assignment": assignment}]}
    return frame_of(SYNC_GROUP, correlation_id, body)


def config(**changes: Any) -> ServerConfig:
    return replace(ServerConfig((LISTENER,)), **changes)


@asynccontextmanager
async def running(
    settings: ServerConfig | None = None, monotonic: Callable[[], float] | None = None
) -> AsyncIterator[tuple[Server, Service, int]]:
    """Run a server and yield it with its handlers and its port."""
    service = Service()
    clock = {} if monotonic is None else {"monotonic": monotonic}
    server = Server(None, Router(service.handlers()), settings or config(), **clock)
    await server.start()
    try:
        yield server, service, server.ports["PLAINTEXT"]
    finally:
        await server.stop(0)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the timeout bounds the loop
            await asyncio.sleep(0)


async def settled(client: Client, correlation_id: int = 9999) -> None:
    """Wait until the server has seen everything that other clients sent before this call."""
    await client.send(frame_of(HEARTBEAT, correlation_id))
    assert (await client.receive())[0] == correlation_id


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine function on uvloop."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))

    return run


def on_both_loops(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on uvloop and again on asyncio's own loop, for platforms without uvloop."""

    @wraps(test)
    def run() -> None:
        uvloop.run(test())
        asyncio.run(test())

    return run
