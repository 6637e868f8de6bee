"""A log compared with a list after every operation.

Small segments and index intervals make many of both. The disk is simulated, so the process can
be killed between any two steps, indexes can be lost, and every run is reproducible."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.storage.logs import DIRECTORY, NOW, headers_of, new_disk, open_at

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.log import Log
from ottla.storage.segment import WouldBlock
from ottla.testing.simulation.disk import SimulatedDisk
from ottla.wire.records.batch import BatchHeader, read_header
from ottla.wire.records.builder import build_batch

PRODUCERS = (7, 8)
MAX_SEQUENCE = 0x7FFFFFFF


@dataclass
class Stored:
    """A batch as the log should store it."""

    data: bytes
    header: BatchHeader
    timestamps: list[int]

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


@dataclass
class Producer:
    """An idempotent producer's own state."""

    epoch: int = 0
    next_sequence: int = 0
    sent: int = 0
    """Batches of this epoch that the log has."""


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk: SimulatedDisk = new_disk()
        self.log: Log
        self.batches: list[Stored] = []
        self.producers: dict[int, Producer] = {}
        self.start_offset = 0
        self.end_offset = 0
        self.epoch = 0
        self.config = TopicConfig()

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 1_500]),
        interval=st.sampled_from([0, 100, 300]),
        start=st.sampled_from([0, 1_000]),
    )
    def create(self, segment_bytes: int, interval: int, start: int) -> None:
        self.config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.start_offset = self.end_offset = start
        self.log = open_at(self.disk, start=start, config=self.config)

    # ---------------------------------------------------------------------------------- appending

    sizes = st.sampled_from([0, 1, 30, 150, 600])
    times = st.lists(st.integers(-1, 60), min_size=1, max_size=5)

    @rule(
        times=times, size=sizes, codec=st.sampled_from(["none", "none", "gzip"]), bump=st.booleans()
    )
    def append(self, times: list[int], size: int, codec: str, bump: bool) -> None:
        self.epoch += bump
        batch = self.make(times, size, compression=codec)
        result = self.log.append(batch, read_header(batch), self.epoch, NOW)
        assert (result.base_offset, result.is_duplicate) == (self.end_offset, False)
        self.keep(batch, times, self.end_offset, self.epoch)

    @rule(producer_id=st.sampled_from(PRODUCERS), times=times, size=sizes)
    def produce(self, producer_id: int, times: list[int], size: int) -> None:
        producer = self.producers.setdefault(producer_id, Producer())
        batch = self.from_producer(producer_id, producer.epoch, producer.next_sequence, times, size)
        result = self.log.append(batch, read_header(batch), self.epoch, NOW)
        assert (result.base_offset, result.is_duplicate) == (self.end_offset, False)
        self.keep(batch, times, self.end_offset, self.epoch)
        producer.next_sequence = (producer.next_sequence + len(times)) & MAX_SEQUENCE
        producer.sent += 1

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(0, 4))
    def retry(self, producer_id: int, back: int) -> None:
        """Retry a batch: the last five of the epoch are known; after a restart, at least one."""
        mine = self.batches_of(producer_id)
        if back < min(len(mine), self.remembered(producer_id)):
            stored = mine[-1 - back]
            result = self.log.append(stored.data, stored.header, self.epoch, NOW)
            assert result.is_duplicate
            assert (result.base_offset, result.last_offset) == (
                stored.base_offset,
                stored.header.last_offset,
            )

    @rule(producer_id=st.sampled_from(PRODUCERS), gap=st.integers(1, 1_000))
    def leave_a_gap(self, producer_id: int, gap: int) -> None:
        if self.batches_of(producer_id):
            producer = self.producers[producer_id]
            sequence = (producer.next_sequence + gap) & MAX_SEQUENCE
            batch = self.from_producer(producer_id, producer.epoch, sequence, [5], 1)
            self.refused(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def raise_producer_epoch(self, producer_id: int) -> None:
        if self.batches_of(producer_id):
            old = self.producers[producer_id]
            self.producers[producer_id] = Producer(old.epoch + 1)
            late = self.from_producer(producer_id, old.epoch + 1, 5, [5], 1)
            self.refused(late, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self.produce(producer_id, [7], 1)
            stale = self.from_producer(producer_id, old.epoch, old.next_sequence, [5], 1)
            self.refused(stale, ErrorCode.INVALID_PRODUCER_EPOCH)

    @rule(times=times, size=sizes, gap=st.sampled_from([0, 0, 1, 50]), bump=st.booleans())
    def append_as_follower(self, times: list[int], size: int, gap: int, bump: bool) -> None:
        self.epoch += bump
        base_offset = self.end_offset + gap
        batch = self.make(times, size, base_offset=base_offset, leader_epoch=self.epoch)
        self.log.append_as_follower(batch, read_header(batch), NOW)
        self.keep(batch, times, base_offset, self.epoch)

    def make(self, times: list[int], size: int, **options: object) -> bytes:
        value = b"%d:" % self.end_offset + b"x" * size
        return build_batch([(None, value, (), time) for time in times], **options)  # type: ignore[arg-type]

    def from_producer(
        self, producer_id: int, epoch: int, sequence: int, times: list[int], size: int
    ) -> bytes:
        return self.make(
            times, size, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    def keep(self, batch: bytes, times: list[int], base_offset: int, epoch: int) -> None:
        data = struct.pack(">q", base_offset) + batch[8:12] + struct.pack(">i", epoch) + batch[16:]
        stored = Stored(data, read_header(data), times)
        self.batches.append(stored)
        self.end_offset = stored.next_offset

    def refused(self, batch: bytes, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as caught:
            self.log.append(batch, read_header(batch), self.epoch, NOW)
        assert caught.value.code == code

    def batches_of(self, producer_id: int) -> list[Stored]:
        """Return the batches of the producer's current epoch that the log still has."""
        epoch = self.producers[producer_id].epoch if producer_id in self.producers else -1
        return [
            stored
            for stored in self.batches
            if (stored.header.producer_id, stored.header.producer_epoch) == (producer_id, epoch)
        ]

    def remembered(self, producer_id: int) -> int:
        entry = self.log.producers.producers.get(producer_id)
        return len(entry.batches) if entry is not None else 0

    # ------------------------------------------------------------------------------------ reading

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([-1, 0, 1, 61, 100, 300, 5_000]),
        at_least_one=st.booleans(),
        cold=st.booleans(),
    )
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool, cold: bool) -> None:
        offset = data.draw(st.integers(self.start_offset - 2, self.end_offset + 2), "offset")
        bounds = [b.next_offset for b in self.batches] + [self.start_offset, self.end_offset + 50]
        max_offset = data.draw(st.sampled_from(bounds), "max_offset")
        if not self.start_offset <= offset <= self.end_offset:
            with pytest.raises(KafkaError) as caught:
                self.log.read(offset, max_bytes, max_offset, at_least_one=at_least_one, wait=True)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            return
        expected = self.expected_read(offset, max_bytes, max_offset, at_least_one)
        self.disk.cold_rate = 0.5 if cold else 0.0
        try:
            found = self.log.read(
                offset, max_bytes, max_offset, at_least_one=at_least_one, wait=False
            )
        except WouldBlock:
            found = self.log.read(
                offset, max_bytes, max_offset, at_least_one=at_least_one, wait=True
            )
        self.disk.cold_rate = 0.0
        whole = [stored.data for stored in expected]
        assert bytes(found.records) in [b"".join(whole[:n]) for n in range(len(whole) + 1)]
        if expected:
            is_one_due = at_least_one or len(whole[0]) <= max_bytes
            assert bool(found.records) == is_one_due
        read = headers_of(bytes(found.records))
        assert found.next_offset == (read[-1].next_offset if read else offset)
        if read and read[-1].last_offset != expected[-1].header.last_offset:
            following = expected[len(read)].data  # stopped at a limit or segment end
            is_limit = len(found.records) + len(following) > max_bytes
            bases = [segment.base_offset for segment in self.log.segments]
            assert is_limit or any(
                read[-1].last_offset < base <= found.next_offset for base in bases
            )

    def expected_read(
        self, offset: int, max_bytes: int, max_offset: int, at_least_one: bool
    ) -> list[Stored]:
        """Return all batches that a read may return, in order."""
        del at_least_one, max_bytes
        if offset >= max_offset:
            return []
        return [
            stored
            for stored in self.batches
            if stored.header.last_offset >= offset and stored.base_offset < max_offset
        ]

    @rule(limit=st.sampled_from([1, 200, 100_000]))
    def read_everything(self, limit: int) -> None:
        offset, found = self.start_offset, b""
        while offset < self.end_offset:
            records, offset = self.log.read(offset, limit, 2**62, at_least_one=True, wait=True)
            if not records:
                break
            found += bytes(records)
        expected = [s.data for s in self.batches if s.header.last_offset >= self.start_offset]
        assert found == b"".join(expected)

    @rule(time=st.integers(-1, 62))
    def look_up_a_timestamp(self, time: int) -> None:
        found = self.log.offset_for_timestamp(time)
        expected = next(
            (
                (each, offset, stored.header.leader_epoch)
                for stored in self.batches
                for offset, each in enumerate(stored.timestamps, stored.base_offset)
                if each >= time and offset >= self.start_offset
            ),
            None,
        )
        assert found == expected

    @rule()
    def look_up_the_newest(self) -> None:
        readable = [
            (-time, offset, stored.header.leader_epoch)
            for stored in self.batches
            for offset, time in enumerate(stored.timestamps, stored.base_offset)
            if offset >= self.start_offset
        ]
        found = self.log.offset_of_max_timestamp()
        newest, offset, epoch = min(readable, default=(1, -1, -1))
        newest = -newest
        is_hidden = any(  # by a log start offset inside its batch
            time > newest
            for stored in self.batches
            if stored.base_offset < self.start_offset < stored.next_offset
            for time in stored.timestamps
        )
        if newest >= 0 and not is_hidden:
            assert found == (newest, offset, epoch)

    # ---------------------------------------------------------------------- segments and truncation

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(with_indexes=st.booleans())
    def flush(self, with_indexes: bool) -> None:
        self.log.flush(NOW, with_indexes=with_indexes)
        assert self.log.recovery_point in (self.end_offset, self.written_end)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        bounds = [b.base_offset for b in self.batches] + [self.end_offset, self.end_offset + 5]
        offset = data.draw(st.sampled_from(bounds), "offset")
        if offset < self.log.segments[0].base_offset:
            return
        self.log.truncate_to(offset, NOW)
        self.batches = [stored for stored in self.batches if stored.base_offset < offset]
        if offset < self.end_offset:
            self.end_offset = offset
        self.start_offset = min(self.start_offset, self.end_offset)
        self.forget_producers()

    @rule(ahead=st.integers(0, 500))
    def truncate_fully(self, ahead: int) -> None:
        self.start_offset = self.end_offset = self.end_offset + ahead
        self.log.truncate_fully(self.end_offset, NOW)
        self.batches.clear()
        self.producers.clear()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset), "offset")
        self.log.advance_start_offset(offset)
        self.start_offset = offset

    @rule(count=st.integers(1, 4))
    def detach_head(self, count: int) -> None:
        if count >= len(self.log.segments):
            return
        for segment in self.log.detach_head(count, NOW):
            segment.remove()
        first = self.log.segments[0].base_offset
        self.start_offset = max(self.start_offset, first)
        self.batches = [stored for stored in self.batches if stored.base_offset >= first]

    # ---------------------------------------------------------------------------------- restarting

    @rule(lose=st.sampled_from([None, ".index", ".timeindex", ".snapshot", "checkpoint"]))
    def restart(self, lose: str | None) -> None:
        self.log.close(NOW)
        self.reopen(lose, is_clean=True)

    @rule(lose=st.sampled_from([None, None, ".index", ".timeindex", ".snapshot", "checkpoint"]))
    def kill(self, lose: str | None) -> None:
        self.reopen(lose, is_clean=False)

    def reopen(self, lose: str | None, *, is_clean: bool) -> None:
        recovery_point = self.log.recovery_point
        self.disk = self.disk.kill()
        if lose is not None:
            for name in self.disk.list(DIRECTORY):
                if name.endswith(lose):
                    self.disk.remove(f"{DIRECTORY}/{name}")
        self.log = open_at(
            self.disk,
            clean=is_clean,
            recovery_point=recovery_point,
            start=self.start_offset,
            config=self.config,
        )
        if self.log.log_end_offset < self.end_offset:  # a follower's gap at the very end
            assert self.log.log_end_offset == max(self.written_end, self.start_offset)
            self.end_offset = self.log.log_end_offset
        self.forget_producers()

    @property
    def written_end(self) -> int:
        """Return the end of the last batch.

        It is below the log end offset if a truncation ended in a gap."""
        return self.batches[-1].next_offset if self.batches else self.log.segments[0].base_offset

    def forget_producers(self) -> None:
        """Reset the producers to what the log still knows after a truncation or deletion."""
        known = self.log.producers.producers
        for producer_id in list(self.producers):
            entry = known.get(producer_id)
            if entry is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = Producer(
                    entry.epoch, (entry.last_sequence + 1) & MAX_SEQUENCE, len(entry.batches)
                )
        for producer_id in self.producers:
            mine = self.batches_of(producer_id)
            if mine:
                assert mine[-1].header.last_sequence == known[producer_id].last_sequence

    # ----------------------------------------------------------------------------------- invariants

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def bounds_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end_offset)
        assert log.recovery_point <= log.log_end_offset
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert bases[0] <= self.end_offset

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def epochs_agree(self) -> None:
        for stored in self.batches[-3:]:
            if stored.base_offset >= self.start_offset:
                assert self.log.epochs.epoch_for(stored.base_offset) == stored.header.leader_epoch

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def files_hold_what_memory_says(self) -> None:
        for segment in self.log.segments:
            assert self.disk.size(segment.file.path) == segment.size


NORMAL = settings(max_examples=100, stateful_step_count=40, deadline=None)
LONG = settings(max_examples=3_000, stateful_step_count=80, deadline=None)


def test_a_log_holds_what_a_list_holds() -> None:
    run_state_machine_as_test(LogMachine, settings=NORMAL)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
def test_a_log_holds_what_a_list_holds_for_long() -> None:
    run_state_machine_as_test(LogMachine, settings=LONG)
