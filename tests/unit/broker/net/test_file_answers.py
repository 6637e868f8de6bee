"""Tests of responses whose records are still in a file, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.net.harness import (
    FETCH,
    HEARTBEAT,
    LEAVE_GROUP,
    METADATA,
    Client,
    Service,
    frame_of,
    on_a_loop,
    on_both_loops,
    running,
    settled,
    until,
)
from tests.unit.storage.logs import batch_of
from tests.unit.storage.test_file import open_descriptors

from ottla.base.ports import FileRange
from ottla.broker.connection import Connection
from ottla.broker.server import Server
from ottla.storage.file import OsFile, OsFileRange, OsFileSystem

BYTES = 8_000_000
"""Size of the stored records; more than a socket buffer takes at once."""


class Stored:
    """A file of record batches and the file range that a response holds."""

    def __init__(self, folder: Path) -> None:
        rng = random.Random(1)
        batches = [batch_of(rng.randbytes(200_000)) for _ in range(BYTES // 200_000)]
        self.data = b"".join(batches)
        self.file: OsFile = OsFileSystem().open(f"{folder}/{os.urandom(4).hex()}", create=True)
        self.file.write(0, [self.data])
        self.folder = folder

    def records(self, length: int | None = None) -> FileRange:
        found = self.file.range_cached(0, len(self.data) if length is None else length)
        assert found is not None
        return found

    def is_let_go(self) -> bool:
        gc.collect()
        return not self.file._users


@asynccontextmanager
async def serving(
    folder: Path,
) -> AsyncIterator[tuple[Server, Service, Stored, Callable[[], Any]]]:
    async with running() as (server, service, port):
        stored = Stored(folder)
        service.fetch_records = stored.records
        server.broker = SimpleNamespace(run_blocking=asyncio.to_thread)
        yield server, service, stored, partial(Client.connect, port)


def only(server: Server) -> Connection:
    (connection,) = server.connections
    return connection


def both(test: Callable[[Path], Any]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        on_both_loops(partial(test, tmp_path))()

    run.__name__ = test.__name__
    return run


@both
async def test_records_go_out_from_their_file_between_other_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, stored, connect):
        client = await connect()
        frames = [frame_of(HEARTBEAT, 1), frame_of(FETCH, 2), frame_of(METADATA, 3)]
        await client.send(*frames, frame_of(FETCH, 4), frame_of(HEARTBEAT, 5))
        answers = [await client.receive() for _ in range(5)]
        assert [number for number, _ in answers] == [1, 2, 3, 4, 5]
        assert all(stored.data in answers[place][1] for place in (1, 3))
        assert server.bytes_out == sum(8 + len(body) for _, body in answers)
        del answers
        await until(stored.is_let_go)


@both
async def test_a_peer_that_does_not_read_is_asked_for_nothing_and_costs_no_memory(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (server, service, stored, connect):
        client, other = await connect(), await connect()
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1), frame_of(HEARTBEAT, 2))
        await until(lambda: service.ids() == [1])
        stuck = next(each for each in server.connections if each.is_stuck)
        await settled(other)
        assert service.ids() == [1, 9999]
        assert stuck.bytes_in_memory() == 0 < stuck.unsent_bytes()
        client.writer.transport.resume_reading()
        assert stored.data in (await client.receive())[1]
        assert (await client.receive())[0] == 2


@pytest.mark.usefixtures("forgotten")
def test_what_was_read_for_a_slow_peer_counts_as_memory(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (server, _, stored, connect):
            client = await connect()
            client.writer.transport.pause_reading()
            await client.send(frame_of(FETCH, 1))
            await until(lambda: server.response_memory.used_bytes > 0)
            assert server.response_memory.used_bytes == len(stored.data)
            client.writer.transport.resume_reading()
            assert stored.data in (await client.receive())[1]
            await until(lambda: server.response_memory.used_bytes == 0)

    on_both_loops(test)()


@both
async def test_parked_answers_wait_for_the_file_to_be_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, service, stored, connect):
        service.parks_fetches = True
        client = await connect()
        await client.send(frame_of(FETCH, 1), frame_of(LEAVE_GROUP, 2), frame_of(LEAVE_GROUP, 3))
        await until(lambda: len(service.parked) == 3)
        service.parked[2].set_result({})
        service.parked[0].set_result(service.fetched())
        service.parked[1].set_result({})
        answers = [await client.receive() for _ in range(3)]
        assert [number for number, _ in answers] == [1, 2, 3]
        assert stored.data in answers[0][1]


@both
async def test_a_server_that_stops_sends_what_it_has_begun(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, service, stored, connect):
        client = await connect()
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1))
        await until(lambda: service.ids() == [1])
        stopped = asyncio.create_task(server.stop(10))
        await until(lambda: only(server).is_ending)
        client.writer.transport.resume_reading()
        assert stored.data in (await client.receive())[1]
        assert await client.rest() == b""
        await stopped


@both
async def test_a_connection_that_is_lost_lets_go_of_the_file(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, stored, connect):
        before = len(os.listdir("/proc/self/fd"))
        client = await connect()
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1))
        await until(lambda: bool(server.connections) and only(server).is_stuck)
        client.reset()
        await until(lambda: server.connections_open == 0)
        await until(stored.is_let_go)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@both
async def test_a_file_that_is_truncated_meanwhile_ends_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, stored, connect):
        client = await connect()
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1))
        await until(lambda: bool(server.connections) and only(server).is_stuck)
        stored.file.truncate(len(stored.data) // 2)
        stored.file.write(len(stored.data) // 2, [bytes(len(stored.data) // 2)])
        client.writer.transport.resume_reading()
        assert len(await client.rest()) < len(stored.data)  # the response is incomplete
        await until(lambda: server.connections_open == 0)
        assert server.requests_failed == 0


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the page cache dropped the records after the response was built."""
    seen = OsFileRange.is_cached
    monkeypatch.setattr(
        OsFileRange,
        "is_cached",
        lambda self, start, length: length == len(self) and seen(self, start, length),
    )


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_has_left_memory_is_read_in_a_thread_and_verified(
    tmp_path: Path, is_damaged: bool
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as (_, _, stored, connect):
            if is_damaged:
                stored.file.write(4_000_000, [b"\0\0\0\0"])
            client = await connect()
            await client.send(frame_of(FETCH, 1), frame_of(HEARTBEAT, 2))
            if is_damaged:
                assert len(await client.rest()) < 1_000
            else:
                assert stored.data in (await client.receive())[1]
                assert (await client.receive())[0] == 2

    on_both_loops(test)()


@pytest.mark.usefixtures("forgotten")
def test_a_fault_while_it_is_read_ends_the_connection_and_is_reported(tmp_path: Path) -> None:
    async def no_thread(_: Callable[[], bytes]) -> bytes:
        raise RuntimeError("there is no thread left")

    async def test() -> None:
        async with serving(tmp_path) as (server, _, _, connect):
            server.broker = SimpleNamespace(run_blocking=no_thread)
            client = await connect()
            await client.send(frame_of(FETCH, 1))
            assert len(await client.rest()) < 1_000
            await until(lambda: server.connections_open == 0)
            assert server.requests_failed == 1

    on_both_loops(test)()


@on_a_loop
async def test_nothing_is_sent_past_bytes_that_the_transport_still_has(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, stored, connect):
        client = await connect()
        await settled(client)
        connection = only(server)
        assert connection._transport is not None
        earlier = bytes(6_000_000)
        client.writer.transport.pause_reading()
        connection._transport.write(earlier)
        connection._write([b"head", stored.records()])
        client.writer.transport.resume_reading()
        async with asyncio.timeout(20):
            seen = await client.reader.readexactly(len(earlier) + 4 + len(stored.data))
        assert seen == earlier + b"head" + stored.data


@both
async def test_where_no_descriptor_is_left_records_are_read(tmp_path: Path) -> None:
    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with serving(tmp_path) as (_, _, stored, connect):
        client = await connect()
        await settled(client)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "dup", refuse)
            await client.send(frame_of(FETCH, 1))
            assert stored.data in (await client.receive())[1]


@on_a_loop
async def test_descriptors_of_answers_are_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, _, connect):
        client = await connect()
        await settled(client)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            await client.send(frame_of(FETCH, number))
            await client.receive()
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert len(open_descriptors(tmp_path)) == 1
