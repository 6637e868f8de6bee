"""Power cuts during transactions, with `log.flush.acks.all`: a whole broker on a simulated disk.

Writers commit and abort. At a random moment the disk is copied as a power cut would leave it,
and a new broker starts on the copy. Everything acknowledged by then must hold;
tests/chaos/transactions/history.py says what is checked. If a decision was acknowledged and its
markers had not reached the disk, the new broker must write them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests.chaos.transactions.history import Attempt, Reader, Writer, check
from tests.chaos.transactions.test_history import read_to_the_end_of
from tests.raw_client import RawClient

from ottla.base.config.broker import BrokerConfig
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.testing.simulation.disk import SimulatedDisk

TOPIC = "history"
PARTITIONS = 2
WRITERS = 3
MOST_TURNS = 40
T = TypeVar("T")


class SimulatedBroker(Broker):
    """A broker on a disk that is not thread-safe, so it runs nothing in threads.

    Operations that wait for the disk take several iterations of the loop, and the files of one
    partition may be synced long before another's."""

    async def run_blocking(self, work: Callable[[], T]) -> T:
        for _ in range(random.randrange(MOST_TURNS)):
            await asyncio.sleep(0)
        result = work()
        for _ in range(random.randrange(MOST_TURNS)):
            await asyncio.sleep(0)
        return result


def new_broker(data_dir: Path, disk: SimulatedDisk) -> SimulatedBroker:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data_dir),
        "log.flush.acks.all": "true",
        "transaction.state.log.num.partitions": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    }
    return SimulatedBroker(BrokerConfig.from_properties(properties), disk, SystemClock())


def port_of(broker: Broker) -> int:
    return next(iter(broker.ports.values()))


async def live_until_the_cut(
    data_dir: Path, disk: SimulatedDisk, chance: random.Random
) -> tuple[SimulatedDisk, list[Attempt]]:
    """Return the disk as found after the power cut, and what the writers knew at that moment."""
    broker = new_broker(data_dir, disk)
    await broker.start()
    stopping = threading.Event()
    try:
        port = port_of(broker)

        def create() -> None:
            with RawClient(port) as client:
                client.create_topic(TOPIC, PARTITIONS, retention_ms="-1")

        await asyncio.to_thread(create)
        writers = [
            Writer(
                f"w{number}",
                f"id{number}",
                port,
                TOPIC,
                PARTITIONS,
                version=1 + number % 2,
                count=1_000_000,
                seed=chance.randrange(2**32),
                stopping=stopping,
                timeout_ms=300,
            )
            for number in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        wanted = chance.randrange(5, 40)
        while sum(writer.ended for writer in writers) < wanted:  # noqa: ASYNC110 - threads
            await asyncio.sleep(0.001)
        for _ in range(chance.randrange(50)):
            await asyncio.sleep(0)
        known = [[replace(attempt) for attempt in writer.attempts] for writer in writers]
        found = deepcopy(disk).power_cut()  # this broker shuts down normally, on its own disk
        stopping.set()
        for writer in writers:
            await asyncio.to_thread(writer.join)
            assert writer.error is None, writer.error
    finally:
        stopping.set()
        await broker.stop()
    return found, [
        as_known(attempt, before)
        for writer, begun in zip(writers, known, strict=True)
        for attempt, before in zip(
            writer.attempts, [*begun, *([None] * len(writer.attempts))], strict=False
        )
    ]


def as_known(attempt: Attempt, before: Attempt | None) -> Attempt:
    """Return an attempt as known at the power cut.

    Responses received after the cut do not count, but operations sent after it may have happened
    before."""
    return replace(attempt, outcome=None if before is None else before.outcome)


async def look_at(data_dir: Path, disk: SimulatedDisk) -> list[dict[int, bytes]]:
    broker = new_broker(data_dir, disk)
    await broker.start()
    try:
        return await asyncio.to_thread(read_to_the_end_of, port_of(broker), PARTITIONS)
    finally:
        await broker.stop()


def power_cut(data_dir: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed, SystemClock())
    disk.make_directories(str(data_dir))
    for each in (data_dir, *data_dir.parents):
        disk.sync_directory(str(each))

    async def run() -> None:
        found, attempts = await live_until_the_cut(data_dir, disk, chance)
        final = await look_at(data_dir, found)
        readers: list[Reader] = []
        check(attempts, final, readers)
        again = await look_at(data_dir, found.power_cut())
        assert again == final, "what was read once is read again"

    asyncio.run(asyncio.wait_for(run(), 100))


@pytest.mark.parametrize("seed", range(3))
def test_transactions_survive_a_power_cut(tmp_path: Path, seed: int) -> None:
    power_cut(tmp_path, seed)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("block", range(10))
def test_transactions_survive_many_power_cuts(tmp_path: Path, block: int) -> None:
    for seed in range(1_000 + 10 * block, 1_010 + 10 * block):
        power_cut(tmp_path / str(seed), seed)
