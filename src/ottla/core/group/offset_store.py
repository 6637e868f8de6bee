"""Committed offsets of the groups of one shard, as recorded in the log.

Offsets committed in a transaction are pending, per producer, until the transaction ends. If a
transactional and an ordinary commit concern the same partition, the one that is later in the log
applies, regardless of when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.core.coordinator import NO_PRODUCER_ID
from ottla.core.group.records import CommittedOffset, OffsetRecord

OffsetKey = tuple[str, str, int]
"""A committed offset's key, as (group id, topic, partition)."""

_NO_TOPICS: Mapping[str, Mapping[int, CommittedOffset]] = {}


class OffsetStore:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        self._pending_counts: dict[OffsetKey, int] = {}
        """The number of producers with an open transaction that commits the offset."""

    # --------------------------------------------------------------------------------- reading

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return the committed offsets of a group: topic -> partition -> offset."""
        return self._by_group.get(group_id, _NO_TOPICS)

    def group_ids(self) -> Iterator[str]:
        return iter(self._by_group)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction commits this offset."""
        return (group_id, topic, partition) in self._pending_counts

    def has_pending(self, group_id: str) -> bool:
        return any(key[0] == group_id for key in self._pending_counts)

    def with_pending(self, group_id: str) -> list[tuple[str, int]]:
        """Return the topic and partition of all offsets of a group, including pending ones."""
        found = {
            (topic, partition): None
            for topic, partitions in self.topics(group_id).items()
            for partition in partitions
        }
        found.update({key[1:]: None for key in self._pending_counts if key[0] == group_id})
        return list(found)

    # -------------------------------------------------------------------------------- applying

    def apply(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        group_id, topic, partition, value = record
        if value is None:
            self._remove(group_id, topic, partition)
            return
        value = CommittedOffset(*value[:-1], record_offset)
        if producer_id == NO_PRODUCER_ID:
            self._put(group_id, topic, partition, value)
        else:
            pending = self._pending.setdefault(producer_id, {})
            key = (group_id, topic, partition)
            if key not in pending:
                self._pending_counts[key] = self._pending_counts.get(key, 0) + 1
            pending[key] = value

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        pending = self._pending.pop(producer_id, {})
        for key in pending:
            self._pending_counts[key] -= 1
            if not self._pending_counts[key]:
                del self._pending_counts[key]
        if not commit:
            return
        for (group_id, topic, partition), value in pending.items():
            known = self.topics(group_id).get(topic, {}).get(partition)
            if known is None or known.record_offset < value.record_offset:
                self._put(group_id, topic, partition, value)

    def _put(self, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = value

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        if self._pending_counts.pop((group_id, topic, partition), 0):
            for offsets in self._pending.values():
                offsets.pop((group_id, topic, partition), None)
        topics = self._by_group.get(group_id)
        if topics is None or topic not in topics:
            return
        topics[topic].pop(partition, None)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._by_group[group_id]
