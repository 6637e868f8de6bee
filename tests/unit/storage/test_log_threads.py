"""Tests of the log's thread safety: one thread changes it; others read, look up and flush.

They use real files and fewer descriptors than files, so that files are opened and closed
constantly. Threads are switched as often as possible."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.storage.logs import FOREVER, NOW, headers_of, open_at, records_of, stored

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log
from ottla.wire.records.batch import read_header
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import iter_records

CONFIG = TopicConfig(segment_bytes=6_000, index_interval_bytes=200)
SECONDS = 1.5


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class Beside:
    """Threads that run until the owner of the log is done or one of them fails."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.rounds: list[int] = []
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[random.Random], None]) -> None:
        slot = len(self.rounds)
        self.rounds.append(0)

        def run() -> None:
            rng = random.Random(slot)
            while not self._is_over.is_set():
                try:
                    work(rng)
                except BaseException as error:
                    self.failures.append(error)
                    self._is_over.set()
                self.rounds[slot] += 1

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def finish(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        assert all(self.rounds), f"a thread did nothing: {self.rounds}"


def append(log: Log, rng: random.Random) -> None:
    offset = log.log_end_offset
    batch = build_batch(
        [
            (None, b"%d:" % (offset + n) + b"x" * rng.choice([0, 40, 300]), (), 1_000 + offset + n)
            for n in range(rng.randint(1, 4))
        ]
    )
    log.append(batch, read_header(batch), 0, NOW)


def check_read(log: Log, rng: random.Random) -> None:
    """Check that a random offset is either read correctly or out of range."""
    offset = rng.randint(log.log_start_offset, log.log_end_offset)
    try:
        found = log.read(
            offset, rng.choice([0, 100, 10_000]), FOREVER, at_least_one=True, wait=True
        )
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return
    for number, value in records_of(bytes(found.records)):
        assert value is not None
        assert value.startswith(b"%d:" % number)
    headers = headers_of(bytes(found.records))
    if headers:
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert found.next_offset == headers[-1].next_offset


def check_time(log: Log, rng: random.Random) -> None:
    """Check look-ups by timestamp; record n has the timestamp 1000 + n."""
    first, last = log.log_start_offset, log.log_end_offset - 1
    if first <= last:
        wanted = rng.randint(first, last)
        found = log.offset_for_timestamp(1_000 + wanted)
        if found is not None:
            assert found.timestamp == 1_000 + found.offset
            assert found.offset == wanted or log.log_start_offset > wanted
        else:
            assert log.log_start_offset > wanted
    newest = log.offset_of_max_timestamp()
    if newest is not None:
        assert newest.timestamp == 1_000 + newest.offset
        assert newest.offset >= last


class Flushes:
    """Flushes that the log's owner begins and ends, and another thread runs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._begun: list[object] = []
        self._done: list[object] = []
        self.count = 0

    def by_owner(self, rng: random.Random) -> None:
        if self._done:
            self._log.flushed(self._done.pop(), NOW)  # type: ignore[arg-type]
            self.count += 1
        elif not self._begun:
            self._begun.append(self._log.begin_flush(with_indexes=rng.random() < 0.3))

    def by_other(self, _: random.Random) -> None:
        if self._begun and not self._done:
            job = self._begun[0]
            job.run()  # type: ignore[attr-defined]
            self._done.append(job)
            self._begun.clear()


def test_readers_and_flushes_beside_appends_see_only_what_is_right(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=3)
    log = open_at(fs, directory=str(tmp_path), config=CONFIG)
    rng, beside, flushes = random.Random(1), Beside(), Flushes(log)
    for work in (check_read, check_read, check_time):
        beside.start(lambda rng, work=work: work(log, rng))  # type: ignore[misc]
    beside.start(flushes.by_other)
    end = time.monotonic() + SECONDS
    while (time.monotonic() < end or not flushes.count) and not beside.is_over:
        append(log, rng)
        flushes.by_owner(rng)
        if rng.random() < 0.02 and len(log.segments) > 4:
            for segment in log.detach_head(rng.randint(1, 2), NOW):
                segment.remove()
    beside.finish()
    expected = stored(log)
    log.flush(NOW)
    assert stored(
        open_at(fs, directory=str(tmp_path), config=CONFIG, start=log.log_start_offset)
    ) == (expected)


def test_readers_and_flushes_beside_truncations_see_only_what_is_right(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=3)
    log = open_at(fs, directory=str(tmp_path), config=CONFIG)
    rng, beside, flushes = random.Random(2), Beside(), Flushes(log)
    for _ in range(2):
        beside.start(lambda rng: check_read(log, rng))
    beside.start(flushes.by_other)
    end = time.monotonic() + SECONDS
    truncations = 0
    while (time.monotonic() < end or not truncations) and not beside.is_over:
        append(log, rng)
        flushes.by_owner(rng)
        if rng.random() < 0.02:
            offset = rng.randint(log.log_end_offset // 2, log.log_end_offset)
            log.truncate_to(first_of_batch(log, offset), NOW)
            truncations += 1
    beside.finish()
    assert [offset for offset, _ in records_of(stored(log))] == list(range(log.log_end_offset))


def first_of_batch(log: Log, offset: int) -> int:
    if offset >= log.log_end_offset:
        return offset
    data = bytes(log.read(offset, 1, FOREVER, at_least_one=True, wait=True).records)
    header = headers_of(data)[0]
    assert next(iter_records(data, header)).offset == header.base_offset
    return header.base_offset
