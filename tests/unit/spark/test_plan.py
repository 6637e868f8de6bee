"""Tests of the source's pure functions: splitting offset ranges, trigger limits, conditions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.errors import InvalidConfig
from ottla.spark.offsets import (
    AtOffsets,
    AtTimestamps,
    Earliest,
    from_json,
    offset_lookup,
    start_overrides_in,
    to_json,
    with_start_overrides,
)
from ottla.spark.plan import (
    OffsetRange,
    TriggerThreshold,
    losses,
    ranges_between,
    rate_limited,
    split,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def r(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


def test_without_options_a_partition_is_one_part() -> None:
    assert split([r(0, 0, 10), r(1, 5, 5)], None, None) == [r(0, 0, 10)]
    assert split([r(0, 0, 10)], 1, None) == [r(0, 0, 10)]


def test_large_ranges_are_split_in_proportion_and_small_ones_are_left_whole() -> None:
    # Spark's KafkaOffsetRangeCalculator returns the same ranges.
    assert split([r(0, 1, 5)], 3, None) == [r(0, 1, 2), r(0, 2, 3), r(0, 3, 5)]
    assert split([r(0, 1, 2), r(1, 1, 2)], 4, None) == [r(0, 1, 2), r(1, 1, 2)]
    parts = split([r(0, 0, 100), r(1, 0, 10), r(2, 0, 990)], 6, None)
    assert [part.partition for part in parts] == [0, 1, 2, 2, 2, 2]


def test_a_limit_of_records_splits_first() -> None:
    assert split([r(0, 0, 25)], None, 10) == [r(0, 0, 8), r(0, 8, 16), r(0, 16, 25)]
    assert len(split([r(0, 0, 25)], 6, 10)) >= 6


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 500),
)
def test_parts_cover_their_ranges_exactly(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [r(number, start, start + size) for number, (start, size) in enumerate(sizes)]
    parts = split(ranges, min_partitions, max_records)
    for each in ranges:
        at = each.start
        for part in [part for part in parts if part.partition == each.partition]:
            assert part.start == at
            assert part.size > 0
            assert max_records is None or part.size <= max_records
            at = part.end
        assert at == each.end


def test_a_limit_is_shared_in_proportion_and_no_partition_starves() -> None:
    start, end = {T0: 0, T1: 0, T2: 5}, {T0: 900, T1: 100, T2: 6}
    limited = rate_limited(start, end, 100)
    assert limited == {T0: 89, T1: 9, T2: 6}
    assert rate_limited(start, end, 10_000) == end
    assert rate_limited(end, end, 1) == end


def test_patience_ends_with_enough_records_or_enough_time() -> None:
    patience = TriggerThreshold(10, 1_000)
    assert patience.is_reached({T0: 0}, {T0: 1}, 5_000)  # the first batch never waits
    assert not patience.is_reached({T0: 1}, {T0: 10}, 5_500)
    assert patience.is_reached({T0: 1}, {T0: 11}, 5_600)
    assert not patience.is_reached({T0: 11}, {T0: 12}, 6_500)
    assert patience.is_reached({T0: 11}, {T0: 12}, 6_600)
    assert TriggerThreshold(None, 1_000).is_reached({}, {}, 0)


def test_new_partitions_begin_at_their_first_offset() -> None:
    assert ranges_between({T0: 3}, {T0: 5, T1: 2}) == [r(0, 3, 5), r(1, 0, 2)]


def test_lost_offsets_are_reported() -> None:
    assert losses({T0: 3, T1: 1}, {T0: 5, T1: 1}) == []
    gone, back = losses({T0: 3, T1: 7}, {T1: 5})
    assert "t-0 no longer exists" in gone
    assert "t-1 ends at offset 5, but the query has read it up to 7" in back


def test_bounds_ask_for_what_is_not_given() -> None:
    assert offset_lookup("startingOffsets", Earliest(), [T0]).timestamps == {T0: -2}
    found = offset_lookup("startingOffsets", AtOffsets({T0: 4, T1: -1}), [T0, T1])
    assert (found.known, found.timestamps) == ({T0: 4}, {T1: -1})
    assert offset_lookup("startingTimestamp", AtTimestamps(9, {}), [T0, T1]).timestamps == {
        T0: 9,
        T1: 9,
    }


def test_offsets_must_name_every_partition_and_no_other() -> None:
    with pytest.raises(InvalidConfig, match="Missing: t-1"):
        offset_lookup("startingOffsets", AtOffsets({T0: 4}), [T0, T1])
    with pytest.raises(InvalidConfig, match="lists partitions that the query does not read: t-1"):
        offset_lookup("startingOffsets", AtOffsets({T0: 4, T1: 1}), [T0])


def test_offsets_are_kept_as_sparks_own_source_keeps_them() -> None:
    assert to_json({T1: 2, T0: 1}) == {"t": {"0": 1, "1": 2}}
    assert from_json({"t": {"0": 1, "1": 2}}) == {T0: 1, T1: 2}
    moved = with_start_overrides({T0: 5}, {T0: 2})
    assert from_json(moved) == {T0: 5}
    assert start_overrides_in(moved) == {T0: 2}
    assert start_overrides_in(to_json({T0: 5})) == {}


def test_conditions_narrow_partitions_and_offsets() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
        Not,
        StringContains,
    )

    from ottla.spark.pushdown import Conditions

    conditions = Conditions()
    since = GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, 0, 0, 9, 1500, UTC))
    kept = [Not(EqualTo(("offset",), 5)), StringContains(("topic",), "x"), since]
    left = conditions.push_down(
        [
            In(("partition",), (0, 1)),
            GreaterThan(("offset",), 3),
            LessThanOrEqual(("offset",), 9),
            LessThan(("partition",), 1),
            IsNotNull(("offset",)),
            In(("topic",), ("t", "u")),
            *kept,
        ]
    )
    assert left == kept
    start, end = conditions.narrow({T0: 0, T1: 0, T2: 0}, {T0: 100, T1: 100, T2: 100})
    assert (start, end) == ({T0: 4}, {T0: 10})
    assert conditions.min_timestamp_ms == 9_001
