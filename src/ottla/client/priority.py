"""Priorities as ranges of partitions.

A topic's partitions are divided among `levels` priorities; priority 0, the highest, has the first
range. Producers and consumers compute the ranges from the number of partitions alone, so a record's
partition determines its priority and no header is needed. The ranges are as even as possible: each
of the remaining partitions goes to one of the higher priorities."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.errors import InvalidConfig

HIGHEST = 0


def priority_ranges(partition_count: int, levels: int) -> list[range]:
    """Return the partitions of each priority, highest first.

    Raises:
        InvalidConfig: There are fewer partitions than priorities, or less than one priority.
    """
    if levels < 1:
        raise InvalidConfig(f"The number of priorities must be at least 1, not {levels}.")
    if partition_count < levels:
        raise InvalidConfig(
            f"{levels} priorities need at least {levels} partitions, but the topic has "
            f"{partition_count}."
        )
    share, more = divmod(partition_count, levels)
    ranges: list[range] = []
    start = 0
    for level in range(levels):
        end = start + share + (level < more)
        ranges.append(range(start, end))
        start = end
    return ranges


def check_ranges(ranges: Sequence[range], partition_count: int) -> None:
    """Raise InvalidConfig for ranges that are empty, overlap or exceed the partition count."""
    taken: set[int] = set()
    for level, partitions in enumerate(ranges):
        if not partitions:
            raise InvalidConfig(f"Priority {level} has no partitions.")
        if min(partitions) < 0 or max(partitions) >= partition_count:
            raise InvalidConfig(
                f"Priority {level} has partitions {partitions.start} to {partitions[-1]}, but the "
                f"topic has 0 to {partition_count - 1}."
            )
        if not taken.isdisjoint(partitions):
            raise InvalidConfig(f"Priority {level} shares partitions with a higher one.")
        taken.update(partitions)


def priority_of(partition: int, ranges: Sequence[range]) -> int:
    """Return the priority of a partition; one outside all ranges comes after the lowest."""
    for level, partitions in enumerate(ranges):
        if partition in partitions:
            return level
    return len(ranges)
