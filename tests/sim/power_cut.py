"""A log on a simulated disk, run through a series of power cuts and compared with what it accepted.

`Story` appends, flushes, rolls and checkpoints at random until the power fails in the middle of
a call to the disk. `reopen` then opens what is left and checks it: everything that was flushed
is there, byte for byte; nothing is there that was never appended; indexes, epochs, producers and
aborted transactions match the batches that are there."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from tests.unit.storage.logs import (
    DIRECTORY,
    FOREVER,
    NOW,
    PARTITION,
    batch_of,
    headers_of,
    new_disk,
    open_at,
    read,
    stored,
)

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.checkpoint import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from ottla.storage.log import Log
from ottla.storage.producer_snapshots import marker_of
from ottla.storage.producer_state import ProducerState
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn, aborted_txn
from ottla.testing.simulation.disk import PowerCut, SimulatedDisk
from ottla.wire.records.batch import BatchHeader, read_header
from ottla.wire.records.builder import end_txn_marker

CHECKPOINT = f"/data/{RECOVERY_POINTS}"
STARTS = f"/data/{LOG_START_OFFSETS}"


@dataclass
class Story:
    seed: int
    rng: random.Random = field(init=False)
    disk: SimulatedDisk = field(init=False)
    config: TopicConfig = field(init=False)
    log: Log = field(init=False)
    history: list[bytes] = field(default_factory=list)
    """Batches as they should be stored, from offset 0 on. The last append may have failed."""
    undone: list[list[bytes]] = field(default_factory=list)
    """Histories from before a truncation that may not have reached the disk yet."""
    safe_offset: int = 0
    is_clean: bool = False
    sequences: dict[int, int] = field(default_factory=dict)
    open_txns: set[int] = field(default_factory=set)
    vague: set[int] = field(default_factory=set)
    """Producers whose deleted records were not flushed and were lost in a power cut.

    The log can only know what it found on disk."""
    epoch: int = 0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = new_disk(self.seed)
        self.config = TopicConfig(
            segment_bytes=self.rng.choice([400, 1_500, 6_000, 2**30]),
            index_interval_bytes=self.rng.choice([0, 100, 700, 4_096]),
        )
        self.reopen()
        self.disk.sync_directory(DIRECTORY)  # else only later files may survive

    # ------------------------------------------------------------------------- random operations

    def live(self, calls: int) -> None:
        """Run random operations until the power is cut in the middle of a call to the disk."""
        self.disk.cut_in(calls)
        try:
            while True:
                self.act()
        except PowerCut:
            self.disk = self.disk.power_cut()
        self.reopen()

    def act(self) -> None:
        action = self.rng.choices(
            [
                self.append,
                self.flush,
                self.flush_late,
                self.roll,
                self.checkpoint,
                self.end_txn,
                self.truncate,
                self.delete_records,
            ],
            [60, 8, 5, 3, 5, 8, 1.5, 2],
        )[0]
        action()

    def append(self) -> None:
        self.epoch += self.rng.random() < 0.05
        producer_id = self.rng.choice([-1, -1, 7, 8, 9])
        values = [
            self.rng.randbytes(self.rng.choice([3, 40, 700])) for _ in range(self.rng.randint(1, 4))
        ]
        options: dict[str, object] = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            transactional = producer_id != 7
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": transactional,
            }
            self.sequences[producer_id] = sequence + len(values)
            if transactional:
                self.open_txns.add(producer_id)
        timestamp = NOW + self.rng.randint(-1_000, 1_000) + 10 * len(self.history)
        self.take(batch_of(*values, timestamp=timestamp, **options))

    def end_txn(self) -> None:
        if self.open_txns:
            producer_id = self.rng.choice(sorted(self.open_txns))
            self.open_txns.discard(producer_id)
            commit = self.rng.random() < 0.5
            self.take(end_txn_marker(producer_id, 0, commit, 0, NOW + 10 * len(self.history)))

    def take(self, batch: bytes) -> None:
        base_offset = self.log.log_end_offset
        self.history.append(
            struct.pack(">q", base_offset)
            + batch[8:12]
            + struct.pack(">i", self.epoch)
            + batch[16:]
        )
        result = self.log.append(batch, read_header(batch), self.epoch, NOW)
        assert result.base_offset == base_offset
        assert not result.is_duplicate

    def flush(self) -> None:
        self.log.flush(NOW, with_indexes=self.rng.random() < 0.4)
        self.safe_offset = self.log.recovery_point
        assert self.safe_offset == self.log.log_end_offset
        self.undone.clear()

    def flush_late(self) -> None:
        """Flush in another thread: appends continue while the flush is running."""
        end_offset = self.log.log_end_offset
        job = self.log.begin_flush(with_indexes=self.rng.random() < 0.4)
        for _ in range(self.rng.randint(0, 4)):
            self.append()
        job.run()
        for _ in range(self.rng.randint(0, 2)):
            self.append()
        self.log.flushed(job, NOW)
        assert self.log.recovery_point == end_offset
        self.safe_offset = end_offset
        self.undone.clear()

    def roll(self) -> None:
        self.log.roll(NOW)

    def checkpoint(self) -> None:
        write_offsets(self.disk, CHECKPOINT, {PARTITION: self.log.recovery_point})
        write_offsets(self.disk, STARTS, {PARTITION: self.log.log_start_offset})

    def truncate(self) -> None:
        """Truncate as a follower that diverges from its leader does: lower the checkpoint first."""
        kept = self.rng.randint(0, len(self.history))
        offset = read_header(self.history[kept]).base_offset if kept < len(self.history) else 0
        if kept == len(self.history) or offset < self.log.log_start_offset:
            return
        self.undone.append(list(self.history))
        del self.history[kept:]
        self.safe_offset = min(self.safe_offset, offset)
        safe_offset = min(self.log.recovery_point, self.log.end_after_truncation(offset))
        write_offsets(self.disk, CHECKPOINT, {PARTITION: safe_offset})
        self.log.truncate_to(offset, NOW)
        self.epoch += 1
        self.take_over()

    def delete_records(self) -> None:
        """Run DeleteRecords, then retention.

        The log start offset is checkpointed before files are deleted."""
        offset = self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.log.advance_start_offset(offset)
        self.checkpoint()
        count = sum(later.base_offset <= offset for later in self.log.segments[1:])
        for segment in self.log.detach_head(count, NOW) if count else []:
            segment.remove()

    def shut_down(self) -> None:
        """Shut down as the broker does: write and sync everything, then mark a clean shutdown."""
        self.log.write_out()
        self.disk.sync_below("/data")
        self.log.synced()
        self.disk.sync_below("/data")  # the snapshots written after the flush
        self.safe_offset = self.log.recovery_point
        self.checkpoint()
        self.is_clean = True

    # ---------------------------------------------------------------------------------- reopening

    def reopen(self) -> None:
        recovery_point = read_offsets(self.disk, CHECKPOINT).get(PARTITION, 0)
        start_offset = read_offsets(self.disk, STARTS).get(PARTITION, 0)
        self.said = []
        self.log = open_at(
            self.disk,
            clean=self.is_clean,
            recovery_point=recovery_point,
            start=start_offset,
            config=self.config,
            said=self.said,
        )
        self.is_clean = False
        self.check_records()
        self.check_indexes()
        self.check_state()
        self.go_on_from_what_is_there()

    def check_records(self) -> None:
        end_offset = self.log.log_end_offset
        assert end_offset >= self.safe_offset, f"{self}: lost {end_offset} to {self.safe_offset}"
        found = stored(self.log)
        last = headers_of(found)[-1].next_offset if found else self.log.log_start_offset
        assert last == end_offset, f"{self}: the log does not end where its records end"
        for history in [self.history, *reversed(self.undone)]:
            if found == b"".join(between(history, self.log.log_start_offset, end_offset)):
                break
        else:
            raise AssertionError(f"{self}: not what was appended")
        self.history = history
        self.undone.clear()

    def check_indexes(self) -> None:
        segments = self.log.segments
        for segment in segments:
            check_segment(segment, str(self))
        assert [s.base_offset for s in segments] == sorted({s.base_offset for s in segments})
        offsets = range(self.log.log_start_offset, self.log.log_end_offset)
        for offset in self.rng.sample(offsets, min(5, len(offsets))):
            header = headers_of(read(self.log, offset, 1))[0]
            assert header.base_offset <= offset <= header.last_offset

    def check_state(self) -> None:
        expected, aborted, epochs = ProducerState(), [], []
        start_offset = self.log.log_start_offset
        for batch in between(self.history, 0, self.log.log_end_offset):
            header = read_header(batch)
            if epochs and header.base_offset <= start_offset:
                epochs.clear()
            if not epochs or epochs[-1][0] != header.leader_epoch:
                epochs.append((header.leader_epoch, max(start_offset, header.base_offset)))
            completed = expected.update(header, header.base_offset, marker_of(batch, header))
            if completed is not None and completed.is_aborted:
                aborted.append(aborted_txn(completed, expected))
        if self.log.log_end_offset > start_offset:
            assert self.log.epochs.entries == epochs, f"{self}: epochs"
        self.find_vague()
        found = self.log.aborted_transactions(start_offset, FOREVER)
        assert self.readable(found) == self.readable(aborted), f"{self}: aborts"
        known, wanted = described(self.log.producers), described(expected)
        for producer_id in expected.producers:
            if producer_id not in self.vague:
                assert known.get(producer_id) == wanted[producer_id], f"{self}: producers"

    def find_vague(self) -> None:
        for batch in self.history:
            header = read_header(batch)
            is_deleted = header.last_offset < self.log.log_start_offset
            if is_deleted and header.last_offset >= self.safe_offset:
                self.vague.add(header.producer_id)

    def readable(self, txns: list[AbortedTxn]) -> list[tuple[int, int, int]]:
        """Return the aborted transactions that a reader needs, without deleted records."""
        start_offset = self.log.log_start_offset
        return [
            (txn.producer_id, max(txn.first_offset, start_offset), txn.last_offset)
            for txn in txns
            if txn.last_offset >= start_offset and txn.producer_id not in self.vague
        ]

    def go_on_from_what_is_there(self) -> None:
        self.history = between(self.history, 0, self.log.log_end_offset)
        self.epoch = max(self.epoch, self.log.epochs.latest_epoch)
        self.take_over()
        self.retry_last_batches()
        self.checkpoint()  # the old one may cover more than is left

    def take_over(self) -> None:
        """Reset the producers to what the log knows about them."""
        self.open_txns = set(self.log.producers._open_txns)
        self.sequences = {}
        for entry in self.log.producers.producers.values():
            self.sequences[entry.producer_id] = entry.last_sequence + 1

    def retry_last_batches(self) -> None:
        newest: dict[int, tuple[BatchHeader, bytes]] = {}
        for batch in self.history:
            header = read_header(batch)
            is_there = header.base_offset >= self.log.log_start_offset
            if header.producer_id >= 0 and not header.is_control and is_there:
                newest[header.producer_id] = header, batch
        for header, batch in newest.values():
            result = self.log.append(batch, header, self.epoch, NOW)
            assert result.is_duplicate, f"{self}: a retry was not recognised"
            assert (result.base_offset, result.last_offset) == (
                header.base_offset,
                header.last_offset,
            )

    def __str__(self) -> str:
        return f"seed {self.seed}"


def between(history: list[bytes], start_offset: int, end_offset: int) -> list[bytes]:
    """Return the batches that have a record in the range and do not extend beyond its end."""
    headers = [(read_header(batch), batch) for batch in history]
    return [
        batch
        for header, batch in headers
        if header.last_offset >= start_offset and header.next_offset <= end_offset
    ]


def check_segment(segment: Segment, story: str) -> None:
    headers = list(segment.iter_headers(0, wait=True))
    by_position = {header.position: header for header in headers}
    offsets, positions = segment.offset_index.load()
    assert segment.offset_index.is_rising(), story
    for relative, position in zip(offsets, positions, strict=True):
        assert by_position[position].last_offset == segment.base_offset + relative, story
    times, relatives = segment.time_index.load()
    assert segment.time_index.is_rising(), story
    for timestamp, relative in zip(times, relatives, strict=True):
        before = [h for h in headers if h.last_offset <= segment.base_offset + relative]
        assert before[-1].last_offset == segment.base_offset + relative, story
        assert max(h.max_timestamp for h in before) == timestamp, story
    newest = max((h.max_timestamp for h in headers), default=-1)
    assert segment.max_timestamp == newest, story


def described(state: ProducerState) -> dict[int, tuple[object, ...]]:
    """Return everything but the last batch's timestamp, which a snapshot does not store."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.batches[-1][:3] if entry.batches else None,
            entry.last_timestamp,
            entry.txn_first_offset,
            entry.producer_id in state._open_txns,
        )
        for entry in state.producers.values()
    }


def refused(log: Log, offset: int) -> bool:
    """Return whether the batch at `offset` is known to be corrupt."""
    try:
        read(log, offset, 1)
    except KafkaError as error:
        return error.code == ErrorCode.CORRUPT_MESSAGE
    return False


__all__ = ["AbortedTxn", "Story", "check_segment", "described", "refused"]
