"""Choice of a record's partition.

By default a record goes to the partition that it names; otherwise to the one that Java's clients
choose for its key; without a key, to the current sticky partition (`next_sticky`). A custom
partitioner is called for every record that names no partition. It is a `Partitioner`, the name of
one, or a function of topic, key, value (as given to `send`) and number of partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ottla.client.errors import InvalidConfig
from ottla.client.metadata import TopicMetadata
from ottla.client.priority import check_ranges, priority_ranges
from ottla.wire.murmur2 import partition_for_key, positive_hash

MAX_CACHED_BYTES = 64
_CACHED_KEYS = 16_384

cached_hash = lru_cache(_CACHED_KEYS)(positive_hash)
"""Hash of a key of at most MAX_CACHED_BYTES. Keys recur, and a lookup takes a twentieth of the time
of the hash."""

PartitionFunction = Callable[[str, Any, Any, int], int]
"""(topic, key, value, number of partitions) -> partition"""


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key."""
    if len(key) <= MAX_CACHED_BYTES:
        return cached_hash(key) % partition_count
    return partition_for_key(key, partition_count)


class Partitioner(Protocol):
    def partition(
        self,
        topic: TopicMetadata,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        priority: int | None,
    ) -> int:
        """Return the partition for a record.

        Args:
            topic: Metadata of the topic.
            key: Key as given to `send`.
            value: Value as given to `send`.
            key_bytes: Serialized key.
            priority: Priority as given to `send`.
        """


class RoundRobinPartitioner:
    """Partitioner that writes to one partition after another and skips those without a leader."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def partition(
        self,
        topic: TopicMetadata,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        priority: int | None,
    ) -> int:
        """Return the partition for a record.

        Args:
            topic: Metadata of the topic.
            key: Key as given to `send`.
            value: Value as given to `send`.
            key_bytes: Serialized key.
            priority: Priority as given to `send`.
        """
        index = self._turns.get(topic.name, -1) + 1
        self._turns[topic.name] = index
        choices = topic.available or range(topic.partition_count)
        return choices[index % len(choices)]


class FunctionPartitioner:
    def __init__(self, function: PartitionFunction) -> None:
        self._function = function

    def partition(
        self,
        topic: TopicMetadata,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        priority: int | None,
    ) -> int:
        return self._function(topic.name, key, value, topic.partition_count)


class PriorityPartitioner:
    """Partitioner that reserves a range of partitions for each priority; 0 is the highest.

    The key, or a round robin for records without one, chooses within the range. Records without a
    priority have the lowest. A consumer with the same number of priorities reads higher ones first.

    Args:
        levels: Number of priorities; the partitions of a topic are divided among them.
        ranges: Range of partitions for each priority, instead of `levels`.

    Raises:
        InvalidConfig: Both or none of `levels` and `ranges` are given.
    """

    def __init__(self, levels: int | None = None, *, ranges: Sequence[range] | None = None) -> None:
        if (levels is None) == (ranges is None):
            raise InvalidConfig("A PriorityPartitioner needs either levels or ranges.")
        self._levels = levels
        self._ranges = None if ranges is None else list(ranges)
        self._known: dict[tuple[str, int], list[range]] = {}
        self._turns: dict[range, int] = {}

    def partition(
        self,
        topic: TopicMetadata,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        priority: int | None,
    ) -> int:
        """Return the partition for a record, from the range of its priority.

        Args:
            topic: Metadata of the topic.
            key: Key as given to `send`.
            value: Value as given to `send`.
            key_bytes: Serialized key.
            priority: Priority as given to `send`; None is the lowest.

        Raises:
            InvalidConfig: The priority does not exist.
        """
        ranges = self._ranges_of(topic)
        if priority is None:
            priority = len(ranges) - 1
        if not 0 <= priority < len(ranges):
            raise InvalidConfig(f"Priority {priority} does not exist. Use 0 to {len(ranges) - 1}.")
        choices = ranges[priority]
        if key_bytes is not None:
            return choices[partition_of(key_bytes, len(choices))]
        index = self._turns.get(choices, -1) + 1
        self._turns[choices] = index
        available = [each for each in choices if each in topic.available] or choices
        return available[index % len(available)]

    def _ranges_of(self, topic: TopicMetadata) -> list[range]:
        which = (topic.name, topic.partition_count)
        known = self._known.get(which)
        if known is None:
            if self._ranges is not None:
                check_ranges(self._ranges, topic.partition_count)
                known = self._ranges
            else:
                assert self._levels is not None
                known = priority_ranges(topic.partition_count, self._levels)
            self._known[which] = known
        return known


NAMED: dict[str, Callable[[], Partitioner] | None] = {
    "murmur2": None,
    "round_robin": RoundRobinPartitioner,
}


def partitioner(value: Partitioner | PartitionFunction | str | None) -> Partitioner | None:
    """Return the Partitioner for a user's choice, or None for the default."""
    if value is None:
        return None
    if isinstance(value, str):
        if value not in NAMED:
            raise InvalidConfig(
                f"Partitioner {value!r} does not exist. Use one of: {', '.join(NAMED)}."
            )
        make = NAMED[value]
        return None if make is None else make()
    if hasattr(value, "partition"):
        return value
    if callable(value):
        return FunctionPartitioner(value)
    raise InvalidConfig(
        f"{value!r} is not a partitioner. Use a function or an object with a method `partition`."
    )


def next_sticky(
    topic: TopicMetadata, current: int, queue_sizes: Sequence[int] | None, chance: random.Random
) -> int:
    """Return the next partition for records without a key (KIP-794).

    It is chosen at random among those with a leader; partitions with fewer queued batches are
    more likely. If `queue_sizes` is None, all are equally likely."""
    choices: Sequence[int] = topic.available or range(topic.partition_count)
    if len(choices) > 1:
        choices = [each for each in choices if each != current]
    if queue_sizes is None:
        return chance.choice(choices)
    sizes = [queue_sizes[each] for each in choices]
    longest = max(sizes)
    return chance.choices(choices, [longest + 1 - size for size in sizes])[0]
