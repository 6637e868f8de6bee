"""Tests of which part of a log may be compacted, and when compaction is due."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.compacted_logs import LIMITS, compacted
from tests.unit.storage.small_logs import START_MS, end_transaction, open_test_log, put

from ottla.base.config.topic import TopicConfig
from ottla.storage.compaction import group_segments
from ottla.storage.compaction_job import CompactionJob, SourceSegment
from ottla.storage.compaction_plan import DirtyLog, assess, plan
from ottla.storage.log import Log

HOUR_MS = 3_600_000


def log_of(directory: Path, config: TopicConfig, *ages_in_hours: float) -> Log:
    """Create a log with a segment of ten records for each age and an empty active segment."""
    log = open_test_log(str(directory), config)
    for age in ages_in_hours:
        put(log, [(b"k", b"v")] * 10, timestamp=START_MS - int(age * HOUR_MS))
        log.roll(START_MS)
    return log


def look(log: Log, checkpoint: int | None = None, stable: int | None = None) -> DirtyLog:
    return assess(log, checkpoint, log.log_end_offset if stable is None else stable, START_MS)


def dirty_range(dirty: DirtyLog) -> tuple[int, int]:
    return dirty.first_dirty_offset, dirty.end_offset


def test_a_log_never_cleaned_is_dirty_up_to_its_active_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(), 3, 2, 1)
    put(log, [(b"k", b"v")])
    dirty = look(log)
    assert dirty_range(dirty) == (0, 30)
    assert (dirty.clean_bytes, dirty.dirty_ratio) == (0, 1.0)


def test_the_checkpoint_divides_clean_from_dirty(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(), 3, 2, 1, 1)
    dirty = look(log, 30)
    assert dirty_range(dirty) == (30, 40)
    assert dirty.dirty_ratio == 0.25
    assert dirty.clean_bytes == 3 * log.segments[0].size


def test_a_log_is_due_above_the_dirty_ratio_and_not_at_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(min_cleanable_dirty_ratio=0.5), 3, 2, 1, 1)
    assert not look(log, 20).is_due
    assert look(log, 10).is_due


def test_nothing_is_due_in_an_empty_log_or_a_clean_one(tmp_path: Path) -> None:
    config = compacted(min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    assert not look(open_test_log(str(tmp_path), config)).is_due
    log = log_of(tmp_path, config, 3)
    assert look(log).is_due
    assert not look(log, 10).is_due


@pytest.mark.parametrize(("stable", "end"), [(30, 30), (29, 20), (20, 20), (11, 10), (10, 10)])
def test_only_whole_segments_before_the_last_stable_offset_are_cleaned(
    tmp_path: Path, stable: int, end: int
) -> None:
    log = log_of(tmp_path, compacted(), 3, 2, 1)
    assert look(log, stable=stable).end_offset == end


def test_nothing_is_cleaned_while_the_first_segment_is_not_stable(tmp_path: Path) -> None:
    dirty = look(log_of(tmp_path, compacted(), 3, 2), stable=9)
    assert (dirty.dirty_bytes, dirty.is_due) == (0, False)


def test_records_younger_than_the_min_lag_are_left(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(min_compaction_lag_ms=2 * HOUR_MS), 5, 3, 1, 4)
    assert look(log).end_offset == 20


def test_records_older_than_the_max_lag_force_compaction(tmp_path: Path) -> None:
    quiet = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=4 * HOUR_MS)
    log = log_of(tmp_path, quiet, 5, 3, 1)
    assert look(log).is_due
    assert not look(log, 10).is_due


@pytest.mark.parametrize("checkpoint", [5, 31])
def test_a_checkpoint_outside_the_log_is_replaced_by_its_start(
    tmp_path: Path, checkpoint: int
) -> None:
    log = log_of(tmp_path, compacted(), 3, 2, 1)
    log.advance_start_offset(10)
    dirty = look(log, checkpoint)
    assert (dirty.first_dirty_offset, dirty.is_checkpoint_wrong) == (10, True)
    assert not look(log, 20).is_checkpoint_wrong


def test_a_plan_names_sealed_segments_producers_and_aborted_transactions(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(), 3)
    put(log, [(b"k", b"v")], producer=(7, 0, 0), transactional=True)
    end_transaction(log, 7, 0, commit=False)
    put(log, [(b"k", b"v")], producer=(8, 2, 5))
    end_transaction(log, 9, 4, commit=True)
    log.roll(START_MS)
    put(log, [(b"k", b"v")])
    log.flush(START_MS)
    job = plan(look(log), LIMITS, START_MS).job
    assert [segment.base_offset for segment in job.segments] == [0, 10]
    assert job.producers == {7: (10, 0), 8: (12, 2), 9: (-1, 4)}
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in job.aborted] == [
        (7, 10, 11)
    ]
    assert CompactionJob.from_json(job.to_json()) == job


def test_what_is_not_on_disk_for_good_is_never_planned(tmp_path: Path) -> None:
    log = log_of(tmp_path, compacted(), 3)
    with pytest.raises(AssertionError):
        plan(look(log), LIMITS, START_MS)


# ------------------------------------------------------------------------------------- groups


def sources(*sizes: int, step: int = 10, index_bytes: int = 8) -> list[SourceSegment]:
    return [
        SourceSegment(number * step, size, index_bytes, 12) for number, size in enumerate(sizes)
    ]


def grouped(
    segments: list[SourceSegment], max_bytes: int = 1_000, max_index_bytes: int = 1_000
) -> list[list[int]]:
    groups = group_segments(segments, max_bytes, max_index_bytes, len(segments) * 10)
    return [[segment.size for segment in group] for group in groups]


def test_neighbours_share_a_segment_up_to_segment_bytes() -> None:
    assert grouped(sources(400, 600, 1, 999, 5)) == [[400, 600], [1, 999], [5]]


def test_a_segment_larger_than_the_limit_stands_alone() -> None:
    assert grouped(sources(5, 2_000, 5)) == [[5], [2_000], [5]]


def test_indexes_limit_a_group_too() -> None:
    assert grouped(sources(1, 1, 1, 1, index_bytes=500)) == [[1, 1], [1, 1]]
    assert grouped(sources(1, 1, 1), max_index_bytes=24) == [[1, 1], [1]]


def test_a_group_spans_no_more_offsets_than_an_index_can_hold() -> None:
    segments = sources(1, 1, 0, 1, step=2**30)
    groups = group_segments(segments, 1_000, 1_000, 4 * 2**30)
    assert [[segment.base_offset // 2**30 for segment in group] for group in groups] == [
        [0, 1, 2],
        [3],
    ]
