from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import InvalidConfig
from ottla.client.priority import check_ranges, priority_of, priority_ranges


def test_partitions_are_divided_evenly_and_the_highest_priority_gets_more() -> None:
    assert priority_ranges(7, 3) == [range(3), range(3, 5), range(5, 7)]


@given(st.integers(1, 200), st.integers(1, 20))
def test_every_partition_has_one_priority(partition_count: int, levels: int) -> None:
    if partition_count < levels:
        with pytest.raises(InvalidConfig, match="partitions"):
            priority_ranges(partition_count, levels)
        return
    ranges = priority_ranges(partition_count, levels)
    assert [partition for each in ranges for partition in each] == list(range(partition_count))
    assert len(ranges) == levels
    check_ranges(ranges, partition_count)
    assert all(
        partition in ranges[priority_of(partition, ranges)] for partition in range(partition_count)
    )


@pytest.mark.parametrize(
    "ranges", [[range(2), range(1, 3)], [range(0)], [range(3), range(3, 5)], [range(-1, 2)]]
)
def test_ranges_that_overlap_are_empty_or_reach_too_far_are_refused(ranges: list[range]) -> None:
    with pytest.raises(InvalidConfig):
        check_ranges(ranges, 4)


def test_a_partition_without_priority_comes_last() -> None:
    assert priority_of(9, [range(2), range(2, 4)]) == 2
