"""Pushdown of a batch query's filters, which reduces what is fetched (pure).

Filters on `topic` and `partition` select partitions, and those on `offset` narrow their ranges;
both are exact, so that Spark need not evaluate them again. A lower bound of `timestamp` starts the
read at the first record at or after it. Later records may still be older, so Spark evaluates the
filter again. Upper bounds of `timestamp` are left to Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla.base.types import TopicPartition
from ottla.spark.offsets import Offsets
from ottla.spark.plan import MAX_OFFSET

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Conditions:
    topics: set[str] | None = None
    """Topics to read, or None for all."""
    partitions: list[Filter] = field(default_factory=list)
    min_offset: int = 0
    end_offset: int = MAX_OFFSET
    min_timestamp_ms: int | None = None

    def push_down(self, filters: Iterable[Filter]) -> list[Filter]:
        """Use the filters that can be pushed down; return those that Spark must still evaluate."""
        return [each for each in filters if not self._push_one(each)]

    def _push_one(self, condition: Filter) -> bool:
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        value = getattr(condition, "value", None)
        if len(attribute) != 1:
            return False
        column = attribute[0]
        if isinstance(condition, IsNotNull):
            return column in _NEVER_NULL
        if value is None:
            return False
        if column == "topic":
            return self._push_topics(condition, value)
        if column == "partition" and _is_integer(value):
            self.partitions.append(condition)
            return isinstance(condition, _COMPARISONS)
        if column == "offset" and _is_integer(value):
            return self._push_offset(condition, value)
        if column == "timestamp":
            self._push_timestamp(condition, value)
        return False

    def _push_topics(self, condition: Filter, value: Any) -> bool:
        if isinstance(condition, EqualTo):
            chosen = {value}
        elif isinstance(condition, In):
            chosen = set(value)
        else:
            return False
        self.topics = chosen if self.topics is None else self.topics & chosen
        return True

    def _push_offset(self, condition: Filter, value: Any) -> bool:
        if isinstance(condition, In):
            chosen = [each for each in value if each is not None] or [-1]
            self._narrow_offsets(min(chosen), max(chosen) + 1)
            return False
        if isinstance(condition, EqualTo):
            self._narrow_offsets(value, value + 1)
        elif isinstance(condition, GreaterThan):
            self._narrow_offsets(value + 1, MAX_OFFSET)
        elif isinstance(condition, GreaterThanOrEqual):
            self._narrow_offsets(value, MAX_OFFSET)
        elif isinstance(condition, LessThan):
            self._narrow_offsets(0, value)
        elif isinstance(condition, LessThanOrEqual):
            self._narrow_offsets(0, value + 1)
        else:
            return False
        return True

    def _narrow_offsets(self, minimum: int, end: int) -> None:
        self.min_offset = max(self.min_offset, minimum)
        self.end_offset = min(self.end_offset, end)

    def _push_timestamp(self, condition: Filter, value: Any) -> None:
        if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual) and isinstance(
            value, datetime
        ):
            moment = value if value.tzinfo is not None else value.astimezone()
            ms = (moment - _EPOCH) // _MILLISECOND
            self.min_timestamp_ms = max(ms, self.min_timestamp_ms or 0)

    def includes(self, tp: TopicPartition) -> bool:
        if self.topics is not None and tp.topic not in self.topics:
            return False
        return all(_matches(each, tp.partition) for each in self.partitions)

    def narrow(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        kept = [tp for tp in end if self.includes(tp)]
        return (
            {tp: max(start[tp], self.min_offset) for tp in kept},
            {tp: min(end[tp], self.end_offset) for tp in kept},
        )


_MILLISECOND = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)
_NEVER_NULL = frozenset({"topic", "partition", "offset"})
_COMPARISONS = (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _is_integer(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(each is None or _is_integer(each) for each in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _matches(condition: Filter, number: int) -> bool:
    value = getattr(condition, "value", None)
    if isinstance(condition, EqualTo):
        return bool(number == value)
    if isinstance(condition, In):
        return number in condition.value
    if isinstance(condition, GreaterThan):
        return bool(number > condition.value)
    if isinstance(condition, GreaterThanOrEqual):
        return bool(number >= condition.value)
    if isinstance(condition, LessThan):
        return bool(number < condition.value)
    if isinstance(condition, LessThanOrEqual):
        return bool(number <= condition.value)
    return True
