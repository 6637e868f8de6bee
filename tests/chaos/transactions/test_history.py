"""Transactions under faults, checked by their history: history.py lists the guarantees.

Half of the writers use version 1 of the transaction protocol, half version 2. The broker is killed
again and again. Writers lose connections, die with open transactions and are fenced by others with
the same transactional ID. Transactions time out."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from tests.chaos.transactions.history import Attempt, Reader, Writer, check
from tests.integration.transactions.producer import fetch_committed
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

TOPIC = "history"
PARTITIONS = 3
OVERRIDES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "4",
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "512",
    "log.flush.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
START_TIMEOUT_S = 120
"""Time limit for a start, which may recover much of the log on a busy machine."""


def run(
    data_dir: Path, writers: int, transactions: int, kill_every_s: float, **overrides: str
) -> list[Attempt]:
    """Run writers and readers while the broker is killed, and return the checked attempts."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with BrokerProcess(data_dir, overrides={**OVERRIDES, **overrides}) as broker:
        with RawClient(broker.port) as client:
            client.create_topic(TOPIC, PARTITIONS, retention_ms="-1")
        writing, reading = threading.Event(), threading.Event()
        each = -(-transactions // writers)
        transactional_ids = [f"id{number}" for number in range(writers - 1)]
        transactional_ids.append("id0")  # two writers that fence each other
        threads = [
            Writer(
                f"w{number}",
                transactional_ids[number],
                broker.port,
                TOPIC,
                PARTITIONS,
                version=1 + number % 2,
                count=each,
                seed=seed + number,
                stopping=writing,
            )
            for number in range(writers)
        ]
        readers = [Reader(broker.port, TOPIC, PARTITIONS, reading) for _ in range(2)]
        for thread in (*threads, *readers):
            thread.start()
        while any(thread.is_alive() for thread in threads):
            deadline = time.monotonic() + chance.uniform(0.5, 1.5) * kill_every_s
            for thread in threads:
                thread.join(max(deadline - time.monotonic(), 0))
            if any(thread.is_alive() for thread in threads):
                broker.kill()
                broker.start(wait=False)
                broker.wait_until_ready(START_TIMEOUT_S)
        for thread in threads:
            assert thread.error is None, thread.error
        final = read_to_the_end_of(broker.port, PARTITIONS)
        reading.set()
        for reader in readers:
            reader.join()
        attempts = [attempt for thread in threads for attempt in thread.attempts]
        check(attempts, final, readers)
        assert "Traceback" not in broker.log(), broker.log()
        return attempts


def read_to_the_end_of(port: int, partitions: int) -> list[dict[int, bytes]]:
    """Wait until no transaction is open, then return the committed values by offset per partition.

    Transactions that a writer left open end by their timeout."""
    with RawClient(port) as client:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            responses = [fetch_committed(client, TOPIC, 0, index) for index in range(partitions)]
            if all(
                response.error_code == 0 and response.last_stable_offset == response.high_watermark
                for response in responses
            ):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"transactions hang: {responses}")
        reader = Reader(port, TOPIC, partitions, threading.Event())
        while reader.follow(client):
            pass
        return reader.given


def test_transactions_survive_kills(tmp_path: Path) -> None:
    attempts = run(tmp_path, 4, 120, 0.8)
    assert sum(attempt.outcome is True for attempt in attempts) > 50


@pytest.mark.chaos
@pytest.mark.timeout(1_800)
def test_ten_thousand_transactions_survive_kills(tmp_path: Path) -> None:
    attempts = run(tmp_path, 8, 10_000, 4)
    assert sum(attempt.outcome is not None for attempt in attempts) >= 10_000


@pytest.mark.chaos
@pytest.mark.timeout(1_800)
def test_two_thousand_transactions_with_synced_acks_survive_kills(tmp_path: Path) -> None:
    attempts = run(tmp_path, 8, 2_000, 5, **{"log.flush.acks.all": "true"})
    assert sum(attempt.outcome is not None for attempt in attempts) >= 2_000
