"""Failing seeds of the simulation, each reduced to a short scenario."""

from __future__ import annotations

from tests.sim.power_cut import refused
from tests.sim.test_power_cut import flipped_bit, power_cuts
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    append,
    batch_of,
    follow,
    headers_of,
    new_disk,
    open_at,
    read,
    stored,
    values,
)

from ottla.base.config.topic import TopicConfig
from ottla.storage.log import Log
from ottla.testing.simulation.disk import PowerCut, SimulatedDisk
from ottla.wire.records.batch import read_header

ROOMY = TopicConfig(segment_bytes=2**20)


def produce(log: Log, sequence: int, producer_id: int = 7) -> int:
    """Append one record of an idempotent producer and return its offset."""
    appended = append(log, b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return appended.base_offset


def is_known(log: Log, sequence: int, producer_id: int = 7) -> bool:
    """Return whether the log recognises the retry of a record as a duplicate."""
    end_offset = log.log_end_offset
    return produce(log, sequence, producer_id) < end_offset


def log_of_two_segments(disk: SimulatedDisk) -> Log:
    """Return an unflushed log with producer 7 at offsets 0 and 1, and a new segment after them."""
    log = open_at(disk, config=ROOMY)
    disk.sync_directory(DIRECTORY)
    produce(log, 0)
    produce(log, 1)
    log.roll(NOW)
    append(log, b"of nobody")
    return log


# ------------------------------------------------------------------------- producers and deletions


def test_old_segments_stay_until_the_state_of_their_producers_is_on_disk() -> None:
    disk = new_disk()
    log = log_of_two_segments(disk)
    assert log.detach_head(1, NOW) == []
    assert log.log_start_offset == 0
    log.flush(NOW)
    assert [segment.base_offset for segment in log.detach_head(1, NOW)] == [0]
    log = open_at(disk.power_cut(), recovery_point=3, start=2, config=ROOMY)
    assert log.log_start_offset == 2
    assert is_known(log, 1)


def test_old_segments_stay_while_a_flush_is_just_writing_the_snapshot_behind_them() -> None:
    log = log_of_two_segments(new_disk())
    job = log.begin_flush()
    assert log.detach_head(1, NOW) == []
    job.run()
    log.flushed(job, NOW)
    assert len(log.detach_head(1, NOW)) == 1


def test_old_segments_go_as_far_as_snapshots_are_on_disk() -> None:
    log = log_of_two_segments(new_disk())
    log.flush(NOW)
    log.roll(NOW)
    append(log, b"of nobody")
    assert [segment.base_offset for segment in log.detach_head(2, NOW)] == [0]
    assert log.log_start_offset == 2


def test_a_truncation_remembers_producers_whose_snapshot_no_flush_has_written_yet() -> None:
    """Seed 10728: the truncated log had forgotten producer 7 and accepted its retry as new."""
    for begin_flush in (False, True):
        log = log_of_two_segments(new_disk())
        if begin_flush:
            log.begin_flush()
        log.segments[0].truncate_file(0)  # so that only the snapshot knows the producer
        log.truncate_to(2, NOW)
        assert is_known(log, 1)


def test_a_truncation_to_the_very_start_remembers_the_producers_of_deleted_records() -> None:
    """Reduced from seed 11007."""
    disk = new_disk()
    log = log_of_two_segments(disk)
    log.flush(NOW)
    for segment in log.detach_head(1, NOW):
        segment.remove()
    log.truncate_to(2, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    log.flush(NOW)
    log = open_at(disk.power_cut(), recovery_point=2, start=2, config=ROOMY)
    assert is_known(log, 1)


def test_a_log_that_lost_all_its_files_goes_by_its_snapshots_at_once() -> None:
    """Seed 13316: the log had forgotten producer 7 until the next start found the snapshot."""
    disk = new_disk()
    log = log_of_two_segments(disk)
    log.flush(NOW)
    for segment in log.segments:
        disk.remove(segment.file.path)
    log = open_at(disk.kill(), recovery_point=3, start=3, config=ROOMY)
    assert log.log_start_offset == 3
    assert is_known(log, 1)


def test_a_log_that_begins_behind_its_lost_end_remembers_producers_through_every_cut() -> None:
    """Records 0 to 9 are deleted; then a power cut removes the records that were not flushed."""
    for calls in range(60):
        disk = new_disk(calls)
        log = open_at(disk, config=ROOMY)
        produce(log, 0)
        log.roll(NOW)
        produce(log, 1)
        log.flush(NOW)
        disk = disk.power_cut()
        disk.cut_in(calls)
        try:
            open_at(disk, recovery_point=2, start=10, config=ROOMY)
        except PowerCut:
            disk = disk.power_cut()
        disk.cut_in(None)
        log = open_at(disk, recovery_point=2, start=10, config=ROOMY)
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)
        assert is_known(log, 1), calls
        log.flush(NOW)
        assert is_known(open_at(disk.power_cut(), recovery_point=10, start=10), 1), calls


def test_an_emptied_log_begins_with_its_own_first_segment_after_a_power_cut() -> None:
    """Seed 246: the new first file was lost, and a later one had become the start of the log."""
    for seed in range(20):
        disk = new_disk(seed)
        log = log_of_two_segments(disk)
        log.truncate_fully(0, NOW)
        for _ in range(10):
            append(log, b"x" * 300)
            log.roll(NOW)
        log = open_at(disk.power_cut())
        assert log.log_start_offset == 0


# ------------------------------------------------------------------------------------ flipped bits


def test_a_safe_batch_that_a_flipped_bit_shortened_loses_no_byte() -> None:
    """Seed 13121: the bytes after the batch's wrong end were mistaken for an unfinished write."""
    disk = new_disk()
    log = open_at(disk, config=ROOMY)
    append(log, b"first")
    append(log, b"last")
    log.flush(NOW)
    (segment,) = log.segments
    path, size = segment.file.path, segment.size
    last = list(segment.iter_headers(0, wait=True))[-1]
    disk.flip_bit(path, last.position + 11, 2)  # in the length field
    assert read_header(disk.read_bytes(path), last.position).size == last.size - 4
    disk = disk.power_cut()
    log = open_at(disk, recovery_point=2, config=ROOMY)
    assert disk.size(path) == size
    assert log.log_end_offset == 2
    disk.flip_bit(path, last.position + 11, 2)
    log = open_at(disk.kill(), recovery_point=2, config=ROOMY)
    assert values(log) == [b"first", b"last"]


def test_a_batch_whose_offset_a_flipped_bit_lowered_is_refused_though_it_is_indexed() -> None:
    """Seed 50244: the index pointed straight at the batch, and its reader got the next one."""
    disk = new_disk()
    log = open_at(disk, config=TopicConfig(index_interval_bytes=0))
    for _ in range(4):
        append(log, b"x")
    log.close(NOW)
    third = list(log.active.iter_headers(0, wait=True))[2]
    assert log.active.offset_index.lookup(2).position == third.position
    disk.flip_bit(log.active.file.path, third.position + 7, 0)  # 2 becomes 3
    disk.flip_bit(log.active.file.path, third.position + 7, 1)  # 3 becomes 1
    log = open_at(disk.kill(), clean=True, recovery_point=4)
    assert refused(log, 2)
    assert [header.base_offset for header in headers_of(read(log, 3))] == [3]


def test_an_unfinished_write_behind_safe_batches_is_still_cut() -> None:
    disk = new_disk()
    log = open_at(disk, config=ROOMY)
    append(log, b"safe")
    log.flush(NOW)
    size = log.active.size
    append(log, b"unfinished")
    log.active.truncate_file(size + 20)
    log = open_at(disk.kill(), recovery_point=1, config=ROOMY)
    assert disk.kill().size(log.active.file.path) == size
    assert append(log, b"next").base_offset == 1


# --------------------------------------------------------------------------------- followers' gaps


def followed_into_a_gap(disk: SimulatedDisk) -> Log:
    """Return a log with a batch at 0, a gap at 1 and 2, and everything after the gap truncated."""
    log = open_at(disk)
    follow(log, batch_of(b"first", base_offset=0, leader_epoch=0))
    follow(log, batch_of(b"undone", base_offset=3, leader_epoch=0))
    log.truncate_to(3, NOW)
    assert log.log_end_offset == 3
    return log


def test_what_follows_a_truncation_into_a_gap_survives_a_kill() -> None:
    for roll in (False, True):
        for flush in (False, True):
            disk = new_disk()
            log = followed_into_a_gap(disk)
            if roll:
                log.roll(NOW)
            if flush:
                log.flush(NOW)
            safe_offset = log.recovery_point
            assert append(log, b"next").base_offset == 3
            expected = stored(log)
            log = open_at(disk.kill(), recovery_point=safe_offset)
            assert (log.log_start_offset, log.log_end_offset) == (0, 4), (roll, flush)
            assert stored(log) == expected


def test_an_empty_log_truncated_into_a_gap_keeps_its_start() -> None:
    disk = new_disk()
    log = open_at(disk)
    follow(log, batch_of(b"undone", base_offset=1, leader_epoch=0))
    log.truncate_to(1, NOW)
    log.roll(NOW)
    assert append(log, b"next").base_offset == 1
    log = open_at(disk.kill())
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


def test_a_log_that_ends_in_a_gap_is_safe_up_to_its_last_batch() -> None:
    disk = new_disk()
    log = open_at(disk)
    follow(log, batch_of(b"first", base_offset=0, leader_epoch=0))
    follow(log, batch_of(b"undone", base_offset=3, leader_epoch=0))
    log.flush(NOW)
    assert log.end_after_truncation(3) == log.end_after_truncation(2) == 1
    assert log.end_after_truncation(4) == 4
    log.truncate_to(3, NOW)
    log.close(NOW)
    assert log.recovery_point == 1
    log = open_at(disk.kill(), clean=True, recovery_point=1)
    assert log.log_end_offset == 1


# ------------------------------------------------------------------------------------------- seeds


def test_seeds_that_failed_once() -> None:
    for seed in (246, 10_728, 11_007, 11_311, 12_365, 13_316):
        power_cuts(seed)
    for seed in (13_121, 50_244):
        flipped_bit(seed)
