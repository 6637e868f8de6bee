"""Tests of the simulator's event loop, clock and network in isolation."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing.simulation.network import SimulatedNetwork
from ottla.testing.simulation.scheduler import Deadlock, Scheduler


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())  # type: ignore[attr-defined]


class Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: Exception | str | None = "open"

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


def two_processes(seed: int):
    scheduler = Scheduler(seed)
    network = SimulatedNetwork(scheduler)
    server, client = scheduler.process("server"), scheduler.process("client")
    for process in (server, client):
        network.attach(process)
    return scheduler, network, server, client


def connect(scheduler, server, client) -> Collector:
    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Echo, "server", 9)

    async def dial() -> Collector:
        transport, collector = await asyncio.get_running_loop().create_connection(
            Collector, "server", 9
        )
        collector.transport = transport
        return collector

    scheduler.run(listen(), server)
    return scheduler.run(dial(), client)


def test_sleeping_takes_no_real_time() -> None:
    scheduler = Scheduler(1)

    async def sleep() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert scheduler.run(sleep()) == pytest.approx(3600)
    assert scheduler.now == pytest.approx(3600)


def test_waiting_forever_is_reported() -> None:
    scheduler = Scheduler(1)

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        scheduler.run(wait())


def test_bytes_arrive_whole_and_in_order() -> None:
    scheduler, _, server, client = two_processes(3)
    collector = connect(scheduler, server, client)
    sent = b"".join(b"%d," % number for number in range(2_000))
    for start in range(0, len(sent), 7):
        collector.transport.write(sent[start : start + 7])
    scheduler.run_until(lambda: len(collector.data) == len(sent))
    assert collector.data == sent.upper()


def test_a_cut_link_holds_bytes_back_until_it_is_healed() -> None:
    scheduler, network, server, client = two_processes(4)
    collector = connect(scheduler, server, client)
    network.cut("client", "server", both=False)
    collector.transport.write(b"late")
    scheduler.run_for(5)
    assert collector.data == b""
    network.heal()
    scheduler.run_for(1)
    assert collector.data == b"LATE"


def test_a_link_cut_for_long_breaks_the_connection() -> None:
    scheduler, network, server, client = two_processes(5)
    collector = connect(scheduler, server, client)
    network.cut("client", "server")
    collector.transport.write(b"never")
    scheduler.run_for(120)
    assert isinstance(collector.lost, OSError)


def test_a_killed_process_resets_its_connections_and_stops_running() -> None:
    scheduler, _, server, client = two_processes(6)
    collector = connect(scheduler, server, client)
    ran = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("after")
        finally:
            ran.append("finally")

    server.loop.create_task(work())
    scheduler.run_for(0.5)
    server.kill()
    scheduler.run_for(5)
    assert ran == []
    assert isinstance(collector.lost, ConnectionResetError)


def test_a_paused_process_does_nothing_until_it_is_resumed() -> None:
    scheduler, _, server, client = two_processes(7)
    collector = connect(scheduler, server, client)
    server.pause()
    collector.transport.write(b"x")
    scheduler.run_for(10)
    assert collector.data == b""
    server.resume()
    scheduler.run_for(1)
    assert collector.data == b"X"


def test_a_drifting_clock_wakes_its_process_earlier() -> None:
    scheduler = Scheduler(8)
    fast = scheduler.process("fast")
    fast.clock_rate = 2.0
    scheduler.run(asyncio.sleep(10), fast)
    assert scheduler.now == pytest.approx(5)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    def run() -> tuple[float, int, bytes]:
        scheduler, _, server, client = two_processes(seed)
        collector = connect(scheduler, server, client)
        collector.transport.write(b"abcdef" * 100)
        scheduler.run_until(lambda: len(collector.data) == 600)
        return scheduler.now, scheduler.steps, collector.data

    assert run() == run()
