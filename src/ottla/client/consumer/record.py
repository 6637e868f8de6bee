"""What a user is handed."""

from __future__ import annotations

from typing import Any, NamedTuple

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
