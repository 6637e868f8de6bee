"""Tests of a partition's log: appends, reads, look-ups, flushes and removals."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from tests.unit.storage.logs import (
    DIRECTORY,
    FOREVER,
    NOW,
    SMALL,
    append,
    append_batch,
    batch_of,
    end_txn,
    follow,
    headers_of,
    new_disk,
    open_at,
    read,
    records_of,
    stored,
    values,
)

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.flush import SyncFailed
from ottla.storage.log import Log
from ottla.storage.segment import WouldBlock, segment_path
from ottla.storage.txn_index import AbortedTxn, TransactionIndex
from ottla.testing.simulation.disk import Fault, SimulatedDisk
from ottla.wire.records.batch import read_header


def filled(disk: SimulatedDisk, batches: int = 20, config: TopicConfig = SMALL) -> Log:
    """Create a log with batches of two records each."""
    log = open_at(disk, config=config)
    for number in range(batches):
        append(log, b"v%d" % (2 * number), b"v%d" % (2 * number + 1))
    return log


def numbered(first: int, end: int) -> list[bytes]:
    return [b"v%d" % number for number in range(first, end)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def refusal(call: object, *arguments: object, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value


# ----------------------------------------------------------------------------------------- append


def test_appended_batches_get_the_next_offsets_and_the_leaders_epoch() -> None:
    log = open_at(new_disk())
    assert append(log, b"a", b"b", epoch=3) == (0, 1, False)
    assert append(log, b"c", epoch=4) == (2, 2, False)
    assert log.log_end_offset == 3
    assert [(h.base_offset, h.leader_epoch) for h in headers_of(stored(log))] == [(0, 3), (2, 4)]
    assert log.epochs.entries == [(3, 0), (4, 2)]


def test_what_is_stored_is_the_batch_with_offset_and_epoch_stamped() -> None:
    log = open_at(new_disk())
    append(log, b"a")
    batch = batch_of(b"b", b"c", timestamp=NOW)
    append_batch(log, batch, epoch=2)
    assert read(log, 1) == struct.pack(">q", 1) + batch[8:12] + struct.pack(">i", 2) + batch[16:]


def test_a_retry_is_answered_with_its_first_offsets_and_not_written() -> None:
    log = open_at(new_disk())
    batch = batch_of(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert append_batch(log, batch) == (0, 1, False)
    append(log, b"c")
    assert append_batch(log, batch) == (0, 1, True)
    assert log.log_end_offset == 3


def test_an_epoch_that_is_over_may_not_append() -> None:
    log = open_at(new_disk())
    append(log, b"a", epoch=5)
    assert refusal(append, log, b"b", epoch=4).code == ErrorCode.FENCED_LEADER_EPOCH
    assert log.log_end_offset == 1


@pytest.mark.parametrize("operation", ["write", "open"])
def test_a_full_disk_is_a_storage_error_and_changes_nothing(operation: str) -> None:
    disk = new_disk()
    log = filled(disk)
    before, end, segments = stored(log), log.log_end_offset, bases(log)
    entries = [len(segment.offset_index) for segment in log.segments]
    disk.inject(Fault(operation, error=28, path=".log", times=10))
    batch = batch_of(b"x" * 200, producer_id=7, producer_epoch=0, base_sequence=0)
    error = refusal(append_batch, log, batch)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert error.message.startswith("disk full: ")
    assert (stored(log), log.log_end_offset) == (before, end)
    assert 7 not in log.producers.producers
    disk.heal()
    assert append_batch(log, batch) == (end, end, False)
    assert stored(log)[: len(before)] == before
    assert bases(log)[: len(segments)] == segments
    assert [len(s.offset_index) for s in log.segments][: len(segments) - 1] == entries[:-1]


def test_a_roll_that_fails_leaves_no_file_behind() -> None:
    disk = new_disk()
    log = filled(disk, 4)
    size = log.active.size
    next_log = segment_path(DIRECTORY, 8, "log")
    # The roll must truncate this leftover file.
    disk.open(next_log, create=True).write(0, [b"of a crash"])
    disk.inject(Fault("truncate", path=next_log))
    refused = refusal(append, log, b"x" * (400 - size))
    assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not disk.exists(next_log)
    append(log, b"small")
    for number in range(10):
        append(log, b"after%d" % number)
    expected = values(log)
    log = open_at(disk.kill())
    assert values(log) == expected


@pytest.mark.parametrize("extension", [".index", ".log"])
def test_an_append_that_cannot_read_what_it_needs_gives_no_offset_away(extension: str) -> None:
    disk = new_disk()
    filled(disk, 3).close(NOW)
    disk = disk.kill()
    log = open_at(disk, clean=True, recovery_point=6)
    log.active.unload()
    log.active._max_timestamp = None
    disk.inject(Fault("read", path=extension, times=3))
    assert refusal(append, log, b"v6").code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    append(log, b"v6")
    assert records_of(stored(log))[-1] == (6, b"v6")
    assert [h.base_offset for h in headers_of(stored(log))] == [0, 2, 4, 6]


def test_a_marker_that_finds_no_room_in_the_index_of_aborts_is_not_forgotten() -> None:
    disk = new_disk()
    log = open_at(disk)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    disk.inject(Fault("open", error=28, path=".txnindex"))
    assert end_txn(log, 7, commit=False) == (1, 1, False)
    assert log.log_end_offset == 2
    assert [txn.producer_id for txn in log.aborted_transactions(0, 2)] == [7]
    log.flush(NOW)
    assert disk.size(f"{DIRECTORY}/{0:020d}.txnindex") == 34


# ------------------------------------------------------------------------------------------ rolls


def test_a_segment_rolls_before_it_exceeds_its_size() -> None:
    log = filled(new_disk())
    assert len(log.segments) > 3
    assert all(segment.size <= 400 for segment in log.segments)
    assert bases(log)[0] == 0
    assert values(log) == numbered(0, 40)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_at(new_disk())
    append(log, b"x" * 1_000)
    append(log, b"y" * 1_000)
    append(log, b"z")
    assert bases(log) == [0, 1, 2]


def test_a_segment_rolls_by_the_age_of_its_first_batch() -> None:
    log = open_at(new_disk(), config=replace(SMALL, segment_ms=1_000))
    append(log, b"a", timestamp=5_000)
    append(log, b"b", timestamp=6_000)
    append(log, b"c", timestamp=6_001)
    assert bases(log) == [0, 2]


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    log = open_at(new_disk(), config=replace(SMALL, segment_ms=1_000))
    append(log, b"a", timestamp=-1, now_ms=NOW)
    append(log, b"b", timestamp=-1, now_ms=NOW + 1_000)
    append(log, b"c", timestamp=-1, now_ms=NOW + 1_001)
    assert bases(log) == [0, 2]


def test_the_jitter_of_a_segment_is_the_same_in_every_process() -> None:
    # 2,452 is the CRC-32 of "orders-0@0" modulo 600,000; `hash` would differ after each restart.
    config = replace(SMALL, segment_ms=3_600_000, segment_jitter_ms=600_000)
    log = open_at(new_disk(), config=config)
    append(log, b"a", timestamp=NOW)
    append(log, b"b", timestamp=NOW + 3_600_000 - 2_452)
    assert bases(log) == [0]
    append(log, b"c", timestamp=NOW + 3_600_000 - 2_451)
    assert bases(log) == [0, 2]


def test_a_segment_rolls_when_its_time_index_is_full() -> None:
    config = TopicConfig(index_interval_bytes=0, segment_index_bytes=36)
    log = open_at(new_disk(), config=config)
    for number in range(9):
        append(log, b"v", timestamp=number)
    assert all(len(segment.time_index) <= 3 for segment in log.segments)
    assert len(log.segments) == 3


def test_a_follower_keeps_the_leaders_offsets_and_gaps() -> None:
    log = open_at(new_disk())
    for base_offset in (5, 7, 20, 21, 22, 40, 60, 61, 62, 63, 64, 65):
        follow(log, batch_of(b"v", base_offset=base_offset, leader_epoch=2))
    assert log.log_end_offset == 66
    assert [h.base_offset for h in headers_of(stored(log))][:6] == [5, 7, 20, 21, 22, 40]
    assert refusal(follow, log, batch_of(b"v", base_offset=65)).code != ErrorCode.NONE


def test_a_followers_segments_have_no_gap_between_them() -> None:
    log = open_at(new_disk())
    for base_offset in range(0, 200, 10):
        follow(log, batch_of(b"v" * 50, base_offset=base_offset, leader_epoch=2))
    assert len(log.segments) > 3
    assert all((base - 1) % 10 == 0 for base in bases(log)[1:])


def test_a_gap_too_large_for_an_index_begins_a_segment_behind_it() -> None:
    log = open_at(new_disk())
    follow(log, batch_of(b"a", base_offset=3, leader_epoch=2))
    far = 2**33
    follow(log, batch_of(b"b", base_offset=far, leader_epoch=2))
    assert bases(log) == [0, far]
    assert [h.base_offset for h in headers_of(stored(log))] == [3, far]
    log = open_at(new_disk())
    follow(log, batch_of(b"b", base_offset=far, leader_epoch=2))
    assert bases(log) == [far]
    assert [h.base_offset for h in headers_of(stored(log))] == [far]


# ------------------------------------------------------------------------------------------- read


def test_every_offset_is_found_in_the_batch_that_holds_it() -> None:
    log = filled(new_disk())
    for offset in range(40):
        assert headers_of(read(log, offset))[0].base_offset == offset // 2 * 2


def test_reading_on_gives_everything_once() -> None:
    log = filled(new_disk())
    offset, found = 0, []
    while offset < 40:
        records, offset = log.read(offset, 200, FOREVER, at_least_one=True, wait=False)
        found += headers_of(bytes(records))
    assert [header.base_offset for header in found] == list(range(0, 40, 2))


def test_the_limit_holds_except_for_the_first_batch() -> None:
    log = filled(new_disk())
    size = headers_of(read(log, 0))[0].size
    for limit in (-5, 0, 1, 60, 61, size - 1):
        assert len(log.read(0, limit, FOREVER, at_least_one=True, wait=True).records) == size
        assert log.read(0, limit, FOREVER, at_least_one=False, wait=True) == (b"", 0)
    assert len(log.read(0, size, FOREVER, at_least_one=False, wait=True).records) == size
    assert len(log.read(0, 2 * size - 1, FOREVER, at_least_one=True, wait=True).records) == size
    assert log.read(0, 2 * size, FOREVER, at_least_one=True, wait=True).next_offset == 4


def test_nothing_from_the_maximum_offset_on_is_read() -> None:
    log = filled(new_disk())
    assert log.read(0, 10_000, 4, at_least_one=True, wait=True).next_offset == 4
    assert log.read(4, 10_000, 4, at_least_one=True, wait=True) == (b"", 4)
    assert log.read(40, 10_000, FOREVER, at_least_one=True, wait=True) == (b"", 40)


@pytest.mark.parametrize("offset", [-1, 9, 41])
def test_offsets_outside_the_log_are_refused(offset: int) -> None:
    log = filled(new_disk())
    log.advance_start_offset(10)
    assert refusal(read, log, offset).code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_that_would_block_raises() -> None:
    disk = new_disk()
    log = filled(disk)
    disk.cold_rate = 1.0
    with pytest.raises(WouldBlock):
        log.read(0, 100, FOREVER, at_least_one=True, wait=False)
    assert headers_of(read(log, 0))


def test_a_disk_that_cannot_be_read_is_a_storage_error() -> None:
    disk = new_disk()
    log = filled(disk)
    disk.inject(Fault("read"))
    assert refusal(read, log, 5).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert headers_of(read(log, 5))
    disk.inject(Fault("read", path=".log"))
    assert refusal(log.offset_for_timestamp, NOW).code == ErrorCode.KAFKA_STORAGE_ERROR


def read_until_refused(log: Log) -> tuple[bytes, ErrorCode]:
    offset, found = 0, b""
    while offset < log.log_end_offset:
        try:
            records, offset = log.read(offset, 80, FOREVER, at_least_one=True, wait=True)
        except KafkaError as error:
            return found, error.code
        assert records
        found += bytes(records)
    return found, ErrorCode.NONE


def test_no_flipped_bit_anywhere_is_read_as_good() -> None:
    disk = new_disk()
    log = filled(disk, 5, TopicConfig(segment_bytes=170, index_interval_bytes=0))
    good = stored(log)
    assert len(log.segments) == 3
    for segment in log.segments:
        for bit in range(segment.size * 8):
            disk.flip_bit(segment.file.path, bit // 8, bit % 8)
            log.reader.forget()
            found, error = read_until_refused(log)
            assert error == ErrorCode.CORRUPT_MESSAGE, f"bit {bit} of {segment.file.path}"
            assert good.startswith(found)
            disk.flip_bit(segment.file.path, bit // 8, bit % 8)


def test_a_file_that_has_become_shorter_is_damage_not_an_end() -> None:
    disk = new_disk()
    log = filled(disk, 3)
    disk.open(log.active.file.path).truncate(100)
    assert refusal(stored, log).code == ErrorCode.CORRUPT_MESSAGE


def test_what_is_behind_a_damaged_batch_can_still_be_read() -> None:
    disk = new_disk()
    log = filled(disk)
    disk.flip_bit(log.segments[0].file.path, 70, 1)
    assert refusal(read, log, 0).code == ErrorCode.CORRUPT_MESSAGE
    assert records_of(stored(log, 2))[0] == (2, b"v2")


# ------------------------------------------------------------------------------------ transactions


def test_aborted_transactions_are_found_across_segments() -> None:
    log = open_at(new_disk())
    options = {"producer_epoch": 0, "transactional": True}
    append(log, b"a" * 150, producer_id=7, base_sequence=0, **options)
    append(log, b"b" * 150, producer_id=8, base_sequence=0, **options)
    append(log, b"c" * 150, producer_id=9, base_sequence=0, **options)
    end_txn(log, 8, commit=True)
    end_txn(log, 7, commit=False)
    append(log, b"d" * 150)
    end_txn(log, 9, commit=False)
    assert len(log.segments) > 2
    found = log.aborted_transactions(0, log.log_end_offset)
    assert found == [(7, 0, 4, 2), (9, 2, 6, 7)]
    assert log.aborted_transactions(0, 1) == [(7, 0, 4, 2)]
    assert log.aborted_transactions(5, 7) == [(9, 2, 6, 7)]


def test_the_index_knows_an_abort_before_the_stable_offset_passes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers in other threads read the last stable offset first, then the aborted transactions."""
    log = open_at(new_disk())
    append(log, b"a", producer_id=7, base_sequence=0, producer_epoch=0, transactional=True)
    seen: list[int | None] = []
    append_entry = TransactionIndex.append

    def spy(index: TransactionIndex, entry: AbortedTxn) -> None:
        seen.append(log.producers.first_unstable_offset)
        append_entry(index, entry)

    monkeypatch.setattr(TransactionIndex, "append", spy)
    end_txn(log, 7, commit=False)
    assert seen == [0]
    assert log.producers.first_unstable_offset is None
    assert log.aborted_transactions(0, 2) == [(7, 0, 1, 2)]


def test_a_read_that_may_not_wait_does_not_load_the_index_of_aborts() -> None:
    disk = new_disk()
    log = open_at(disk)
    append(log, b"a", producer_id=7, base_sequence=0, producer_epoch=0, transactional=True)
    end_txn(log, 7, commit=False)
    assert log.aborted_transactions(0, 2, wait=False) == [(7, 0, 1, 2)]
    log.close(0)
    log = open_at(disk)
    for segment in log.segments:
        segment.txn_index._entries = None
    with pytest.raises(WouldBlock):
        log.aborted_transactions(0, 2, wait=False)
    assert log.aborted_transactions(0, 2) == [(7, 0, 1, 2)]
    assert log.aborted_transactions(0, 2, wait=False) == [(7, 0, 1, 2)]


# ------------------------------------------------------------------------------------- timestamps


def test_the_first_record_at_or_after_a_time_is_found() -> None:
    log = open_at(new_disk())
    times = [10, 30, 20, 50, 40, 60, 60, 70]
    for time in times:
        append(log, b"v%d" % time, timestamp=time)
    for target in range(75):
        expected = next((n for n, time in enumerate(times) if time >= target), None)
        found = log.offset_for_timestamp(target)
        assert (None if found is None else found.offset) == expected
        assert found is None or found.timestamp == times[found.offset]


def test_deleted_records_are_not_found_by_time() -> None:
    log = open_at(new_disk())
    for time in (10, 20, 30):
        append(log, b"v", b"w", timestamp=time)
    log.advance_start_offset(3)
    found = log.offset_for_timestamp(5)
    assert found == (20, 3, 0)


def test_the_newest_record_is_the_first_with_the_largest_timestamp() -> None:
    log = open_at(new_disk())
    assert log.offset_of_max_timestamp() is None
    for time in (10, 70, 30, 70, 20):
        append(log, b"v", b"w", timestamp=time)
    assert log.offset_of_max_timestamp() == (70, 2, 0)


# ----------------------------------------------------------------------------------------- flushes


def test_a_flush_makes_everything_safe() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    assert log.recovery_point == 40
    expected = stored(log)
    for _ in range(10):
        disk = disk.power_cut()
        assert stored(open_at(disk, recovery_point=40)) == expected


def test_a_segment_closed_just_at_the_recovery_point_has_its_indexes_saved() -> None:
    disk = new_disk()
    log = filled(disk, 3)
    log.flush(NOW)
    log.roll(NOW)
    append(log, b"next")
    log.flush(NOW)
    assert disk.exists(log.segments[0].offset_index.path)
    assert log.segments[0].offset_index.is_sane(log.segments[0].size)


def test_a_failed_flush_leaves_the_recovery_point_and_is_done_again() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    append(log, b"more" * 40)
    append(log, b"more" * 40)
    unflushed = log.unflushed_messages
    disk.inject(Fault("sync", path=".log"))
    with pytest.raises(SyncFailed):
        log.flush(NOW)
    assert (log.recovery_point, log.unflushed_messages) == (40, unflushed)
    disk.inject(Fault("write", error=28, path=".snapshot"))
    with pytest.raises(OSError, match="No space left") as caught:
        log.flush(NOW)
    assert not isinstance(caught.value, SyncFailed)
    log.flush(NOW)
    assert log.recovery_point == 42
    assert all(disk.exists(f"{DIRECTORY}/{base:020d}.snapshot") for base in bases(log)[1:])


def test_a_flush_that_a_truncation_overtakes_makes_nothing_safe() -> None:
    disk = new_disk()
    log = filled(disk)
    job = log.begin_flush()
    log.truncate_to(10, NOW)
    append(log, b"other" * 50)
    append(log, b"history" * 50)
    syncs = disk.calls["sync"]
    job.run()
    assert disk.calls["sync"] == syncs
    log.flushed(job, NOW)
    assert log.recovery_point == 0
    assert job.offset == 0
    log.flush(NOW)
    assert log.recovery_point == 12
    snapshots = [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert max(snapshots) <= f"{12:020d}.snapshot"


def test_an_index_that_was_cut_is_synced_with_the_log() -> None:
    """Otherwise, a power cut could restore entries that point into other batches."""
    for seed in range(30):
        disk = new_disk(seed)
        config = TopicConfig(index_interval_bytes=100)
        log = filled(disk, 20, config)
        log.flush(NOW, with_indexes=True)
        log.truncate_to(10, NOW)
        for number in range(12):
            append(log, b"another history %d" % number)
        log.flush(NOW)
        expected = stored(log)
        log = open_at(disk.power_cut(), recovery_point=log.recovery_point, config=config)
        assert stored(log) == expected
        for offset in range(log.log_end_offset):
            header = headers_of(read(log, offset))[0]
            assert header.base_offset <= offset <= header.last_offset


def test_aborted_transactions_are_synced_with_the_log() -> None:
    for seed in range(30):
        disk = new_disk(seed)
        config = TopicConfig(index_interval_bytes=100)
        log = filled(disk, 5, config)
        log.flush(NOW)
        append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 7, commit=False)
        for number in range(10):
            append(log, b"w%d" % number)
        log.flush(NOW)
        log.begin_flush(with_indexes=True)
        log = open_at(disk.power_cut(), recovery_point=log.recovery_point, config=config)
        assert [txn.producer_id for txn in log.aborted_transactions(0, 100)] == [7]


# ---------------------------------------------------------------------------------------- removals


def test_a_new_start_hides_what_is_before_it() -> None:
    log = filled(new_disk())
    log.advance_start_offset(5)
    assert headers_of(read(log, 5))[0].base_offset == 4
    assert values(log) == numbered(5, 40)
    log.advance_start_offset(3)
    assert log.log_start_offset == 5


def test_detached_segments_are_marked_and_out_of_the_log() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    second = log.segments[2].base_offset
    removed = log.detach_head(2, NOW)
    assert log.log_start_offset == second == bases(log)[0]
    assert all(segment.file.path.endswith(".log.deleted") for segment in removed)
    for segment in removed:
        segment.remove()
    assert not [name for name in disk.list(DIRECTORY) if "deleted" in name]
    assert values(log) == numbered(second, 40)


def test_detaching_everything_leaves_an_empty_log_at_its_end() -> None:
    log = filled(new_disk())
    log.detach_head(len(log.segments), NOW)
    log.flush(NOW)
    log.detach_head(len(log.segments) - 1, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    append(log, b"next")
    assert values(log) == [b"next"]


@pytest.mark.parametrize("offset", range(0, 42, 2))
def test_truncation_leaves_what_was_before(offset: int) -> None:
    disk = new_disk()
    log = filled(disk)
    assert log.end_after_truncation(offset) == min(offset, 40)
    log.truncate_to(offset, NOW)
    assert log.log_end_offset == min(offset, 40)
    assert values(log) == numbered(0, min(offset, 40))
    append(log, b"new", timestamp=NOW + 5)
    found = log.offset_for_timestamp(NOW + 1)
    assert found is not None
    assert found.offset == min(offset, 40)
    expected = values(log)
    assert values(open_at(disk.kill())) == expected


def test_truncation_below_the_start_moves_the_start() -> None:
    log = filled(new_disk())
    log.advance_start_offset(9)
    log.truncate_to(4, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    append(log, b"new")
    assert values(log) == [b"new"]


def test_truncation_forgets_producers_and_epochs_that_came_later() -> None:
    log = open_at(new_disk())
    for number in range(6):
        append(log, b"x" * 150, epoch=number, producer_id=7, producer_epoch=0, base_sequence=number)
    log.truncate_to(3, NOW)
    assert log.epochs.entries == [(0, 0), (1, 1), (2, 2)]
    assert log.producers.producers[7].last_sequence == 2
    again = batch_of(b"other", producer_id=7, producer_epoch=0, base_sequence=3)
    assert append_batch(log, again, epoch=9) == (3, 3, False)


def test_truncating_fully_begins_anew() -> None:
    disk = new_disk()
    log = filled(disk)
    log.truncate_fully(1_000, NOW)
    assert log.epochs.entries == []
    assert (log.log_start_offset, log.log_end_offset) == (1_000, 1_000)
    assert append(log, b"new").base_offset == 1_000
    log.flush(NOW)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")] == []
    log = open_at(disk.kill(), start=1_000)
    assert values(log) == [b"new"]


# ----------------------------------------------------------------------------------------- closing


def test_a_closed_log_opens_without_a_word() -> None:
    disk = new_disk()
    log = filled(disk)
    expected = stored(log)
    log.close(NOW)
    said: list[str] = []
    log = open_at(disk.power_cut(), clean=True, recovery_point=40, said=said)
    assert said == []
    assert stored(log) == expected
    assert log.recovery_point == 40


def test_a_log_flushed_and_then_closed_has_its_indexes_on_disk() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    log.close(NOW)
    assert all(disk.exists(segment.offset_index.path) for segment in log.segments)


def test_a_log_that_was_only_read_writes_nothing_when_it_is_closed() -> None:
    disk = new_disk()
    filled(disk).close(NOW)
    disk = disk.kill()
    log = open_at(disk, clean=True, recovery_point=40)
    stored(log)
    log.write_out()
    assert disk.calls["write"] == disk.calls["rename"] == disk.calls["truncate"] == 0


def test_logs_that_are_closed_together_keep_the_snapshots_of_their_segments() -> None:
    """They are written only after the sync, as a snapshot implies that earlier data is durable."""
    disk = new_disk()
    log = filled(disk)
    log.write_out()
    assert not any(disk.exists(f"{DIRECTORY}/{base:020d}.snapshot") for base in bases(log))
    disk.sync_below("/data")
    log.synced()
    assert log.recovery_point == 40
    assert all(disk.exists(f"{DIRECTORY}/{base:020d}.snapshot") for base in bases(log)[1:])


def test_snapshots_of_clean_shutdowns_do_not_pile_up() -> None:
    disk = new_disk()
    for number in range(5):
        log = open_at(disk, clean=True, recovery_point=number)
        append(log, b"v", producer_id=7, producer_epoch=0, base_sequence=number)
        log.close(NOW)
        disk = disk.kill()
    open_at(disk, clean=True, recovery_point=5)
    snapshots = [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]
    assert snapshots == [f"{5:020d}.snapshot"]


def test_a_header_read_once_is_enough_to_append_many_times() -> None:
    log = open_at(new_disk())
    batch = memoryview(bytearray(batch_of(b"v")))
    header = read_header(batch)
    for _ in range(5):
        log.append(batch, header, 0, NOW)
    assert [offset for offset, _ in records_of(stored(log))] == [0, 1, 2, 3, 4]
