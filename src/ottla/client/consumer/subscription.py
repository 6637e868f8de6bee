"""The partitions that a consumer reads, and their positions (pure).

    position        offset of the next record to return; None until it is known
    fetch_position  next offset to fetch: ahead of the position by the buffered records
    reset           pending lookup of a position: a timestamp, EARLIEST or LATEST

    unknown ─ committed offset, or reset ─► fetching ─ out of range ─► reset wanted ─► fetching

The `version` of a partition changes whenever its fetch position is set from outside. The response
to a fetch that was sent before that is discarded. A partition that is revoked and assigned again
gets a new state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.consumer.record import OffsetAndMetadata, SubscriptionPattern
from ottla.client.errors import ClientError, InvalidConfig

EARLIEST = -2
LATEST = -1
"""Timestamps that stand for the ends of a partition, as in ListOffsets."""

Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern

_versions = count(1)


def wanted_topics(topics: Topics) -> list[str] | re.Pattern[str] | SubscriptionPattern:
    """Return the topic names, or the pattern. A string that starts with ^ is a pattern.

    Raises:
        InvalidConfig: The value has another type, a name is empty, or the pattern is invalid.
    """
    if isinstance(topics, str) and topics.startswith("^"):
        try:
            return re.compile(topics)
        except re.error as error:
            raise InvalidConfig(
                f"The topic pattern {topics!r} is not a valid regular expression: {error}."
            ) from None
    if isinstance(topics, SubscriptionPattern | re.Pattern):
        return topics
    is_one = isinstance(topics, str | bytes) or not isinstance(topics, Iterable)
    names: list[Any] = [topics] if is_one else list(topics)
    for name in names:
        if not isinstance(name, str):
            raise InvalidConfig(
                f"topics must be a topic name, a list of names or a pattern, not {name!r}."
            )
    if not all(names):
        raise InvalidConfig("A topic name must not be empty.")
    return names


class Mode(Enum):
    NOTHING = auto()
    TOPICS = auto()
    PATTERN = auto()
    ASSIGNED = auto()


class PartitionState:
    __slots__ = (
        "tp", "position", "position_epoch", "fetch_position", "version", "is_paused",
        "is_held", "reset", "wants_committed", "high_watermark", "last_stable_offset",
        "log_start_offset", "preferred_replica", "retry_at", "leader_epoch", "wants_validation",
        "failure", "stop_at",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position: int | None = None
        self.position_epoch = -1
        """Leader epoch of the record before the position."""
        self.fetch_position: int | None = None
        self.version = next(_versions)
        self.is_paused = False
        self.is_held = False
        """Not fetched yet, because the rebalance listener must run first."""
        self.reset: int | None = None
        self.wants_committed = True
        self.wants_validation = False
        """The leader changed: check that its log still contains what was read (KIP-320)."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_replica = -1
        self.retry_at = 0.0
        self.leader_epoch = -1
        """Epoch of the leader that was last fetched from."""
        self.failure: ClientError | None = None
        """Why there is no position; only a seek can resolve it."""

        self.stop_at: int | None = None
        """Offset at which reading stops, for tables that cover a part of a topic; None: never."""

    @property
    def is_known(self) -> bool:
        return self.fetch_position is not None and self.reset is None and self.failure is None

    @property
    def is_unresolved(self) -> bool:
        """Whether a position must be looked up or validated."""
        return self.failure is None and (
            self.wants_committed or self.reset is not None or self.wants_validation
        )

    def seek(self, offset: int, epoch: int = -1) -> None:
        self.position = self.fetch_position = offset
        self.position_epoch = epoch
        self.reset = None
        self.wants_committed = False
        self.wants_validation = False
        self.failure = None
        self.version = next(_versions)

    def want_reset(self, timestamp: int) -> None:
        """Discard the position and request a lookup by timestamp."""
        self.position = self.fetch_position = None
        self.position_epoch = -1
        self.reset = timestamp
        self.wants_committed = False
        self.wants_validation = False
        self.failure = None
        self.version = next(_versions)

    def fail(self, error: ClientError) -> None:
        """Record that there is no position and that only the user can choose one."""
        self.failure = error
        self.reset = None
        self.wants_committed = self.wants_validation = False
        self.version = next(_versions)

    def rewind(self) -> None:
        """Fetch again from the position, because the data fetched beyond it was discarded."""
        self.fetch_position = self.position
        self.version = next(_versions)


class Subscription:
    def __init__(self) -> None:
        self.mode = Mode.NOTHING
        self.topics: frozenset[str] = frozenset()
        """Topics that are subscribed, or that match the pattern."""
        self.pattern: re.Pattern[str] | None = None
        self.remote_pattern: str | None = None
        """Pattern that the broker resolves."""
        self._states: dict[TopicPartition, PartitionState] = {}

    # ------------------------------------------------------------------------------ subscribing

    def subscribe(self, topics: Iterable[str]) -> None:
        self._set_mode(Mode.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._set_mode(Mode.PATTERN)
        self.remote_pattern = None
        self.pattern = pattern

    def subscribe_remotely(self, pattern: str) -> None:
        self._set_mode(Mode.PATTERN)
        self.pattern = None
        self.remote_pattern = pattern

    def match(self, names: Iterable[str]) -> bool:
        """Update the topics that match the pattern; return whether they changed."""
        assert self.pattern is not None
        search = self.pattern.search
        found = frozenset(name for name in names if search(name))
        changed = found != self.topics
        self.topics = found
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._set_mode(Mode.ASSIGNED)
        self.set_partitions(partitions)

    def unsubscribe(self) -> None:
        self._set_mode(Mode.NOTHING)
        self._states.clear()

    def _set_mode(self, mode: Mode) -> None:
        if Mode.NOTHING not in (mode, self.mode) and self.mode is not mode:
            raise ValueError(
                "A consumer either subscribes to topics, or to a pattern, or is assigned "
                "partitions; call unsubscribe() first."
            )
        self.mode = mode
        if mode is not Mode.TOPICS:
            self.topics = frozenset()
        if mode is not Mode.PATTERN:
            self.pattern = self.remote_pattern = None

    @property
    def is_of_group(self) -> bool:
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    # ------------------------------------------------------------------------------- partitions

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions. Those that were assigned before keep their positions."""
        before = self._states
        self._states = {tp: before.get(tp) or PartitionState(tp) for tp in partitions}

    def add(self, partitions: Iterable[TopicPartition], *, is_held: bool = False) -> None:
        for tp in partitions:
            if tp not in self._states:
                state = self._states[tp] = PartitionState(tp)
                state.is_held = is_held

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._states.pop(tp, None)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if (state := self._states.get(tp)) is not None:
                state.is_held = False

    def get(self, tp: TopicPartition) -> PartitionState | None:
        return self._states.get(tp)

    def state(self, tp: TopicPartition) -> PartitionState:
        """Return the state of a partition; raise ValueError if it is not assigned."""
        found = self._states.get(tp)
        if found is None:
            raise ValueError(f"{TopicPartition(*tp)} is not assigned to this consumer.")
        return found

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._states.values()))

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def __len__(self) -> int:
        return len(self._states)

    @property
    def assignment(self) -> set[TopicPartition]:
        return set(self._states)

    @property
    def paused(self) -> set[TopicPartition]:
        return {tp for tp, state in self._states.items() if state.is_paused}

    def positions(
        self, only: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the known positions, in the form in which they are committed."""
        wanted = list(self._states) if only is None else list(only)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp in wanted:
            state = self._states.get(tp)
            if state is not None and state.position is not None:
                found[tp] = OffsetAndMetadata(state.position, "", state.position_epoch)
        return found
