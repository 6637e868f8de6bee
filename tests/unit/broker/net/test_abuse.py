"""Tests that malformed or hostile traffic on the port does not affect other connections."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import sys

import pytest
from tests.unit.broker.net.harness import (
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    Client,
    config,
    frame_of,
    on_a_loop,
    on_both_loops,
    produce_frame,
    running,
    settled,
    until,
)

from ottla.broker import log_limit
from ottla.broker.connection import Connection
from ottla.broker.memory import NARROW_BYTES, SHARED_BYTES
from ottla.broker.router import Router
from ottla.broker.server import Server

MIB = 1024 * 1024


def size_and(size: int, rest: bytes = b"") -> bytes:
    return struct.pack(">i", size) + rest


METADATA_HEAD = struct.pack(">hhi", 3, 9, 1)
TLS_CLIENT_HELLO = bytes.fromhex("16030102000100") + b"\x01\xfc\x03\x03" + bytes(300)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (size_and(104_857_601, METADATA_HEAD), "socket.request.max.bytes is 104857600"),
        (size_and(-1), "claims -1 bytes"),
        (size_and(-(2**31), METADATA_HEAD), "claims -2147483648 bytes"),
        (size_and(0), "claims 0 bytes"),
        (size_and(7), "claims 7 bytes"),
        (size_and(16 * MIB + 1, METADATA_HEAD), "API 3 claims 16777217 bytes"),
        (TLS_CLIENT_HELLO, "a TLS client"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "an HTTP client"),
        (b"POST /topics HTTP/1.1\r\n", "an HTTP client"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 client"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH client"),
        (size_and(10, struct.pack(">hhih", 3, 9, 1, 500)), "client ID extends beyond"),
        (
            size_and(10, struct.pack(">hhih", 999, 0, 1, -1)),
            "API 999 is not supported by this broker",
        ),
        (
            size_and(10, struct.pack(">hhih", -7, 0, 1, -1)),
            "API -7 is not supported by this broker",
        ),
        (size_and(10, struct.pack(">hhih", 0, 2, 1, -1)), "produce version 2 was requested"),
        (size_and(10, struct.pack(">hhih", 0, -1, 1, -1)), "produce version -1 was requested"),
        (
            size_and(12, struct.pack(">hhih", 12, 0, 1, -1) + b"\x7f\xff"),
            "extends beyond the message",
        ),
    ],
)
@on_a_loop
async def test_an_invalid_request_closes_its_connection_with_one_log_line(
    data: bytes, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (server, _, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(frame_of(HEARTBEAT, 1), data)
        answer = await client.rest()
        assert answer[4:8] == struct.pack(">i", 1)
        await settled(other)
        assert server.connections_closed_abusive == 1
        (record,) = caplog.records
        assert sentence in record.message
        assert record.message.startswith("Closing the connection from 127.0.0.1:")
        assert record.levelno == logging.WARNING


@on_a_loop
async def test_only_produce_may_be_larger_than_16_mib_even_if_its_api_key_comes_late() -> None:
    async with running() as (server, service, port):
        stranger = await Client.connect(port)
        await stranger.send(size_and(17 * MIB))
        producer = await Client.connect(port)
        records = random.Random(3).randbytes(17 * MIB)
        frame = produce_frame(1, records)
        await producer.send(frame[:4])
        await settled(await Client.connect(port))
        assert server.request_memory.used_bytes == 0
        await stranger.send(METADATA_HEAD)
        assert await stranger.rest() == b""
        await producer.send(frame[4:])
        assert (await producer.receive())[0] == 1
        assert service.records == [records]


@on_both_loops
async def test_random_bytes_do_no_harm() -> None:
    rng = random.Random(11)
    async with running() as (server, _, port):
        friend = await Client.connect(port)
        for _ in range(100):
            stranger = await Client.connect(port)
            await stranger.send(rng.randbytes(rng.choice([1, 3, 4, 20, 500, 100_000])))
            stranger.writer.write_eof()
            await stranger.rest()
            await settled(friend)
        await until(lambda: server.connections_open == 1)
        assert server.request_memory.used_bytes == 0


@on_a_loop
async def test_a_handler_that_fails_costs_its_connection_and_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as (server, _, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(frame_of(HEARTBEAT, 1), frame_of(JOIN_GROUP, 2), frame_of(HEARTBEAT, 3))
        assert len(await client.rest()) == len(frame_answer())
        await settled(other)
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert record.exc_info is not None
        assert "the handler has a fault" in str(record.exc_info[1])
        assert server.requests_failed == 1


def frame_answer() -> bytes:
    """Return a Heartbeat response: size, correlation ID, no tags, throttle time and error code."""
    return size_and(4 + 1 + 4 + 2 + 1) + bytes(12)


@on_a_loop
async def test_a_parked_request_that_fails_or_is_dropped_closes_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as (_, service, port):
        failing, dropped = await Client.connect(port), await Client.connect(port)
        await failing.send(frame_of(LEAVE_GROUP, 1))
        await until(lambda: len(service.parked) == 1)
        await dropped.send(frame_of(LEAVE_GROUP, 1))
        await until(lambda: len(service.parked) == 2)
        service.parked[0].set_exception(RuntimeError("no answer"))
        service.parked[1].cancel()
        assert await failing.rest() == b""
        assert await dropped.rest() == b""
        assert [record.levelno for record in caplog.records] == [logging.ERROR]


@on_a_loop
async def test_an_attacker_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    async with running(monotonic=lambda: now) as (server, _, port):
        for _ in range(200):
            stranger = await Client.connect(port)
            await stranger.send(size_and(-1))
            await stranger.rest()
        assert server.connections_closed_abusive == 200
        assert len(caplog.records) == log_limit.BURST
        now = 1.0
        stranger = await Client.connect(port)
        await stranger.send(size_and(-1))
        await stranger.rest()
        assert "180 similar messages were suppressed" in caplog.records[-1].message


@on_both_loops
async def test_a_consumer_that_stops_reading_holds_one_response_and_delays_no_others() -> None:
    async with running() as (server, service, port):
        service.fetch_bytes = 8 * MIB
        slow, other = await Client.connect(port), await Client.connect(port)
        slow.writer.transport.pause_reading()
        await slow.send(*(frame_of(FETCH, n) for n in range(20)))
        await until(lambda: any(each.is_stuck for each in server.connections))
        for _ in range(5):
            await settled(other)
        assert server.requests - 5 < 20
        assert server.response_memory.used_bytes <= service.fetch_bytes + MIB
        slow.writer.transport.resume_reading()
        assert await slow.receive_ids(20) == list(range(20))
        await until(lambda: server.response_memory.used_bytes == 0)


@on_a_loop
async def test_connections_stuck_longest_are_closed_when_unsent_answers_exceed_their_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(config(max_unsent_response_bytes=40 * MIB)) as (server, service, port):
        service.fetch_bytes = 16 * MIB
        slow = []
        for n in range(5):
            client = await Client.connect(port)
            client.writer.transport.pause_reading()
            await client.send(frame_of(FETCH, n))
            await until(lambda n=n: len(service.served) == n + 1)  # type: ignore[misc]
            slow.append(client)
            assert server.response_memory.used_bytes <= 40 * MIB
        await until(lambda: server.connections_open < 5)
        left = [await is_whole(client, service.fetch_bytes) for client in slow]
        assert left[0] is False
        assert left[-1] is True
        assert "does not read its responses" in caplog.records[0].message


async def is_whole(client: Client, size: int) -> bool:
    client.writer.transport.resume_reading()
    try:
        _, body = await client.receive()
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return len(body) > size


@on_both_loops
async def test_claimed_sizes_reserve_nothing_and_the_budget_holds() -> None:
    limit = 4 * MIB
    async with running(config(queued_max_request_bytes=limit)) as (server, _, port):
        other = await Client.connect(port)
        liars = [await Client.connect(port) for _ in range(50)]
        for liar in liars:
            await liar.send(size_and(100_000_000, struct.pack(">hhi", 0, 9, 1)))
        await settled(other)
        assert server.request_memory.used_bytes <= 50 * 65_536
        for liar in liars:
            liar.writer.write(bytes(300_000))
        await until(lambda: len(server.request_memory.waiting) > 30)
        for _ in range(20):
            await settled(other)
        kept = sum(1 for each in server.connections if each.reader.bytes_refused) * SHARED_BYTES
        assert server.request_memory.used_bytes <= limit + 100_000_004 + kept
        assert server.request_memory.used_bytes < 20 * MIB
        for liar in liars:
            liar.reset()
        await until(lambda: server.connections_open == 1)
        assert server.request_memory.used_bytes == 0
        await settled(other)


@on_both_loops
async def test_large_requests_that_wait_for_memory_are_all_served_in_the_end() -> None:
    async with running(config(queued_max_request_bytes=MIB)) as (server, service, port):
        records = [random.Random(n).randbytes(900_000) for n in range(12)]
        clients = [await Client.connect(port) for _ in records]
        halves = [produce_frame(n, each) for n, each in enumerate(records)]
        for client, frame in zip(clients, halves, strict=True):
            client.writer.write(frame[:500_000])
        await until(lambda: bool(server.request_memory.waiting))
        for client, frame in zip(clients, halves, strict=True):
            client.writer.write(frame[500_000:])
        for n, client in enumerate(clients):
            assert (await client.receive())[0] == n
        assert sorted(service.records) == sorted(records)
        assert server.request_memory.used_bytes == 0
        assert not server.request_memory.waiting


@on_a_loop
async def test_while_memory_is_used_up_connections_read_in_small_portions() -> None:
    async with running(config(queued_max_request_bytes=MIB)) as (server, service, port):
        holder, small = await Client.connect(port), await Client.connect(port)
        frame = produce_frame(1, bytes(3 * MIB))
        await holder.send(frame[: 2 * MIB])
        await until(lambda: server.request_memory.exhausted)
        assert len(server.request_memory.window) == NARROW_BYTES
        await small.send(*(frame_of(HEARTBEAT, n) for n in range(2_000)))
        assert await small.receive_ids(2_000) == list(range(2_000))
        await holder.send(frame[2 * MIB :])
        assert (await holder.receive())[0] == 1
        assert len(server.request_memory.window) == SHARED_BYTES
        assert len(service.records) == 1


def test_an_idle_connection_is_two_small_objects() -> None:
    connection = Connection(Server(None, Router({}), config()), "PLAINTEXT")
    assert not hasattr(connection, "__dict__")
    assert not hasattr(connection.reader, "__dict__")
    assert sys.getsizeof(connection) + sys.getsizeof(connection.reader) < 500
