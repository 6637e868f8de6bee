"""12 million records through a windowed aggregation in bounded memory, with a restart midway.

The test prints the memory used. `OTTLA_LONG_RECORDS` sets the number of records."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.streams.tally import GRACE_MS, WINDOW_MS
from tests.streams.test_kills import BASE_MS, Driver, command

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]
RECORDS = int(os.environ.get("OTTLA_LONG_RECORDS", "12000000"))
KEYS = 1_000
PER_BATCH = 1_000_000
PER_TABLE = 250_000
MOST_BYTES = 3_500_000_000
"""Limit for the resident memory of all processes of the application.

The JVM may have 1 GB of heap; RocksDB and Python's workers need about as much again."""
WAIT_S = 3600.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


def fill(broker: BrokerProcess) -> None:
    """Write the input: record i has key i % KEYS and n = i % 7, and is i ms after the start."""
    import numpy as np
    import pyarrow as pa

    keys = pa.array([b"key-%d" % each for each in range(KEYS)], pa.binary())
    values = pa.array([b'{"n":%d}' % each for each in range(7)], pa.binary())
    with Producer(broker.bootstrap) as producer:
        for start in range(0, RECORDS, PER_TABLE):
            numbers = np.arange(start, min(start + PER_TABLE, RECORDS))
            producer.send_table(
                "entries",
                pa.table(
                    {
                        "key": keys.take(pa.array(numbers % KEYS)),
                        "value": values.take(pa.array(numbers % 7)),
                        "timestamp": pa.array(BASE_MS + numbers, pa.int64()),
                    }
                ),
                key="key",
                value="value",
                timestamp="timestamp",
            )
        producer.flush()


def expected() -> dict[bytes, tuple[int, int]]:
    """Return the expected count and sum of n per key and window, computed by numpy."""
    import numpy as np

    numbers = np.arange(RECORDS)
    windows = (BASE_MS + numbers) // WINDOW_MS - BASE_MS // WINDOW_MS
    slots = windows * KEYS + numbers % KEYS
    counts = np.bincount(slots)
    totals = np.bincount(slots, weights=numbers % 7)
    first = BASE_MS // WINDOW_MS
    return {
        b"key-%d" % (slot % KEYS) + int((first + slot // KEYS) * WINDOW_MS).to_bytes(8, "big"): (
            int(counts[slot]),
            int(totals[slot]),
        )
        for slot in np.flatnonzero(counts)
    }


class Reader:
    """Consumer that collects the committed results of closed windows."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._consumer = Consumer(broker.bootstrap, isolation_level="read_committed")
        tps = [TopicPartition("by-minute", each) for each in range(2)]
        self._consumer.assign(tps)
        self._consumer.seek_to_beginning()
        self.found: dict[bytes, tuple[int, int]] = {}
        self.records = 0

    def read(self) -> None:
        while records := self._consumer.poll(timeout_s=0.2, max_records=10_000):
            for each in records:
                value = json.loads(each.value)
                self.found[each.key] = (value["n"], value["total"])
                self.records += 1


def resident(driver: Driver) -> dict[str, int]:
    found = {"jvm": 0, "python": 0}
    for pid in driver.pids():
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
        found["jvm" if b"java" in command(pid).split(b"\0")[0] else "python"] += pages * PAGE_BYTES
    return found


def test_twelve_million_records_in_bounded_memory_with_a_restart(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap) as admin:
        keep = {"retention.ms": "-1"}
        admin.create_topics(
            NewTopic("entries", 2, configs=keep),
            NewTopic("by-minute", 2, configs=keep),
        )
    fill(broker)
    driver, reader = Driver(broker, tmp_path, str(PER_BATCH), "by-minute"), Reader(broker)
    most: dict[str, int] = {}
    wanted = expected()
    was_stopped = sent_end = False
    began = time.monotonic()
    driver.start()
    try:
        while reader.records < len(wanted):
            assert driver.is_running, driver.said()
            assert time.monotonic() - began < WAIT_S, driver.said()
            now = resident(driver)
            if sum(now.values()) > sum(most.values()):
                most = now
            reader.read()
            done = _done(broker)
            if not was_stopped and done >= RECORDS // 2:
                assert driver.stop() == 0, driver.said()
                print(f"stopped after {done:,} records, {time.monotonic() - began:.0f} s")
                was_stopped = True
                driver.start()
            if not sent_end and done >= RECORDS:
                print(f"all {done:,} records after {time.monotonic() - began:.0f} s")
                end_ms = BASE_MS + RECORDS + 2 * GRACE_MS
                with Producer(broker.bootstrap) as producer:
                    producer.send("entries", b'{"n":0}', key=b"end", timestamp=end_ms)
                sent_end = True
            time.sleep(0.5)
        assert driver.stop() == 0, driver.said()
    finally:
        if driver.is_running:
            driver.kill()
    print(f"{RECORDS:,} records, {time.monotonic() - began:.0f} s, {len(wanted):,} windows")
    print(f"most memory: { ({name: f'{size / 1e9:.2f} GB' for name, size in most.items()}) }")
    print(driver.said())
    assert was_stopped
    assert reader.found == wanted
    assert reader.records == len(wanted), "each window once"
    assert sum(most.values()) < MOST_BYTES


def _done(broker: BrokerProcess) -> int:
    """Return the number of records that the query has processed."""
    with Admin(broker.bootstrap) as admin:
        listed = admin.list_group_offsets("tally", return_errors=True).get("tally", {})
    return sum(each.offset for each in listed.values())
