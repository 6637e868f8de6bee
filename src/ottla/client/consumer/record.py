"""Public types of the consumer: records, offsets and group metadata."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.base import notebook

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record that was read from a topic, as a named tuple."""

    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset of the record in its partition."""
    timestamp: int
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0 if the producer set the timestamp (CreateTime), 1 if the broker did (LogAppendTime)."""
    key: Any
    """Deserialized key, or None."""
    value: Any
    """Deserialized value, or None for a tombstone."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Pairs of a name and a value, in the order of the producer."""
    leader_epoch: int
    """Leader epoch in which the record was written."""

    def _repr_html_(self) -> str:
        return Records([self])._repr_html_()


class Records(list[Record]):
    """List of the records that a poll returned; notebooks show it as a table."""

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
    """Return a timestamp as ISO 8601, or as a number if it is outside the range of datetime."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


class OffsetAndMetadata(NamedTuple):
    """A committed offset and the application's note about it."""

    offset: int
    """Offset of the next record to read."""
    metadata: str = ""
    """Text that the application stored with the offset."""
    leader_epoch: int = -1
    """Leader epoch of the last consumed record, or -1 if it is unknown."""


class OffsetAndTimestamp(NamedTuple):
    """Position of a record that was looked up by time."""

    offset: int
    """Offset of the record."""
    timestamp: int
    """Milliseconds since the epoch."""
    leader_epoch: int = -1
    """Leader epoch of the record, or -1 if it is unknown."""


class SubscriptionPattern(NamedTuple):
    """Regular expression for topics that the broker resolves (KIP-848).

    The syntax is RE2, and the whole name must match. It needs `group.protocol=consumer`.
    """

    pattern: str
    """The regular expression."""


class GroupMetadata(NamedTuple):
    """Identity of a consumer in its group, for a transaction that commits the group's offsets."""

    group_id: str
    """ID of the group."""
    generation_id: int = -1
    """Generation of the group, or the member epoch; -1 outside a group."""
    member_id: str = ""
    """ID of the member that the coordinator assigned."""
    group_instance_id: str | None = None
    """ID of a static member (`group.instance.id`), or None."""
