"""Tests of listening, connection limits, the sweep of idle connections, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest
from tests.unit.broker.net.harness import (
    FETCH,
    HEARTBEAT,
    LEAVE_GROUP,
    Client,
    config,
    frame_of,
    on_a_loop,
    on_both_loops,
    produce_frame,
    running,
    settled,
    sync_frame,
    until,
)

from ottla.base.errors import UserError
from ottla.broker.listening import bind_listener
from ottla.broker.router import Router
from ottla.broker.server import CLOSE_TIMEOUT_S, STALLED_FRAME_TIMEOUT_S, Listener, Server

MIB = 1024 * 1024

# ----------------------------------------------------------------------------------- listening


@on_both_loops
async def test_a_port_in_use_is_reported_in_a_sentence_and_leaves_nothing_open() -> None:
    async with running() as (_, _, port):
        taken = Listener("SECOND", "127.0.0.1", port)
        free = Listener("FIRST", "127.0.0.1", 0)
        server = Server(None, Router({}), config(listeners=(free, taken)))
        with pytest.raises(UserError, match=rf"^Cannot listen on 127\.0\.0\.1:{port}: the port is"):
            await server.start()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(server.ports["FIRST"])


@on_a_loop
async def test_a_host_that_does_not_resolve_is_reported_in_a_sentence() -> None:
    server = Server(None, Router({}), config(listeners=(Listener("A", "no.such.invalid", 9092),)))
    with pytest.raises(UserError, match=r"'no\.such\.invalid' does not resolve"):
        await server.start()


@on_a_loop
async def test_an_address_of_another_machine_is_reported_in_a_sentence() -> None:
    with pytest.raises(UserError, match="this machine has no such address"):
        await bind_listener("192.0.2.1", 0, -1, -1)


@on_a_loop
async def test_every_address_of_a_listener_gets_the_same_free_port() -> None:
    sockets = await bind_listener("", 0, -1, -1)
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        assert sockets[0].getsockname()[1] > 0
    finally:
        for sock in sockets:
            sock.close()


@on_a_loop
async def test_accepted_sockets_have_the_options_of_the_listener() -> None:
    async with running(config(socket_send_buffer_bytes=30_000)) as (server, _, port):
        await settled(await Client.connect(port))
        (connection,) = server.connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 600
        assert 30_000 <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 60_000


@on_a_loop
async def test_requests_know_the_listener_they_came_by() -> None:
    seen = []
    listeners = (Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "127.0.0.1", 0))

    def heartbeat(broker: object, context: object, request: object) -> dict[str, object]:
        seen.append((context.listener, context.peer, context.client_id))  # type: ignore[attr-defined]
        return {}

    server = Server(None, Router({HEARTBEAT: heartbeat}), config(listeners=listeners))
    await server.start()
    for name in ("OUTSIDE", "INSIDE"):
        await settled(await Client.connect(server.ports[name]))
    await server.stop(0)
    assert seen == [("OUTSIDE", "127.0.0.1", "test"), ("INSIDE", "127.0.0.1", "test")]


# -------------------------------------------------------------------------------------- limits


@on_both_loops
async def test_connections_above_the_limit_are_refused_and_a_free_place_is_given_again() -> None:
    async with running(config(max_connections=2)) as (server, _, port):
        first, second = await Client.connect(port), await Client.connect(port)
        await settled(first)
        await settled(second)
        third = await Client.connect(port)
        assert await third.rest() == b""
        assert server.connections_refused == 1
        first.close()
        await until(lambda: server.connections_open == 1)
        await settled(await Client.connect(port))


@on_a_loop
async def test_one_address_has_its_own_limit_with_exceptions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = config(max_connections_per_ip=1)
    async with running(settings) as (server, _, port):
        first = await Client.connect(port)
        await settled(first)
        assert await (await Client.connect(port)).rest() == b""
        assert "1 connections from that address are open" in caplog.records[0].message
        server.config = config(
            max_connections_per_ip=1, max_connections_per_ip_overrides={"127.0.0.1": 2}
        )
        second = await Client.connect(port)
        await settled(second)
        assert await (await Client.connect(port)).rest() == b""


@on_both_loops
async def test_connections_that_come_too_fast_wait_for_their_turn() -> None:
    clock = Clock()
    async with running(config(max_connection_creation_rate=2), clock) as (server, service, port):
        clients = [await Client.connect(port) for _ in range(5)]
        for number, client in enumerate(clients):
            await client.send(frame_of(HEARTBEAT, number))
        assert await clients[0].receive_ids(1) == [0]
        assert await clients[1].receive_ids(1) == [1]
        await until(lambda: server.connections_open == 5)
        server.admission._admit_waiting()
        assert sorted(service.ids()) == [0, 1]
        clock.now += 0.5
        assert await clients[2].receive_ids(1) == [2]
        assert sorted(service.ids()) == [0, 1, 2]
        server.config = config()
        for number in (3, 4):
            assert await clients[number].receive_ids(1) == [number]


@on_a_loop
async def test_connections_that_wait_for_their_turn_are_closed_with_the_server() -> None:
    async with running(config(max_connection_creation_rate=0)) as (server, service, port):
        client = await Client.connect(port)
        await client.send(frame_of(HEARTBEAT, 1))
        await until(lambda: server.connections_open == 1)
    assert await client.rest() == b""
    assert service.ids() == []


# ------------------------------------------------------------------------------------ the sweep


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@on_both_loops
async def test_a_silent_connection_is_closed_after_its_time_and_a_talking_one_is_not() -> None:
    async with running(config(connections_max_idle_ms=60_000)) as (server, _, port):
        silent, talking = await Client.connect(port), await Client.connect(port)
        await settled(silent)
        half = await Client.connect(port)
        await half.send(frame_of(HEARTBEAT, 1)[:7])
        await until(lambda: server.bytes_in == len(frame_of(HEARTBEAT, 1)) + 7)
        server.sweep(1_000.0)
        for now in (1_030.0, 1_059.0):
            await settled(talking)
            server.sweep(now)
        await settled(talking)
        assert server.connections_open == 3
        server.sweep(1_061.0)
        assert await silent.rest() == b""
        assert await half.rest() == b""
        await settled(talking)
        assert server.connections_closed_idle == 2


@on_a_loop
async def test_negative_idle_time_means_never() -> None:
    async with running(config(connections_max_idle_ms=-1)) as (server, _, port):
        client = await Client.connect(port)
        await settled(client)
        server.sweep(0.0)
        server.sweep(10.0**9)
        await settled(client)


@on_a_loop
async def test_the_sweep_goes_by_itself() -> None:
    async with running(config(connections_max_idle_ms=100)) as (_, _, port):
        assert await (await Client.connect(port)).rest() == b""


@on_a_loop
async def test_a_peer_that_takes_nothing_for_the_idle_time_is_closed() -> None:
    async with running(config(connections_max_idle_ms=60_000)) as (server, service, port):
        service.fetch_bytes = 16 * MIB
        client = await Client.connect(port)
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1))
        await until(lambda: any(each.is_stuck for each in server.connections))
        await until(lambda: steady(server))
        server.sweep(1_000.0)
        server.sweep(1_050.0)
        assert server.connections_open == 1
        server.sweep(1_061.0)
        await until(lambda: server.connections_open == 0)
        assert server.response_memory.used_bytes == 0


def steady(server: Server) -> bool:
    """Return whether the kernel's send buffer is full: the unsent bytes no longer change."""
    (connection,) = server.connections
    before, connection.unsent_seen = connection.unsent_seen, connection.unsent_bytes()
    return before == connection.unsent_seen


@on_a_loop
async def test_a_peer_that_is_closed_and_does_not_take_its_last_answers_is_cut_off() -> None:
    async with running() as (server, service, port):
        service.fetch_bytes = 16 * MIB
        client = await Client.connect(port)
        client.writer.transport.pause_reading()
        await client.send(frame_of(FETCH, 1))
        await until(lambda: any(each.is_stuck for each in server.connections))
        (connection,) = server.connections
        connection.finish()
        await until(lambda: steady(server))
        server.sweep(1_000.0)
        server.sweep(1_000.0 + CLOSE_TIMEOUT_S / 2)
        await asyncio.sleep(0)
        assert server.connections_open == 1
        server.sweep(1_001.0 + CLOSE_TIMEOUT_S)
        await until(lambda: server.connections_open == 0)


@on_a_loop
async def test_a_request_that_does_not_come_is_dropped_while_others_wait_for_its_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    async with running(config(queued_max_request_bytes=MIB), clock) as (server, service, port):
        stalling = await Client.connect(port)
        await stalling.send(struct.pack(">ihhi", 50 * MIB, 0, 9, 1), bytes(3 * MIB))
        await until(lambda: server.request_memory.exhausted)
        honest = await Client.connect(port)
        await honest.send(produce_frame(1, bytes(300_000)))
        await until(lambda: len(server.request_memory.waiting) == 1)
        server.sweep(clock.now + STALLED_FRAME_TIMEOUT_S - 1)
        assert server.connections_open == 2
        server.sweep(clock.now + STALLED_FRAME_TIMEOUT_S)
        assert (await honest.receive())[0] == 1
        assert "other requests wait for memory" in caplog.records[0].message
        assert await stalling.rest() == b""
        assert service.records == [bytes(300_000)]


# ------------------------------------------------------------------------------------- stopping


@on_both_loops
async def test_stopping_answers_what_is_under_way_and_refuses_the_rest() -> None:
    async with running() as (server, service, port):
        idle, busy, slow = [await Client.connect(port) for _ in range(3)]
        await settled(idle)
        await busy.send(frame_of(LEAVE_GROUP, 1))
        await slow.send(sync_frame(1, b"x"))
        await until(lambda: len(service.served) == 3)
        stopping = asyncio.ensure_future(server.stop(20))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(port)
        await busy.send(frame_of(HEARTBEAT, 2))
        service.parked[0].set_result({})
        service.may_finish.set()
        assert (await busy.receive())[0] == 1
        assert (await slow.receive())[0] == 1
        assert await busy.rest() == b""
        await stopping
        assert len(service.served) == 3
        assert server.connections_open == 0


@on_a_loop
async def test_stopping_waits_no_longer_than_its_grace() -> None:
    async with running() as (server, service, port):
        parked, running_ = await Client.connect(port), await Client.connect(port)
        await parked.send(frame_of(LEAVE_GROUP, 1))
        await running_.send(sync_frame(2, b"x"))
        await until(lambda: len(service.served) == 2)
        await server.stop(0.01)
        assert service.parked[0].cancelled()
        assert service.cancelled == [2]
        assert server.connections_open == 0


@on_a_loop
async def test_stopping_does_not_wait_for_a_fetch_that_waits_for_data() -> None:
    async with running() as (server, service, port):
        service.parks_fetches = True
        client = await Client.connect(port)
        await client.send(frame_of(FETCH, 1))
        await until(lambda: len(service.parked) == 1)
        async with asyncio.timeout(10):
            await server.stop(60)
        assert service.parked[0].cancelled()


@on_a_loop
async def test_nothing_is_logged_above_info_by_a_quiet_life(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running() as (_, _, port):
        client = await Client.connect(port)
        await settled(client)
        client.close()
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert f"PLAINTEXT://127.0.0.1:{port}" in caplog.records[0].message
