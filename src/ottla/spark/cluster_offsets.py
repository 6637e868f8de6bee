"""Partitions and offsets that the planner requests from the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.admin.group_offsets import alter_group_offsets, list_group_offsets
from ottla.client.admin.partitions import IsolationLevel, list_offsets
from ottla.client.admin.topics import describe_topics, list_topics
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.record import OffsetAndMetadata
from ottla.client.errors import InvalidConfig, UnknownTopic
from ottla.spark.offsets import AtTimestamps, Bound, Latest, Offsets, offset_lookup
from ottla.spark.options import SourceOptions
from ottla.spark.prefetch import Prefetched, prefetch
from ottla.spark.shared_client import SharedClient, shared_client

T = TypeVar("T")
QUERY_METADATA = "ottla-spark"
"""Metadata of the offsets that a query commits. Offsets that other tools commit have another."""
UNKNOWN_TOPIC_GRACE_S = 2.0
UNKNOWN_TOPIC_PAUSE_S = 0.1


class ClusterOffsets:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._isolation = IsolationLevel(options.config().isolation)

    @property
    def _client(self) -> SharedClient:
        return shared_client(ConsumerConfig, self._options.client)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that are subscribed now; raise UnknownTopic if one is missing."""
        return self._with_retries(self._partitions)

    def _partitions(self) -> list[TopicPartition]:
        subscription = self._options.subscription
        if subscription.pattern is not None:
            listed = self._client.run(list_topics, self._client.cluster)
            topics = [
                name
                for name, topic in listed.items()
                if subscription.matches(name) and not topic.is_internal
            ]
            return self._partitions_of(topics, may_be_deleted=True)
        if subscription.topics:
            return self._partitions_of(subscription.topics)
        topics = sorted({tp.topic for tp in subscription.partitions})
        existing = set(self._partitions_of(topics))
        for tp in subscription.partitions:
            if tp not in existing:
                raise UnknownTopic(
                    f"partition {tp} does not exist", topic=tp.topic, partition=tp.partition
                )
        return list(subscription.partitions)

    def _partitions_of(
        self, topics: Iterable[str], *, may_be_deleted: bool = False
    ) -> list[TopicPartition]:
        names = list(topics)
        if not names:
            return []
        deadline = time.monotonic() + UNKNOWN_TOPIC_GRACE_S
        while True:
            found = self._client.run(describe_topics, self._client.cluster, names)
            failures = [
                error
                for error in found.errors.values()
                if not (may_be_deleted and isinstance(error, UnknownTopic))
            ]
            if not failures:
                break
            if not isinstance(failures[0], UnknownTopic) or time.monotonic() > deadline:
                raise failures[0]
            time.sleep(UNKNOWN_TOPIC_PAUSE_S)
        return [
            TopicPartition(name, partition.partition)
            for name in names
            if name in found
            for partition in found[name].partitions
        ]

    def offsets(self, name: str, bound: Bound, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the current offsets of a bound.

        If a partition has no record at or after a timestamp, a start follows
        `startingOffsetsByTimestampStrategy`, and an end is the end of the partition."""
        lookup = offset_lookup(name, bound, partitions)
        found = self._list_offsets(lookup.timestamps)
        missing = [tp for tp, offset in found.items() if offset is None]
        if missing:
            is_start = isinstance(bound, AtTimestamps) and name.startswith("starting")
            if is_start and not self._options.latest_if_no_match:
                tp = min(missing)
                raise InvalidConfig(
                    f"{name}: partition {tp} has no record at or after {lookup.timestamps[tp]} ms. "
                    "Set startingOffsetsByTimestampStrategy=latest to start at its end."
                )
            found |= self._list_offsets(offset_lookup(name, Latest(), missing).timestamps)
        return lookup.known | {tp: offset for tp, offset in found.items() if offset is not None}

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        if not timestamps:
            return {}
        client = self._client
        listed = self._with_retries(
            lambda: client.run(list_offsets, client.cluster, timestamps, self._isolation).checked(
                False
            )
        )
        return {tp: each.offset for tp, each in listed.items()}

    def prefetch(self, positions: Mapping[TopicPartition, int]) -> Prefetched | None:
        """Return the ends of partitions and the records up to them; see `prefetch`."""
        client = self._client
        return client.run(prefetch, client.cluster, positions, int(self._isolation))

    def _with_retries(self, request: Callable[[], T]) -> T:
        attempts_left = self._options.offset_retries
        while True:
            try:
                return request()
            except KafkaError as error:
                attempts_left -= 1
                if attempts_left <= 0 or not error.retriable or isinstance(error, UnknownTopic):
                    raise
                time.sleep(self._options.offset_retry_interval_ms / 1000)

    # -------------------------------------------------------------------------------- group

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, bool]]:
        """Return the group's committed offsets, and whether a query committed each of them."""
        group, client = self._options.group_id, self._client
        assert group is not None
        wanted = {group: list(partitions)}
        listed = client.run(list_group_offsets, client.cluster, wanted, require_stable=False)
        return {
            tp: (committed.offset, committed.metadata == QUERY_METADATA)
            for tp, committed in listed.checked(False)[group].items()
        }

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        group, client = self._options.group_id, self._client
        assert group is not None
        wanted = {tp: OffsetAndMetadata(offset, QUERY_METADATA) for tp, offset in offsets.items()}
        if wanted:
            client.run(alter_group_offsets, client.cluster, group, wanted).checked(False)
