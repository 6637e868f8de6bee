"""Tests of reading in other threads while segments are swapped."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from tests.unit.storage.compacted_logs import LIMITS, Rounds, compacted
from tests.unit.storage.small_logs import START_MS, open_test_log, put

from ottla.storage.compaction import compact
from ottla.storage.compaction_plan import assess, open_cleaned, plan
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log, LogSlice
from ottla.storage.segment import Segment
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.record import iter_records

FEW_FILES = 3
"""Limit on open files; below the number of segments, so readers constantly reopen them by name."""
READERS = 3
ATTEMPTS = 3
KEYS = 40


class Reader(threading.Thread):
    """Thread that reads at random offsets until it is stopped and keeps the first error."""

    def __init__(self, log: Log, seed: int) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.random = random.Random(seed)
        self.stopped = threading.Event()
        self.fault: BaseException | None = None
        self.reads = 0
        self.changed = threading.Condition()

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.read_from(self.random.randrange(self.log.log_end_offset))
                self.tell(self.reads + 1)
        except BaseException as error:
            self.fault = error
            self.tell(self.reads)

    def tell(self, reads: int) -> None:
        with self.changed:
            self.reads = reads
            self.changed.notify_all()

    def wait_until_it_began_anew(self) -> None:
        """Wait until the read in progress at the time of the call has ended."""
        with self.changed:
            target = self.reads + 2
            self.changed.wait_for(lambda: self.fault or self.reads >= target)

    def read_from(self, offset: int) -> None:
        for _ in range(4):
            data, next_offset = self.read_some(offset)
            for header in iter_headers(data):
                assert header.last_offset >= offset
                for record in iter_records(data, header):
                    assert record.value is not None
                    assert record.value.startswith(b"%d:" % record.offset)
            offset = next_offset
            if offset >= self.log.log_end_offset:
                return

    def read_some(self, offset: int) -> LogSlice:
        """Read at an offset, repeating reads that find nothing.

        A read uses the log end offset at its start. If it is delayed, compaction may have removed
        every record before that offset; the read then returns nothing, and the next one
        succeeds."""
        for _ in range(ATTEMPTS):
            found = self.log.read(offset, 500, 2**62, at_least_one=True, wait=True)
            if found.next_offset > offset:
                return found
        raise AssertionError(f"nothing was found at {offset}")


def swap_one_by_one(rounds: Rounds) -> list[Segment]:
    """Run a round and return the replaced segments, which readers may still use."""
    log = rounds.log
    log.roll(START_MS)
    log.flush(START_MS)
    dirty = assess(log, rounds.checkpoint, log.log_end_offset, START_MS)
    planned = plan(dirty, LIMITS, START_MS)
    result = compact(log.fs, planned.job)
    left: list[Segment] = []
    for cleaned in result.cleaned:
        sources = planned.sources_of(cleaned)
        assert sources is not None
        left += log.replace_segments(open_cleaned(log, cleaned), sources)
    rounds.checkpoint = result.next_dirty_offset
    return left


def test_readers_notice_nothing_of_a_swap(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=FEW_FILES)
    config = compacted(segment_bytes=1_500, index_interval_bytes=100)
    log = open_test_log(str(tmp_path), config, fs=fs)
    rounds = Rounds(log)
    offset = 0
    readers: list[Reader] = []
    for _ in range(6):
        for _ in range(60):
            put(log, [(b"k%d" % (offset % KEYS), b"%d:" % offset + b"x" * 20)])
            offset += 1
        if not readers:
            readers = [Reader(log, seed) for seed in range(READERS)]
            for reader in readers:
                reader.start()
        left = swap_one_by_one(rounds)
        for reader in readers:
            reader.wait_until_it_began_anew()
        for segment in left:
            segment.remove()
    for reader in readers:
        reader.stopped.set()
        reader.join()
    assert [reader.fault for reader in readers] == [None] * READERS
    assert all(reader.reads for reader in readers)
