"""Priorities as ranges of partitions: how producers and consumers agree without a word.

A topic's partitions are divided among `levels` priorities, the first range to priority 0, the
highest. Both sides work it out from the number of partitions alone, so that a record's priority is
where it lies and needs no header. Ranges are as even as can be; what is left over goes to the
higher priorities, one partition each."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.errors import InvalidConfig

HIGHEST = 0


def priority_ranges(partition_count: int, levels: int) -> list[range]:
    """The partitions of each priority, the highest first. InvalidConfig where there are fewer
    partitions than priorities."""
    if levels < 1:
        raise InvalidConfig(f"There must be at least one priority, not {levels}.")
    if partition_count < levels:
        raise InvalidConfig(
            f"{levels} priorities need at least {levels} partitions, and the topic has "
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
    """Raises InvalidConfig for ranges that are empty, overlap, or reach beyond the topic."""
    taken: set[int] = set()
    for level, partitions in enumerate(ranges):
        if not partitions:
            raise InvalidConfig(f"Priority {level} has no partitions.")
        if min(partitions) < 0 or max(partitions) >= partition_count:
            raise InvalidConfig(
                f"Priority {level} has partitions {partitions.start} to {partitions[-1]}, and the "
                f"topic has 0 to {partition_count - 1}."
            )
        if not taken.isdisjoint(partitions):
            raise InvalidConfig(f"Priority {level} shares partitions with a higher one.")
        taken.update(partitions)


def priority_of(partition: int, ranges: Sequence[range]) -> int:
    """The priority of a partition; one that belongs to none comes after all the others."""
    for level, partitions in enumerate(ranges):
        if partition in partitions:
            return level
    return len(ranges)
