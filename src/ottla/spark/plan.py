"""Division of offsets into tasks, and the size of a stream's batches (pure).

The arithmetic is that of Spark's own Kafka source, so that the same options give the same result:

    split             maxRecordsPerPartition first; then minPartitions, cutting large ranges in
                      proportion
    rate_limited      maxOffsetsPerTrigger, divided in proportion to the available records
    TriggerThreshold  minOffsetsPerTrigger: wait for that many records, at most maxTriggerDelay

A partition that is new to a query starts at offset 0. If its first records no longer exist, that
counts as data loss, like all records that retention deletes before they are read (`losses`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.spark.offsets import Offsets

MAX_OFFSET = 0x7FFFFFFFFFFFFFFF
FIRST_OFFSET = 0
"""Start of a partition that was added while the query ran."""


class OffsetRange(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the ranges between the offsets, without empty ones."""
    return [
        OffsetRange(tp.topic, tp.partition, start.get(tp, FIRST_OFFSET), offset)
        for tp, offset in sorted(end.items())
        if offset > start.get(tp, FIRST_OFFSET)
    ]


def losses(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[str]:
    """Describe the partitions and offsets that were to be read and no longer exist."""
    found = [
        f"partition {tp} no longer exists (next offset to read: {offset})"
        for tp, offset in sorted(start.items())
        if tp not in end
    ]
    found += [
        f"partition {tp} ends at offset {end[tp]}, but the query has read it up to {offset}"
        for tp, offset in sorted(start.items())
        if tp in end and end[tp] < offset
    ]
    return found


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    whole = [each for each in ranges if each.size > 0]
    if max_records is not None:
        whole = [
            part
            for each in whole
            for part in _split_evenly(each, math.ceil(each.size / max_records))
        ]
    if min_partitions is None or min_partitions <= len(whole):
        return whole
    total = sum(each.size for each in whole)
    small = [each for each in whole if _proportional_parts(each.size, total, min_partitions) == 1]
    large_total = total - sum(each.size for each in small)
    large_parts = max(min_partitions - len(small), 1)
    return [
        part
        for each in whole
        for part in (
            [each]
            if each in small
            else _split_evenly(each, _proportional_parts(each.size, large_total, large_parts))
        )
    ]


def _proportional_parts(size: int, total: int, parts: int) -> int:
    # Java rounds halves up.
    return max(math.floor(size / total * parts + 0.5), 1)


def _split_evenly(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    made: list[OffsetRange] = []
    start, left = whole.start, whole.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            made.append(whole._replace(start=start, end=start + size))
        start += size
    return made


def rate_limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> Offsets:
    """Return the end offsets of a batch of about `limit` records."""
    sizes = {tp: offset - start.get(tp, FIRST_OFFSET) for tp, offset in end.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total < 1:
        return dict(end)
    limited: Offsets = {}
    for tp, offset in end.items():
        if sizes[tp] <= 0:
            limited[tp] = offset
            continue
        share = limit * (sizes[tp] / total)
        # Rounded up below 1, so that a small partition is not starved.
        taken = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(offset, start.get(tp, FIRST_OFFSET) + taken, MAX_OFFSET)
    return limited


@dataclass
class TriggerThreshold:
    """Decision whether there are enough records for a batch."""

    min_records: int | None
    max_delay_ms: int
    last_batch_ms: int = 0

    def is_reached(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], now_ms: int
    ) -> bool:
        if self.min_records is None:
            return True
        waiting = sum(max(offset - start.get(tp, FIRST_OFFSET), 0) for tp, offset in end.items())
        if waiting < self.min_records and now_ms - self.last_batch_ms < self.max_delay_ms:
            return False
        self.last_batch_ms = now_ms
        return True
