"""Tests of retention: which of the oldest segments are deleted, and what remains."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.storage.small_logs import (
    START_MS,
    data_records,
    open_test_log,
    put,
    reopen,
)

from ottla.base.config.topic import TopicConfig
from ottla.storage.retention import ExpiredSegments, LogBounds, apply_retention, expired_segments

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
COMPACT = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})


@dataclass
class Facts:
    base_offset: int
    size: int
    age_ms: int

    @property
    def largest_timestamp(self) -> int:
        return NOW_MS - self.age_ms


def facts(*ages_in_hours: float, size: int = 100) -> list[Facts]:
    return [
        Facts(number * 10, size, int(age * HOUR_MS)) for number, age in enumerate(ages_in_hours)
    ]


def decide(
    segments: list[Facts],
    *,
    start: int = 0,
    end: int | None = None,
    high_watermark: int | None = None,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    policy: frozenset[str] = frozenset({"delete"}),
) -> ExpiredSegments:
    end = segments[-1].base_offset + 10 if end is None else end
    bounds = LogBounds(start, end, end if high_watermark is None else high_watermark)
    config = TopicConfig(
        cleanup_policy=policy, retention_ms=retention_ms, retention_bytes=retention_bytes
    )
    return expired_segments(segments, bounds, config, NOW_MS)


def test_segments_older_than_retention_ms_go() -> None:
    assert decide(facts(9, 8, 2, 1), retention_ms=5 * HOUR_MS) == (2, "retention.ms")


def test_a_segment_exactly_as_old_as_retention_ms_stays() -> None:
    assert decide(facts(5, 1), retention_ms=5 * HOUR_MS).head == 0


def test_an_old_segment_behind_a_young_one_stays() -> None:
    assert decide(facts(1, 9, 1), retention_ms=5 * HOUR_MS).head == 0


def test_without_a_limit_nothing_goes() -> None:
    assert decide(facts(9, 8, 7)).head == 0


def test_the_active_segment_goes_too_when_all_has_expired() -> None:
    assert decide(facts(9, 8, 7), retention_ms=HOUR_MS).head == 3


def test_an_empty_active_segment_never_goes() -> None:
    segments = [*facts(9, 8), Facts(20, 0, 9 * HOUR_MS)]
    assert decide(segments, retention_ms=HOUR_MS, end=20).head == 2


def test_retention_bytes_never_leaves_less_than_the_limit() -> None:
    assert decide(facts(1, 1, 1, 1), retention_bytes=250) == (1, "retention.bytes")
    assert decide(facts(1, 1, 1, 1), retention_bytes=300).head == 1
    assert decide(facts(1, 1, 1, 1), retention_bytes=301).head == 0


def test_retention_bytes_of_zero_empties_the_log() -> None:
    assert decide(facts(1, 1, 1), retention_bytes=0).head == 3


def test_segments_wholly_before_the_start_offset_go_whatever_the_policy() -> None:
    assert decide(facts(1, 1, 1), start=20, policy=COMPACT) == (2, "log start offset")
    assert decide(facts(1, 1, 1), start=19, policy=COMPACT).head == 1


def test_a_compacted_log_keeps_what_is_old_or_large() -> None:
    kept = decide(facts(9, 9), retention_ms=HOUR_MS, retention_bytes=0, policy=COMPACT)
    assert kept.head == 0


def test_compact_and_delete_does_both() -> None:
    assert decide(facts(9, 1), retention_ms=5 * HOUR_MS, policy=BOTH).head == 1


def test_nothing_at_or_behind_the_high_watermark_goes() -> None:
    segments = facts(9, 9, 9)
    assert decide(segments, retention_ms=HOUR_MS, high_watermark=20).head == 2
    assert decide(segments, retention_ms=HOUR_MS, high_watermark=19).head == 1
    assert decide(segments, retention_ms=HOUR_MS, high_watermark=9).head == 0


def test_each_rule_looks_at_what_the_one_before_it_left() -> None:
    segments = facts(9, 9, 9, 1)
    expired = decide(segments, start=10, retention_bytes=250, retention_ms=5 * HOUR_MS)
    assert expired == (3, "log start offset, retention.ms")


# ------------------------------------------------------------------------------- on real logs


def fill(directory: Path, config: TopicConfig, ages_in_hours: list[float], now_ms: int):  # type: ignore[no-untyped-def]
    log = open_test_log(str(directory), config)
    for number, age in enumerate(ages_in_hours):
        if number:
            log.roll(now_ms)
        put(log, [(b"k", b"v%d" % number)] * 3, timestamp=now_ms - int(age * HOUR_MS))
    log.flush(now_ms)
    return log


def test_expired_segments_are_detached_and_the_log_starts_behind_them(tmp_path: Path) -> None:
    config = TopicConfig(retention_ms=5 * HOUR_MS)
    log = fill(tmp_path, config, [9, 8, 1], START_MS)
    segments, reason = apply_retention(log, log.log_end_offset, START_MS)
    assert reason == "retention.ms"
    assert [segment.base_offset for segment in segments] == [0, 3]
    assert log.log_start_offset == 6
    assert [record.value for record in data_records(log)] == [b"v2"] * 3
    assert {name for name in os.listdir(tmp_path) if name.endswith(".log.deleted")} == {
        f"{0:020d}.log.deleted",
        f"{3:020d}.log.deleted",
    }


def test_a_log_whose_last_record_expired_is_empty_and_continues_from_its_end(
    tmp_path: Path,
) -> None:
    log = fill(tmp_path, TopicConfig(retention_ms=HOUR_MS), [9, 8], START_MS)
    first, _ = apply_retention(log, log.log_end_offset, START_MS)
    log.flush(START_MS)
    second, _ = apply_retention(log, log.log_end_offset, START_MS)
    assert (len(first), len(second)) == (1, 1)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (6, 6, 0)
    assert put(log, [(b"k", b"new")]) == 6
    assert [record.value for record in data_records(log)] == [b"new"]


def test_a_second_look_takes_nothing_more(tmp_path: Path) -> None:
    log = fill(tmp_path, TopicConfig(retention_ms=HOUR_MS), [9, 8], START_MS)
    for _ in range(2):
        apply_retention(log, log.log_end_offset, START_MS)
        log.flush(START_MS)
    assert apply_retention(log, log.log_end_offset, START_MS) == ([], "")


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    log = open_test_log(str(tmp_path), TopicConfig(retention_ms=HOUR_MS))
    put(log, [(b"k", b"old")], timestamp=-1)
    log.roll(START_MS)
    put(log, [(b"k", b"new")], timestamp=-1)
    log.flush(START_MS)
    for segment, age_ms in zip(log.segments, (2 * HOUR_MS, 0), strict=True):
        seconds = (START_MS - age_ms) / 1000
        os.utime(segment.file.path, (seconds, seconds))
    segments, _ = apply_retention(log, log.log_end_offset, START_MS)
    assert [segment.base_offset for segment in segments] == [0]


def test_looking_at_timestamps_keeps_no_index_in_memory(tmp_path: Path) -> None:
    config = TopicConfig(retention_ms=5 * HOUR_MS, index_interval_bytes=0)
    log = fill(tmp_path, config, [1, 1, 1, 1], START_MS)
    log = reopen(log)
    for segment in log.segments[:-1]:
        segment.unload()
    assert apply_retention(log, log.log_end_offset, START_MS).segments == []
    assert log.segments[0].max_timestamp == START_MS - HOUR_MS
    assert [segment.time_index._columns for segment in log.segments[:-1]] == [None] * 3
    assert [segment.offset_index._columns for segment in log.segments[:-1]] == [None] * 3


@pytest.mark.parametrize("high_watermark", [0, 2, 3, 5, 6, 8, 9])
def test_the_log_never_starts_behind_the_high_watermark(
    tmp_path: Path, high_watermark: int
) -> None:
    log = fill(tmp_path, TopicConfig(retention_ms=HOUR_MS), [9, 9, 9], START_MS)
    apply_retention(log, high_watermark, START_MS)
    log.flush(START_MS)
    apply_retention(log, high_watermark, START_MS)
    assert log.log_start_offset == high_watermark // 3 * 3
