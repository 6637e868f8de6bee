"""Evaluation of simple statements from a topic's records, without Spark.

Rows are the same as Spark's, in the same order: by partition, then by offset. Records are decoded
to count them, because offsets include transaction markers, aborted records and records removed by
compaction."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from ottla.cli.sql import json_rows
from ottla.cli.sql.error_messages import no_column
from ottla.cli.sql.json_rows import NeedsSpark
from ottla.cli.sql.statement import Condition, Select
from ottla.spark.plan import OffsetRange
from ottla.spark.topic_snapshot import TopicSnapshot

MAX_PARSED = 1_000_000
"""Maximum number of values to parse in this process; Spark is faster for more."""
MAX_COUNTED = 50_000_000
METADATA = {
    "_key": "binary",
    "_topic": "string",
    "_partition": "bigint",
    "_offset": "bigint",
    "_timestamp": "timestamp",
}
"""Columns that follow those of the values in every table. Partitions compare as bigints."""
_DECODED = {"_key": "key", "_offset": "offset", "_timestamp": "timestamp"}
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class QueryResult:
    """The result of a statement."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    value_format: str | None = None
    """Format in which values were parsed; None if no value was parsed."""


def execute(
    select: Select, snapshot: TopicSnapshot, value_format: str, max_rows: int
) -> QueryResult:
    """Evaluate a statement.

    Args:
        select: The statement.
        snapshot: The topic of the statement.
        value_format: auto, json, string or raw.
        max_rows: Maximum number of rows to return.

    Returns:
        The columns and rows of the result.

    Raises:
        NeedsSpark: The result might differ from Spark's, or Spark would be faster.
        UserError: A column does not exist.
    """
    limit = max_rows if select.limit is None else min(select.limit, max_rows)
    if select.count_label is None:
        table = _table(select, snapshot, value_format)
        return QueryResult(
            table.labels(select), list(table.rows(select, limit)), table.value_format
        )
    if all(each.column in METADATA for each in select.conditions):
        table = _Table(snapshot, None, dict(METADATA))  # the values are not needed
    else:
        table = _table(select, snapshot, value_format)
    return QueryResult([select.count_label], [(table.count(select),)][:limit], table.value_format)


def _table(select: Select, snapshot: TopicSnapshot, value_format: str) -> _Table:
    sample = snapshot.sample()
    if value_format == "auto":
        value_format = sample.format
    columns: dict[str, str] = {"value": "binary" if value_format == "raw" else "string"}
    if value_format == "json":
        columns = dict(json_rows.infer(sample.objects))
    if not columns.keys().isdisjoint(METADATA):
        raise NeedsSpark
    columns |= METADATA
    _check_names(select, columns, snapshot, value_format)
    return _Table(snapshot, value_format, columns)


def _check_names(
    select: Select, columns: dict[str, str], snapshot: TopicSnapshot, value_format: str
) -> None:
    names = [each.name for each in select.columns] + [each.column for each in select.conditions]
    lower = {name.lower() for name in columns}
    aliases = {each.alias for each in select.columns}
    for name in names:
        if name in columns:
            continue
        if name.lower() in lower or name in aliases:
            raise NeedsSpark  # the name differs in case from a column, or is an alias
        raise no_column(name, list(columns), snapshot, value_format)


class _Table:
    def __init__(
        self, snapshot: TopicSnapshot, value_format: str | None, columns: dict[str, str]
    ) -> None:
        self._snapshot = snapshot
        self.value_format = value_format
        self._columns = columns
        self._fields: dict[str, Any] = {
            name: kind for name, kind in columns.items() if name not in METADATA
        }

    def labels(self, select: Select) -> list[str]:
        return [each.label for each in select.columns] or list(self._columns)

    def count(self, select: Select) -> int:
        ranges, left = _narrow_ranges(self._snapshot.ranges, select.conditions)
        if left:
            return sum(1 for _ in self._selected(left, ranges, []))
        if sum(each.size for each in ranges) > MAX_COUNTED:
            raise NeedsSpark
        return sum(records.num_rows for _, records in self._snapshot.read(["offset"], ranges))

    def rows(self, select: Select, limit: int) -> Iterator[tuple[Any, ...]]:
        names = [each.name for each in select.columns] or list(self._columns)
        ranges, left = _narrow_ranges(self._snapshot.ranges, select.conditions)
        return islice(self._selected(left, ranges, names), limit)

    def _selected(
        self, conditions: Sequence[Condition], ranges: Sequence[OffsetRange], names: list[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the named columns of the records that meet all conditions."""
        tests = [(each.column, self._test(each)) for each in conditions]
        used = [name for name in self._columns if name in names or name in dict(tests)]
        at = {name: number for number, name in enumerate(used)}
        for number, values in enumerate(self._records(used, ranges)):
            if number == MAX_PARSED:
                raise NeedsSpark
            if all(test(values[at[column]]) for column, test in tests):
                yield tuple(values[at[name]] for name in names)

    def _records(
        self, used: Sequence[str], ranges: Sequence[OffsetRange]
    ) -> Iterator[Sequence[Any]]:
        """Yield the used columns of each record, in the table's order."""
        needs_value = any(name in self._fields for name in used)
        decoded = [_DECODED[name] for name in used if name in _DECODED]
        decoded += ["value"] if needs_value else []
        shown = [name in used for name in self._fields]
        for part, records in self._snapshot.read(decoded or ["offset"], ranges):
            count = records.num_rows
            columns = [
                _metadata(name, part, records, count) for name in used if name not in self._fields
            ]
            values = records.column("value").to_pylist() if needs_value else [None] * count
            for number, value in enumerate(values):
                fields: list[Any] = []
                if needs_value:
                    whole = self._parsed(value)
                    fields = [each for each, is_shown in zip(whole, shown, strict=True) if is_shown]
                yield [*fields, *(column[number] for column in columns)]

    def _parsed(self, value: bytes | None) -> Sequence[Any]:
        if self.value_format == "json":
            return json_rows.row(value, self._fields)
        if value is None or self.value_format == "raw":
            return [value]
        try:
            return [value.decode()]
        except UnicodeDecodeError:
            raise NeedsSpark from None

    def _test(self, condition: Condition) -> Callable[[Any], bool]:
        if condition.operator == "is null":
            return lambda value: value is None
        if condition.operator == "is not null":
            return lambda value: value is not None
        kind, literal = self._columns[condition.column], condition.literal
        if kind == "double" and isinstance(literal, int | float):
            literal = float(literal)
        elif type(literal) is not {"bigint": int, "string": str}.get(kind):
            raise NeedsSpark  # Spark would cast one of the two types
        compare = _COMPARE[condition.operator]
        return lambda value: value is not None and compare(value, literal)


def _metadata(name: str, part: OffsetRange, records: Any, count: int) -> Sequence[Any]:
    if name == "_topic":
        return [part.topic] * count
    if name == "_partition":
        return [part.partition] * count
    if name == "_timestamp":
        return [_local_time(each) for each in records.column("timestamp").to_pylist()]
    return list(records.column(_DECODED[name]).to_pylist())


def _local_time(ms: int) -> datetime | None:
    """Return a timestamp as PySpark does: the local time without a time zone."""
    if not -_MAX_TIMESTAMP_MS <= ms <= _MAX_TIMESTAMP_MS:
        return None
    try:
        return datetime.fromtimestamp(ms // 1000).replace(microsecond=ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        raise NeedsSpark from None


def _narrow_ranges(
    ranges: Sequence[OffsetRange], conditions: Sequence[Condition]
) -> tuple[list[OffsetRange], list[Condition]]:
    """Narrow the ranges by the conditions on partitions and offsets.

    Returns:
        The narrowed ranges, and the remaining conditions.
    """
    found, left = list(ranges), []
    for each in conditions:
        if each.column == "_partition":
            found = [part for part in found if _matches(each, part.partition)]
        elif each.column == "_offset":
            found = [cut for part in found for cut in _narrow_range(part, each)]
        else:
            left.append(each)
    return found, left


def _matches(condition: Condition, partition: int) -> bool:
    if condition.operator.startswith("is "):
        return condition.operator == "is not null"
    if not isinstance(condition.literal, int):
        raise NeedsSpark
    return _COMPARE[condition.operator](partition, condition.literal)


def _narrow_range(part: OffsetRange, condition: Condition) -> list[OffsetRange]:
    if condition.operator.startswith("is "):
        return [part] if condition.operator == "is not null" else []
    at = condition.literal
    if not isinstance(at, int):
        raise NeedsSpark
    bounds = {
        "=": [(at, at + 1)],
        "<>": [(part.start, at), (at + 1, part.end)],
        "<": [(part.start, at)],
        "<=": [(part.start, at + 1)],
        ">": [(at + 1, part.end)],
        ">=": [(at, part.end)],
    }[condition.operator]
    cuts = [part._replace(start=max(part.start, a), end=min(part.end, b)) for a, b in bounds]
    return [each for each in cuts if each.size > 0]
