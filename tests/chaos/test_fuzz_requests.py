"""Random and mutated requests of every API and version, handled by a real broker.

The broker runs in a temporary directory. Its connections use in-memory transports instead of
sockets, so that a hundred thousand inputs take seconds. To fuzz another server, change `serving`.

The following must hold for every input:
- no exception reaches the event loop, and no handler raises (except to close after acks=0);
- the connection has responded, is closed, or waits for the rest of a frame or a delayed response;
- memory reserved for requests is released, and the process does not grow."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.base.config.broker import BrokerConfig
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.broker.connection import Connection
from ottla.broker.server import Server
from ottla.storage.file import OsFileSystem
from ottla.wire import codec, schema
from ottla.wire.records.crc import crc32c
from ottla.wire.schema import MessageField, Struct

TOPICS = ("orders", "payments")
CLOSED_BY_HANDLERS = {"a produce request with acks=0 failed"}
"""Reasons for which a handler may close the connection instead of responding."""
GROWTH_BYTES = 300 * 1024 * 1024
LOOK_EVERY = 250
"""Number of inputs between two checks, which recreate deleted topics and measure memory."""


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Server]:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "log.segment.bytes": "1048576",
        "queued.max.request.bytes": str(128 * 1024 * 1024),
    }
    broker = Broker(BrokerConfig(properties), OsFileSystem(1_000), SystemClock())
    await broker.start()
    try:
        yield broker.server
    finally:
        await broker.stop()


# ------------------------------------------------------------------------------------ transport


class Transport:
    """In-memory transport that discards what a connection writes and closes asynchronously."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.written = 0
        self.is_reading = True
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 50_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.written += sum(map(len, pieces))

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.is_reading = False
            assert self.connection is not None
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


class Peer:
    def __init__(self, server: Server) -> None:
        self.transport = Transport()
        self.connection = Connection(server, "PLAINTEXT")
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.is_in_step = True
        """Whether the connection reads the next input as a new frame, not as the rest of one."""

    @property
    def is_usable(self) -> bool:
        return self.transport.is_reading and not self.transport.is_closed

    async def send(self, data: bytes) -> None:
        while data and self.is_usable:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room
            self.connection.buffer_updated(count)
            data = data[count:]
            if not self.is_usable:
                await self._wait()

    async def _wait(self) -> None:
        """Give a request time to finish, but do not wait for one that is delayed for longer."""
        for pause in (0, 0, 0, 0.001, 0.01, 0.1, 1):
            await asyncio.sleep(pause)
            if self.transport.is_reading or self.transport.is_closed:
                return


# --------------------------------------------------------------------------------------- inputs


class Generator:
    def __init__(self, seed: int, apis: list[tuple[int, int, int]]) -> None:
        self.rng = random.Random(seed)
        self.versions = [(key, version) for key, _, _ in apis for version in schema.versions(key)]
        self.count = 0
        self.is_whole = True
        """Whether the last input was exactly one frame, so that the next input begins a new one."""
        self.mutations: list[Callable[[bytearray], bytearray]] = [
            self.flip_bits,
            self.cut_short,
            self.overwrite_with_extremes,
            self.overwrite_with_noise,
            self.insert_noise,
            self.repeat_a_part,
        ]

    def next(self) -> bytes:
        rng = self.rng
        self.count += 1
        kind = rng.random()
        self.is_whole = kind >= 0.02
        if not self.is_whole:
            return rng.randbytes(rng.choice([1, 4, 13, 200, 5_000]))
        key, version = self.versions[self.count % len(self.versions)]
        payload = bytearray(self.request(key, version))
        if kind < 0.1:
            payload = bytearray(payload[:10]) + rng.randbytes(rng.randrange(200))
        elif kind < 0.75:
            for _ in range(rng.choice([1, 1, 1, 2, 4])):
                payload = rng.choice(self.mutations)(payload)
        size = len(payload)
        if rng.random() < 0.03:
            self.is_whole = False
            size = rng.choice([size // 2, 2 * size, 2**31 - 1, -1])
        return struct.pack(">i", size) + payload

    def request(self, key: int, version: int) -> bytes:
        body = self.struct(schema.message_struct(key, version, "request"))
        client_id = self.rng.choice([None, "", "fuzz"])
        pieces = codec.encode_request(key, version, self.count % 2**31, client_id, body)
        return b"".join(bytes(piece) for piece in pieces)[4:]

    def struct(self, struct_: Struct) -> dict[str, Any]:
        return {field.name: self.field(field) for field in struct_.fields}

    def field(self, field: MessageField) -> Any:
        rng = self.rng
        if field.nullable and rng.random() < (0.9 if field.name == "transactional_id" else 0.2):
            return None
        if not field.array:
            return self.value(field)
        return [self.value(field) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]

    def value(self, field: MessageField) -> Any:
        rng = self.rng
        if field.struct is not None:
            return self.struct(field.struct)
        match field.type:
            case "string":
                return rng.choice([*TOPICS, *TOPICS, "", "0", "x", "a/b", "é", "n" * 300])
            case "bytes" | "records":
                return rng.choice([b"", rng.randbytes(70), batch(rng), batch(rng)])
            case "uuid":
                return rng.choice([bytes(16), rng.randbytes(16)])
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice([0.0, -1.0, float("nan"), float("inf")])
        if field.name in ("timeout_ms", "max_wait_ms"):
            return rng.choice([-1, 0, 1, 5])
        if field.name == "acks":
            return rng.choice([-1, 0, 1, 1, 2])
        return self.number(field.type)

    def number(self, kafka_type: str) -> int:
        small = self.rng.choice([0, 0, 0, 1, 1, 2, -1])
        bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}.get(kafka_type)
        if bits is None:
            return abs(small)
        return self.rng.choice([small, small, small, -2, 100, 2**bits - 1, -(2**bits)])

    # Mutations of a valid request.

    def flip_bits(self, data: bytearray) -> bytearray:
        for _ in range(self.rng.choice([1, 1, 3])):
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return data

    def cut_short(self, data: bytearray) -> bytearray:
        return data[: max(8, self.rng.randrange(len(data) + 1))]

    def overwrite_with_extremes(self, data: bytearray) -> bytearray:
        extreme = self.rng.choice(
            [b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff", b"\0\0\0\0"]
        )
        at = self.rng.randrange(len(data))
        data[at : at + len(extreme)] = extreme
        return data

    def overwrite_with_noise(self, data: bytearray) -> bytearray:
        at = self.rng.randrange(len(data))
        data[at : at + 4] = self.rng.randbytes(4)
        return data

    def insert_noise(self, data: bytearray) -> bytearray:
        at = self.rng.randrange(len(data))
        data[at:at] = self.rng.randbytes(self.rng.randrange(1, 20))
        return data

    def repeat_a_part(self, data: bytearray) -> bytearray:
        at = self.rng.randrange(len(data))
        part = data[at : at + self.rng.randrange(1, 60)]
        data[at:at] = part * self.rng.choice([1, 3, 50])
        return data


def batch(rng: random.Random) -> bytes:
    """Return a record batch that may be valid, have a wrong CRC, or have damaged content."""
    records = rng.choice([b"\x10\x00\x00\x00\x01\x04hi\x00", rng.randbytes(11)])
    attributes = rng.choice([0, 0, 0, 1, 4, 7, 16])
    producer = rng.choice([(-1, -1, -1), (-1, -1, -1), (7, 0, 0), (7, 0, 1), (7, -1, 5)])
    checked = struct.pack(">hiqqqhii", attributes, 0, 1, 1, *producer, 1) + records
    crc = crc32c(checked) if rng.random() < 0.8 else 12345
    return struct.pack(">qiibI", 0, 9 + len(checked), 0, 2, crc) + checked


# --------------------------------------------------------------------------------------- the run


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fuzz(directory: Path, seed: int, inputs: int) -> None:
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    async with serving(directory) as server:
        closings: list[str] = []
        server.report_closing = lambda _, reason: closings.append(reason)  # type: ignore[method-assign]
        generator = Generator(seed, server.router.supported_versions())
        peer = Peer(server)
        at_first = resident_bytes()
        for number in range(inputs):
            if not peer.is_usable or (not peer.is_in_step and generator.rng.random() < 0.7):
                peer.transport.close()
                peer = Peer(server)
            data = generator.next()
            described = f"seed {seed}, input {number}: {data[:300].hex()}"
            await send_one(server, peer, data, generator.is_whole, described)
            assert not escaped, described
            if number % LOOK_EVERY == 0:
                await create_topics(server)
                assert resident_bytes() < at_first + GROWTH_BYTES, described
        peer.transport.close()
        await assert_alive(server)
        assert server.request_memory.used_bytes == 0
        assert set(closings) <= CLOSED_BY_HANDLERS
        assert server.requests > inputs // 3
        assert server.connections_closed_abusive > inputs // 20
    assert not escaped


async def send_one(server: Server, peer: Peer, data: bytes, is_whole: bool, described: str) -> None:
    requests, written = server.requests, peer.transport.written
    await peer.send(data)
    assert server.requests_failed == 0, described
    assert server.request_memory.used_bytes <= server.request_memory.limit_bytes, described
    was_in_step = peer.is_in_step
    peer.is_in_step = was_in_step and is_whole
    if not peer.is_in_step or not peer.is_usable or peer.connection._pending:
        return
    assert server.requests == requests + 1, described
    is_produce = data[4:6] == bytes(2)
    assert is_produce or peer.transport.written > written, described


async def create_topics(server: Server) -> None:
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in TOPICS]
    body = {"topics": topics, "timeout_ms": 10_000}
    peer = Peer(server)
    await peer.send(b"".join(map(bytes, codec.encode_request(19, 5, 1, "fuzz", body))))
    async with asyncio.timeout(20):
        while not peer.transport.written:  # noqa: ASYNC110 - the answer comes when it comes
            await asyncio.sleep(0.001)
    peer.transport.close()


async def assert_alive(server: Server) -> None:
    """Check that the broker still responds to a real client over a socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"])
    writer.write(b"".join(map(bytes, codec.encode_request(18, 0, 42, "fuzz", {}))))
    async with asyncio.timeout(20):
        head = await reader.readexactly(10)
    assert struct.unpack(">iih", head)[1:] == (42, 0)
    writer.close()


def test_a_few_thousand_random_requests_are_answered_or_refused(tmp_path: Path) -> None:
    uvloop.run(fuzz(tmp_path, seed=1, inputs=5_000))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 110))
def test_two_hundred_thousand_random_requests_are_answered_or_refused(
    tmp_path: Path, seed: int
) -> None:
    uvloop.run(fuzz(tmp_path, seed, inputs=20_000))
