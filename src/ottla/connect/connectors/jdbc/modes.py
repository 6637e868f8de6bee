"""Polling modes of the source: the next query, and the source offset after its rows.

    mode                       condition                                 offset
    bulk                       rows after the last key of this turn      {"turn": 1, "after": […]}
    bulk, num.partitions       all rows, read by Spark (`part_reader`)   {"turn": 1, "rows": 5000}
    incrementing               id > last                                 {"incrementing": 7}
    timestamp                  last < ts < now - delay                   {"timestamp": ms,
                                                                          "timestamp_nanos": ns}
    timestamp+incrementing     … or ts = last and id > last              all three

Rows are ordered by those columns. In timestamp mode a batch ends where the timestamp changes: rows
with the same timestamp are never separated, so none is skipped. The functions do no I/O.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.data import EPOCH

BULK, INCREMENTING, TIMESTAMP = "bulk", "incrementing", "timestamp"
BOTH = "timestamp+incrementing"
MODES = (BULK, INCREMENTING, TIMESTAMP, BOTH)
_US = datetime.timedelta(microseconds=1)
_NS_OF_US = 1000


@dataclass(frozen=True)
class Query:
    """Parts of a SELECT statement, with named parameters."""

    where: str = ""
    order: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def statement(self, columns: str, source: str, suffix: str, limit: int | None) -> str:
        parts = [f"SELECT {columns} FROM {source}"]
        if self.where:
            parts.append(f"WHERE {self.where}")
        if self.order:
            parts.append(f"ORDER BY {self.order}")
        if limit is not None:
            parts.append(f"LIMIT {limit}")
        if suffix:
            parts.append(suffix)
        return " ".join(parts)


@dataclass(frozen=True)
class Mode:
    name: str
    incrementing: str = ""
    timestamps: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """Primary key of the table, from which an interrupted bulk load can continue."""

    @property
    def has_incrementing(self) -> bool:
        return self.name in (INCREMENTING, BOTH)

    @property
    def has_timestamp(self) -> bool:
        return self.name in (TIMESTAMP, BOTH)

    def query(self, offset: dict[str, Any], now: Any, quote: Callable[[str], str]) -> Query:
        """Return the next query; `now` is the upper limit of timestamps, by the database clock."""
        if self.name == BULK:
            return self._bulk(offset, quote)
        if self.name == INCREMENTING:
            column = quote(self.incrementing)
            if "incrementing" not in offset:
                return Query("", column)
            return Query(f"{column} > :last", column, {"last": offset["incrementing"]})
        return self._by_time(offset, now, quote)

    def _bulk(self, offset: dict[str, Any], quote: Callable[[str], str]) -> Query:
        if not self.key:
            return Query()
        columns = [quote(each) for each in self.key]
        order = ", ".join(columns)
        after: Sequence[Any] = offset.get("after") or ()
        if not after:
            return Query("", order)
        # Row comparison (a, b) > (x, y), which not every database supports.
        parameters = {f"k{index}": value for index, value in enumerate(after)}
        turns = []
        for index, column in enumerate(columns):
            same = [f"{columns[before]} = :k{before}" for before in range(index)]
            turns.append(" AND ".join([*same, f"{column} > :k{index}"]))
        return Query(" OR ".join(f"({each})" for each in turns), order, parameters)

    def _by_time(self, offset: dict[str, Any], now: Any, quote: Callable[[str], str]) -> Query:
        columns = [quote(each) for each in self.timestamps]
        moment = columns[0] if len(columns) == 1 else f"COALESCE({', '.join(columns)})"
        where, parameters = [f"{moment} < :now"], {"now": now}
        if self.name == TIMESTAMP:
            if "timestamp" in offset:
                where.append(f"{moment} > :since")
                parameters["since"] = read_moment(offset)
            return Query(" AND ".join(where), moment, parameters)
        column = quote(self.incrementing)
        if "timestamp" in offset:
            where.append(f"({moment} > :since OR ({moment} = :since AND {column} > :last))")
            parameters |= {"since": read_moment(offset), "last": offset.get("incrementing", -1)}
        return Query(" AND ".join(where), f"{moment}, {column}", parameters)

    def offset_after(self, row: dict[str, Any], offset: dict[str, Any]) -> dict[str, Any]:
        """Return the source offset after a row; raise ValueError if a column has no valid value."""
        if self.name == BULK:
            return {"turn": offset.get("turn", 0), "after": [row[each] for each in self.key]}
        made: dict[str, Any] = {}
        if self.has_incrementing:
            value = row[self.incrementing]
            if value is None or int(value) != value:
                raise ValueError(f"column {self.incrementing} has {value!r}, but must have numbers")
            made["incrementing"] = int(value)
        if self.has_timestamp:
            made |= write_moment(self.moment_of(row))
        return made

    def moment_of(self, row: dict[str, Any]) -> datetime.datetime:
        found = next((row[each] for each in self.timestamps if row[each] is not None), None)
        if not isinstance(found, datetime.datetime):
            columns = ", ".join(self.timestamps)
            raise ValueError(f"column {columns} has {found!r}, but must have timestamps")
        return found

    def whole_moments(self, rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
        """Drop the last, possibly incomplete timestamp from `limit` + 1 rows.

        The result is empty if all rows have the same timestamp.
        """
        if self.name != TIMESTAMP or len(rows) <= limit:
            return rows[:limit]
        last = self.moment_of(rows[-1])
        return [each for each in rows if self.moment_of(each) != last]


def write_moment(moment: datetime.datetime) -> dict[str, int]:
    """Return a timestamp in Kafka's offset format: milliseconds, and nanoseconds of the second.

    A timestamp without a time zone is treated as UTC here and in `read_moment`.
    """
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    us = (zoned - EPOCH) // _US
    made = {"timestamp": us // 1000, "timestamp_nanos": us % 1_000_000 * _NS_OF_US}
    if moment.tzinfo is not None:
        made["zoned"] = 1
    return made


def read_moment(offset: dict[str, Any]) -> datetime.datetime:
    ms = int(offset["timestamp"])
    us = ms // 1000 * 1_000_000
    nanos = offset.get("timestamp_nanos")
    us += int(nanos) // _NS_OF_US if nanos is not None else ms % 1000 * 1000
    moment = EPOCH + us * _US
    return moment if offset.get("zoned") else moment.replace(tzinfo=None)
