"""What a source asks for next, and where it then is. Pure.

    mode                       condition                                 offset
    bulk                       rows after the last key of this turn      {"turn": 1, "after": […]}
    bulk, num.partitions       all of it, by Spark; see `part_reader`    {"turn": 1, "rows": 5000}
    incrementing               id > last                                 {"incrementing": 7}
    timestamp                  last < ts < now - delay                   {"timestamp": ms,
                                                                          "timestamp_nanos": ns}
    timestamp+incrementing     … or ts = last and id > last              all three

Rows come in the order of those columns. What is handed out at once ends, by timestamps alone, where
the timestamp changes: rows of the same moment are never torn apart, so none is left out."""

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
class Question:
    """A statement without its limit, with its parameters by name."""

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
    """Of the table, for bulk: where a turn can be gone on with."""

    @property
    def has_incrementing(self) -> bool:
        return self.name in (INCREMENTING, BOTH)

    @property
    def has_timestamp(self) -> bool:
        return self.name in (TIMESTAMP, BOTH)

    def ask(self, offset: dict[str, Any], now: Any, quote: Callable[[str], str]) -> Question:
        """`now`: the latest timestamp that counts, by the database's clock."""
        if self.name == BULK:
            return self._bulk(offset, quote)
        if self.name == INCREMENTING:
            column = quote(self.incrementing)
            if "incrementing" not in offset:
                return Question("", column)
            return Question(f"{column} > :last", column, {"last": offset["incrementing"]})
        return self._by_time(offset, now, quote)

    def _bulk(self, offset: dict[str, Any], quote: Callable[[str], str]) -> Question:
        if not self.key:
            return Question()
        columns = [quote(each) for each in self.key]
        order = ", ".join(columns)
        after: Sequence[Any] = offset.get("after") or ()
        if not after:
            return Question("", order)
        # (a, b) > (x, y), which not every database can say.
        parameters = {f"k{index}": value for index, value in enumerate(after)}
        turns = []
        for index, column in enumerate(columns):
            same = [f"{columns[before]} = :k{before}" for before in range(index)]
            turns.append(" AND ".join([*same, f"{column} > :k{index}"]))
        return Question(" OR ".join(f"({each})" for each in turns), order, parameters)

    def _by_time(self, offset: dict[str, Any], now: Any, quote: Callable[[str], str]) -> Question:
        columns = [quote(each) for each in self.timestamps]
        moment = columns[0] if len(columns) == 1 else f"COALESCE({', '.join(columns)})"
        where, parameters = [f"{moment} < :now"], {"now": now}
        if self.name == TIMESTAMP:
            if "timestamp" in offset:
                where.append(f"{moment} > :since")
                parameters["since"] = read_moment(offset)
            return Question(" AND ".join(where), moment, parameters)
        column = quote(self.incrementing)
        if "timestamp" in offset:
            where.append(f"({moment} > :since OR ({moment} = :since AND {column} > :last))")
            parameters |= {"since": read_moment(offset), "last": offset.get("incrementing", -1)}
        return Question(" AND ".join(where), f"{moment}, {column}", parameters)

    def offset_after(self, row: dict[str, Any], offset: dict[str, Any]) -> dict[str, Any]:
        """Where a source is after that row. Raises ValueError, a sentence."""
        if self.name == BULK:
            return {"turn": offset.get("turn", 0), "after": [row[each] for each in self.key]}
        made: dict[str, Any] = {}
        if self.has_incrementing:
            value = row[self.incrementing]
            if value is None or int(value) != value:
                raise ValueError(f"{self.incrementing} has {value!r}, and needs a number")
            made["incrementing"] = int(value)
        if self.has_timestamp:
            made |= write_moment(self.moment_of(row))
        return made

    def moment_of(self, row: dict[str, Any]) -> datetime.datetime:
        found = next((row[each] for each in self.timestamps if row[each] is not None), None)
        if not isinstance(found, datetime.datetime):
            columns = ", ".join(self.timestamps)
            raise ValueError(f"the column {columns} has {found!r}, and needs a timestamp")
        return found

    def whole_moments(self, rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
        """Of `limit` + 1 rows, those whose moment is whole; none: one moment is larger."""
        if self.name != TIMESTAMP or len(rows) <= limit:
            return rows[:limit]
        last = self.moment_of(rows[-1])
        return [each for each in rows if self.moment_of(each) != last]


def write_moment(moment: datetime.datetime) -> dict[str, int]:
    """As Kafka's connector has it: milliseconds, and the rest of the second in nanoseconds. A
    moment without a zone is taken for UTC both ways."""
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
