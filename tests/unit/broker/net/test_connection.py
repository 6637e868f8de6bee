"""Tests that responses leave in the order of their requests, over real sockets."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.unit.broker.net.harness import (
    FETCH,
    HEARTBEAT,
    LEAVE_GROUP,
    METADATA,
    Client,
    frame_of,
    on_a_loop,
    on_both_loops,
    produce_frame,
    running,
    settled,
    sync_frame,
    until,
)

from ottla.broker.connection import FRAMES_PER_WAKEUP, MAX_HELD_BYTES, MAX_PENDING


class WriteSpy:
    """Transport that counts its writes."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


@on_both_loops
async def test_answers_come_in_the_order_of_requests_although_an_earlier_one_is_parked() -> None:
    async with running() as (_, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(
            frame_of(HEARTBEAT, 1),
            frame_of(LEAVE_GROUP, 2),
            frame_of(HEARTBEAT, 3),
            frame_of(LEAVE_GROUP, 4),
            frame_of(HEARTBEAT, 5),
        )
        assert (await client.receive())[0] == 1
        await until(lambda: len(service.served) == 5)
        service.parked[1].set_result({})
        await settled(other)
        service.parked[0].set_result({})
        assert await client.receive_ids(4) == [2, 3, 4, 5]


@on_a_loop
async def test_parked_answers_that_become_ready_together_are_written_together() -> None:
    async with running() as (server, service, port):
        client = await Client.connect(port)
        await client.send(*(frame_of(LEAVE_GROUP, n) for n in range(50)))
        await until(lambda: len(service.parked) == 50)
        (connection,) = server.connections
        spy = connection._transport = WriteSpy(connection._transport)
        for future in reversed(service.parked):
            future.set_result({})
        assert await client.receive_ids(50) == list(range(50))
        assert spy.writes == 1


@on_both_loops
async def test_a_coroutine_holds_up_the_next_request_of_its_connection_only() -> None:
    async with running() as (_, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(sync_frame(1, b"a"), frame_of(HEARTBEAT, 2))
        await until(lambda: service.ids() == [1])
        await settled(other, 77)
        assert service.ids() == [1, 77]
        service.may_finish.set()
        assert await client.receive_ids(2) == [1, 2]


@on_both_loops
async def test_the_request_of_a_coroutine_stays_intact_while_others_receive() -> None:
    async with running() as (_, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        small, large = b"s" * 1_000, random.Random(1).randbytes(700_000)
        await client.send(sync_frame(1, small))
        await until(lambda: service.ids() == [1])
        await other.send(produce_frame(2, b"x" * 200_000))
        await other.receive()
        service.may_finish.set()
        await client.receive()
        service.may_finish.clear()
        await client.send(sync_frame(3, large))
        await until(lambda: 3 in service.ids())
        await other.send(produce_frame(4, b"y" * 700_000))
        await other.receive()
        service.may_finish.set()
        await client.receive()
        assert [each for each in service.records if each[:1] not in b"xy"] == [small, large]


@on_both_loops
async def test_a_frame_may_arrive_byte_by_byte() -> None:
    async with running() as (_, service, port):
        client = await Client.connect(port)
        for byte in produce_frame(1, b"records") + frame_of(HEARTBEAT, 2):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await client.receive_ids(2) == [1, 2]
        assert service.records == [b"records"]


@on_a_loop
async def test_a_thousand_requests_in_one_packet_are_answered_and_let_others_in_between() -> None:
    async with running() as (_, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await settled(other)
        other.writer.write(frame_of(HEARTBEAT, 5_000))
        client.writer.write(b"".join(frame_of(HEARTBEAT, n) for n in range(1_000)))
        assert await client.receive_ids(1_000) == list(range(1_000))
        assert service.ids().index(5_000) <= 1 + 2 * FRAMES_PER_WAKEUP


@on_both_loops
async def test_large_frames_arrive_intact_between_small_ones() -> None:
    rng = random.Random(7)
    sizes = [10, 4_000, 4_096, 5_000, 65_000, 70_000, 262_144, 300_000, 1 << 20, 5_000_000, 3]
    records = [rng.randbytes(size) for size in sizes]
    async with running() as (server, service, port):
        client = await Client.connect(port)
        for round_ in range(2):  # the second round reuses pooled buffers
            sent = asyncio.create_task(
                client.send(*(produce_frame(n, each) for n, each in enumerate(records)))
            )
            assert await client.receive_ids(len(sizes)) == list(range(len(sizes))), round_
            await sent
            assert service.records == records
            service.records.clear()
        assert server.request_memory.used_bytes == 0


@on_a_loop
async def test_a_request_without_an_answer_leaves_no_gap() -> None:
    async with running() as (_, service, port):
        client = await Client.connect(port)
        await client.send(
            produce_frame(1, b"a", acks=0), frame_of(LEAVE_GROUP, 2), frame_of(HEARTBEAT, 3)
        )
        await until(lambda: len(service.served) == 3)
        service.parked[0].set_result(None)
        assert (await client.receive())[0] == 3
        assert service.records == [b"a"]


@on_both_loops
async def test_a_second_fetch_waits_for_the_first_and_other_requests_do_not() -> None:
    async with running() as (_, service, port):
        service.parks_fetches = True
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(frame_of(FETCH, 1), frame_of(HEARTBEAT, 2), frame_of(FETCH, 3))
        await until(lambda: service.ids() == [1, 2])
        await settled(other)
        assert 3 not in service.ids()
        service.parked[0].set_result(service.fetched())
        await until(lambda: 3 in service.ids())
        service.parked[1].set_result(service.fetched())
        assert await client.receive_ids(3) == [1, 2, 3]


@on_both_loops
async def test_so_many_requests_may_be_parked_and_then_the_next_waits() -> None:
    async with running() as (_, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await client.send(*(frame_of(LEAVE_GROUP, n) for n in range(MAX_PENDING + 10)))
        await until(lambda: len(service.parked) == MAX_PENDING)
        await settled(other)
        assert len(service.parked) == MAX_PENDING
        for n in range(MAX_PENDING + 10):
            await until(lambda n=n: len(service.parked) > n)  # type: ignore[misc]
            service.parked[n].set_result({})
        assert await client.receive_ids(MAX_PENDING + 10) == list(range(MAX_PENDING + 10))


@on_a_loop
async def test_answers_held_behind_a_parked_one_are_bounded() -> None:
    async with running() as (server, service, port):
        client, other = await Client.connect(port), await Client.connect(port)
        await settled(client)
        count = 2_000
        await client.send(frame_of(LEAVE_GROUP, 0))
        await client.send(*(frame_of(METADATA, n) for n in range(1, count)))
        await until(lambda: server.requests > 10)
        await settled(other)
        held = [connection.unsent_bytes() for connection in server.connections]
        assert MAX_HELD_BYTES < max(held) < MAX_HELD_BYTES + 1_100
        service.parked[0].set_result({})
        assert await client.receive_ids(count) == list(range(count))


@on_both_loops
async def test_what_a_lost_connection_waited_for_is_cancelled() -> None:
    async with running() as (server, service, port):
        client = await Client.connect(port)
        await client.send(frame_of(LEAVE_GROUP, 1), frame_of(HEARTBEAT, 2))
        await until(lambda: len(service.served) == 2)
        client.reset()
        await until(service.parked[0].cancelled)
        assert server.connections_open == 0


@on_a_loop
async def test_a_coroutine_is_finished_although_its_client_has_gone() -> None:
    async with running() as (server, service, port):
        client = await Client.connect(port)
        await client.send(sync_frame(1, b"a"))
        await until(lambda: service.ids() == [1])
        (connection,) = server.connections
        connection.abort()
        await until(lambda: server.connections_open == 0)
        service.may_finish.set()
        await until(lambda: service.finished == [1])


@on_both_loops
async def test_requests_before_the_end_of_the_stream_are_answered() -> None:
    async with running() as (_, _, port):
        client = await Client.connect(port)
        await client.send(frame_of(HEARTBEAT, 1), frame_of(HEARTBEAT, 2))
        client.writer.write_eof()
        assert await client.receive_ids(2) == [1, 2]
        assert await client.rest() == b""


@on_a_loop
async def test_counters_count_bytes_and_requests() -> None:
    async with running() as (server, _, port):
        client = await Client.connect(port)
        frames = [frame_of(HEARTBEAT, n) for n in range(3)]
        await client.send(*frames)
        answers = [await client.receive() for _ in frames]
        assert server.requests == 3
        assert server.bytes_in == sum(map(len, frames))
        assert server.bytes_out == sum(8 + len(body) for _, body in answers)
        assert (server.connections_open, server.connections_accepted) == (1, 1)
