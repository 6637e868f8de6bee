"""What a user is handed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.base import notebook

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """One record. A tuple underneath: making one costs a tenth of a microsecond."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0: the producer's (CreateTime). 1: the broker's (LogAppendTime)."""
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int

    def _repr_html_(self) -> str:
        return Records([self])._repr_html_()


class Records(list[Record]):
    """The records that a poll returned: a list that notebooks show as a table."""

    def _repr_html_(self) -> str:
        headings = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        rows = (
            (each.topic, each.partition, each.offset, _time(each.timestamp), each.key, each.value,
             ", ".join(f"{name}={'' if data is None else data[:notebook.MAX_CELL_CHARS]!r}"
                       for name, data in each.headers[: notebook.MAX_ROWS]))
            for each in self
        )  # fmt: skip
        caption = "1 record" if len(self) == 1 else f"{len(self):,} records"
        return notebook.table(headings, rows, count=len(self), caption=caption)


def _time(timestamp_ms: int) -> str:
    """Return a timestamp as ISO 8601, or the number if no date has it."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is the next one to read, and a note of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = -1


class SubscriptionPattern(NamedTuple):
    """Topics by a pattern that the broker resolves (RE2, the whole name must match). Only groups of
    the consumer protocol have it."""

    pattern: str


class GroupMetadata(NamedTuple):
    """Identity of a consumer in its group, for a transaction that commits the group's offsets."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
