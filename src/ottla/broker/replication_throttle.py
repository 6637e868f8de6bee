"""Replication throttling on this broker, as a leader and as a follower.

    leader     sends a throttled follower no records of the partition while its quota is used up;
               the fetch waits as if there were nothing new
    follower   does not fetch a throttled partition while its own quota is used up

The rates are `leader.replication.throttled.rate` and `follower.replication.throttled.rate`; the
topic configs `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`
list the replicas (core/replication/throttle.py)."""

from __future__ import annotations

from typing import Protocol

from ottla.broker.partition import Partition
from ottla.broker.ports import Configuration, Metadata, NodeId, TimeSource
from ottla.core.replication.throttle import Quota, is_listed


class ThrottlePorts(Configuration, Metadata, NodeId, TimeSource, Protocol):
    """The parts of a broker that replication throttling uses."""


class ReplicationThrottle:
    """The quotas of this broker for throttled replication."""

    def __init__(self, broker: ThrottlePorts) -> None:
        self._broker = broker
        self._send_quota = Quota()
        self._fetch_quota = Quota()

    # ------------------------------------------------------------------------------ as a leader

    def is_quota_exhausted(self, partition: Partition, follower: int) -> bool:
        """Return whether the quota forbids sending this follower the partition's records now."""
        if not self._is_follower_throttled(partition, follower):
            return False
        rate = self._broker.config.leader_replication_throttled_rate
        return self._send_quota.is_exhausted(rate, self._broker.clock.monotonic())

    def record_sent(self, partition: Partition, follower: int, size_bytes: int) -> None:
        if self._is_follower_throttled(partition, follower):
            self._send_quota.record(size_bytes)

    def _is_follower_throttled(self, partition: Partition, follower: int) -> bool:
        listed = partition.log.config.leader_replication_throttled_replicas
        if not listed or not is_listed(listed, partition.key.partition, follower):
            return False
        return partition.leadership is None or follower not in partition.leadership.isr

    # ---------------------------------------------------------------------------- as a follower

    def is_throttled(self, partition: Partition) -> bool:
        """Return whether records that this broker fetches for the partition count to the quota."""
        listed = partition.log.config.follower_replication_throttled_replicas
        key, me = partition.key, self._broker.node_id
        if not listed or not is_listed(listed, key.partition, me):
            return False
        topic = self._broker.image.topics.get(key.topic)
        if topic is None or key.partition >= len(topic.partitions):
            return False
        return me not in topic.partitions[key.partition].isr

    def is_fetch_quota_exhausted(self) -> bool:
        rate = self._broker.config.follower_replication_throttled_rate
        return self._fetch_quota.is_exhausted(rate, self._broker.clock.monotonic())

    def record_fetched(self, size_bytes: int) -> None:
        self._fetch_quota.record(size_bytes)
