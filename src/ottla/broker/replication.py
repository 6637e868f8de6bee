"""Replication on this broker: the partitions it leads, those it follows, and their ISR.

    image ──► role of each partition ──► leader: Leadership; ISR changes are transactions
                                    └──► follower: one fetcher per leader (replica_fetcher.py)

Rules (the other numbers are in core.replication.leadership)
1. A broker acts as leader only if the image names it as leader *and* the ISR contains it under its
   current broker epoch (incarnation).
6. A partition adopts a leader epoch only when the transition is complete: the fetcher has stopped,
   or the log is in place.

An ISR change is one transaction under the leader's own incarnation. It checks the leader's
registration, the version of the partition and, when the ISR expands, the registration of the
follower and that it is alive. A change that conflicts is not forced. While the outcome is unknown,
the leader assumes both the old and the new ISR, until the image shows which one holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.base.cluster import NO_LEADER, PartitionState, TopicImage
from ottla.base.errors import KafkaError
from ottla.base.metadata import Check, Replace, TxnConflict
from ottla.base.types import TopicPartition
from ottla.broker.disk_watch import DiskWatch
from ottla.broker.logs import Logs
from ottla.broker.partition import Partition
from ottla.broker.ports import HostedPartitions, Store
from ottla.broker.replica_fetcher import FetcherPorts, ReplicaFetcher
from ottla.broker.replication_throttle import ReplicationThrottle, ThrottlePorts
from ottla.broker.truncation import TruncationPorts, Truncations
from ottla.core.replication.leadership import Leadership, Proposal
from ottla.metadata import tree

logger = logging.getLogger(__name__)

RETRY_S = 0.1
MAX_CHECK_INTERVAL_S = 2.0
"""Longest interval between checks for lagging followers and failed disks."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class FetchingReplica(NamedTuple):
    """A broker that fetches as a follower."""

    id: int
    incarnation: int


class ReplicationPorts(
    FetcherPorts, ThrottlePorts, TruncationPorts, HostedPartitions, Store, Protocol
):
    """The parts of a broker that replication uses."""

    @property
    def logs(self) -> Logs: ...

    def partitions_changed(self) -> None:
        """Invalidate what was cached about partitions."""

    def leader_changed(self, partition: Partition) -> None:
        """Start or stop the coordinator of a partition."""


class Replication:
    """The roles of this broker's replicas, and the ISR of those it leads."""

    def __init__(self, broker: ReplicationPorts, has_lease: Callable[[], bool]) -> None:
        """Create the replication of a broker that has not registered yet.

        Args:
            broker: The broker that hosts the replicas.
            has_lease: Returns whether the broker certainly still leads what it led.
        """
        self._broker = broker
        self._has_lease = has_lease
        self.incarnation = -1
        """This broker's incarnation in its current session; -1 if it is not registered, in which
        case it leads nothing."""
        self._truncations = Truncations(broker, self._on_truncation_end)
        self.throttle = ReplicationThrottle(broker)
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._followed: dict[TopicPartition, int] = {}
        self._shrink_task: asyncio.Task[None] | None = None
        self._changes: set[asyncio.Task[None]] = set()
        self._resigning: set[TopicPartition] = set()
        self._resigned_epochs: dict[TopicPartition, int] = {}
        """Partitions that this broker stopped leading because its disk refuses writes -> partition
        epoch at that time. It may be out of the ISR, with another leader elected, before the image
        shows it, so it must not lead again at that epoch."""

    # ------------------------------------------------------------------------ start and stop

    def start(self) -> None:
        self._broker.flusher.on_offline = self._on_offline
        self._disk_watch.on_rejected = self._review_soon
        self._disk_watch.on_recovered = self._on_disks_recovered
        self._shrink_task = asyncio.create_task(self._shrink_isr_loop(), name="isr-shrinking")

    @property
    def _disk_watch(self) -> DiskWatch:
        return self._broker.logs.disk_watch

    async def stop(self) -> None:
        tasks = [*self._changes] + ([self._shrink_task] if self._shrink_task else [])
        for task in tasks:
            task.cancel()
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        await asyncio.gather(*(each.stop() for each in fetchers))
        await self._truncations.drain()
        await asyncio.gather(*tasks, return_exceptions=True)

    def registered(self, incarnation: int) -> None:
        """Review every role after the broker has registered a new incarnation."""
        self.incarnation = incarnation
        self.review()

    def session_lost(self) -> None:
        """Stop leading all partitions until the broker has registered again."""
        self.incarnation = -1
        for partition in self._broker.partitions.values():
            if partition.is_leader:
                self._step_down(partition)

    # ----------------------------------------------------------------------------------- roles

    def review(self) -> None:
        for partition in self._broker.partitions.values():
            self._review(partition)

    def _review(self, partition: Partition) -> None:
        name, index = partition.key
        topic = self._broker.image.topics.get(name)
        if topic is not None and index < len(topic.partitions):
            self.apply_role(partition, topic, topic.partitions[index])

    def apply_role(self, partition: Partition, topic: TopicImage, state: PartitionState) -> None:
        """Make this replica the leader or a follower, according to the image."""
        if partition.log.is_truncating:
            return  # `_on_truncation_end` reviews the role again
        if not self._leads(state):
            self._follow(partition, topic, state)
            if partition.key in self._disk_watch.rejecting and self._has_live_peers(state):
                self._resign(partition, topic, state)
        elif partition.offline_reason is None and not self._should_resign(partition, state):
            self._lead(partition, state)
        else:
            self._follow(partition, topic, state)
            self._resign(partition, topic, state)

    def _should_resign(self, partition: Partition, state: PartitionState) -> bool:
        """Return whether to leave the partition to another in-sync replica because the disk here
        refuses writes.

        The others must have every record of this log, including those acknowledged with acks=1.
        Until then, and if there are no others, this broker continues to serve reads."""
        key = partition.key
        if self._resigned_epochs.get(key) == state.partition_epoch:
            return True
        self._resigned_epochs.pop(key, None)
        if key not in self._disk_watch.rejecting or not self._has_live_peers(state):
            return False
        if not self._has_lease() or not partition.is_leader:
            return False
        if partition.high_watermark < partition.log.log_end_offset:
            return False
        self._resigned_epochs[key] = state.partition_epoch
        return True

    def _has_live_peers(self, state: PartitionState) -> bool:
        me, image = self._broker.node_id, self._broker.image
        alive = (
            each for each in state.isr if image.is_alive(each) and each not in image.presumed_dead
        )
        return any(member != me for member in alive)

    def _review_soon(self, key: TopicPartition) -> None:
        partition = self._broker.partitions.get(key)
        if partition is not None:
            asyncio.get_running_loop().call_soon(self._review, partition)

    def _on_disks_recovered(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._review_soon(key)

    def _on_offline(self, partition: Partition) -> None:
        """Resign soon if another replica is in sync, after the current failure was reported."""
        asyncio.get_running_loop().call_soon(self._review, partition)

    def _on_truncation_end(self, partition: Partition) -> None:
        if self._broker.partitions.get(partition.key) is not partition:
            return
        self._review(partition)
        # Requests that wait for a sync of this log could not be flushed during the truncation.
        self._broker.flusher.request(partition)

    def _leads(self, state: PartitionState) -> bool:
        me = self._broker.node_id
        if state.leader != me or me not in state.isr or self.incarnation < 0:
            return False
        return state.isr_incarnations[state.isr.index(me)] == self.incarnation

    def _lead(self, partition: Partition, state: PartitionState) -> None:
        now = self._broker.clock.monotonic()
        leadership = partition.leadership
        if leadership is not None and leadership.leader_epoch == state.leader_epoch:
            leadership.apply_state(state, now)
            partition.update_high_watermark()
            return
        self._stop_following(partition.key)
        self._broker.partitions_changed()
        log = partition.log
        if state.leader_epoch > log.epochs.latest_epoch:
            # Followers can then look up the epoch even before its first record.
            log.epochs.assign(state.leader_epoch, log.log_end_offset)
        partition.lead(
            Leadership(
                self._broker.node_id,
                self.incarnation,
                state,
                epoch_start_offset=log.log_end_offset,
                high_watermark=partition.high_watermark,
                now=now,
            )
        )
        if partition.waits_for_sync and log.recovery_point < log.log_end_offset:
            self._broker.flusher.request(partition)  # there may be no append to trigger it
        self._broker.leader_changed(partition)

    def _follow(self, partition: Partition, topic: TopicImage, state: PartitionState) -> None:
        was_leader = partition.is_leader
        if was_leader or partition.leader_epoch != state.leader_epoch:
            self._broker.partitions_changed()
            partition.follow(state.leader_epoch)
        if was_leader:
            self._broker.leader_changed(partition)
        leader = state.leader
        if leader in (NO_LEADER, self._broker.node_id):
            self._stop_following(partition.key)
            return
        if self._followed.get(partition.key) not in (None, leader):
            self._stop_following(partition.key)
        self._followed[partition.key] = leader
        self._fetcher(leader).follow(partition, topic.topic_id)

    def _resign(self, partition: Partition, topic: TopicImage, state: PartitionState) -> None:
        """Leave the ISR of a partition whose disk has failed or refuses writes, so that another
        replica leads and no produce waits for this one. The only in-sync replica stays."""
        me, key = self._broker.node_id, partition.key
        others = [index for index, member in enumerate(state.isr) if member != me]
        if not others or me not in state.isr or key in self._resigning:
            return
        new = state._replace(
            isr=tuple(state.isr[each] for each in others),
            isr_incarnations=tuple(state.isr_incarnations[each] for each in others),
        )
        path = tree.partition_path(topic.topic_id, key.partition)
        checks = [
            Check(tree.registration_path(me), self.incarnation),
            Check(path, state.partition_epoch),
        ]

        async def commit() -> None:
            try:
                await self._broker.store.txn(checks, [Replace(path, tree.encode_partition(new))])
                logger.warning("%s: left the ISR, because this broker's disk rejects writes", key)
            except (TxnConflict, KafkaError) as error:
                logger.info("%s: could not leave the ISR, retrying: %s", key, error)
            finally:
                self._resigning.discard(key)

        self._resigning.add(key)
        task = asyncio.create_task(commit())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    def _step_down(self, partition: Partition) -> None:
        self._broker.partitions_changed()
        partition.follow(partition.leader_epoch)
        self._broker.leader_changed(partition)

    def forget(self, key: TopicPartition) -> None:
        """Stop following a partition that is no longer on this broker."""
        self._resigned_epochs.pop(key, None)
        self._stop_following(key)

    def _stop_following(self, key: TopicPartition) -> None:
        leader = self._followed.pop(key, None)
        if leader is not None and leader in self._fetchers:
            self._fetchers[leader].unfollow(key)

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        if leader not in self._fetchers:
            self._fetchers[leader] = ReplicaFetcher(
                self._broker, leader, lambda: self.incarnation, self._truncations, self.throttle
            )
        return self._fetchers[leader]

    def lease_regained(self) -> None:
        """Complete all proofs of leadership: the lease is held again."""
        for partition in self._broker.partitions.values():
            partition.leadership_proved(float("inf"))

    # --------------------------------------------------------------------------------- the ISR

    def fetched(self, partition: Partition, replica: FetchingReplica, offset: int) -> None:
        """Record that a follower has everything below `offset`, and expand the ISR if possible."""
        leadership = partition.leadership
        if leadership is None:
            return
        now = self._broker.clock.monotonic()
        end = partition.log.log_end_offset
        if not leadership.fetched(replica.id, replica.incarnation, offset, end, now):
            return
        partition.update_high_watermark()
        partition.followers_fetched()
        expanded = leadership.expanded_isr(replica.id)
        if expanded is not None and self._broker.image.is_alive(replica.id):
            registered = self._broker.image.brokers[replica.id].incarnation
            if registered == replica.incarnation:
                self._change_isr(partition, leadership, expanded)

    async def _shrink_isr_loop(self) -> None:
        while True:
            max_lag_s = self._broker.config.replica_lag_time_max_ms / 1000
            await asyncio.sleep(min(max_lag_s / 4, MAX_CHECK_INTERVAL_S))
            now = self._broker.clock.monotonic()
            rejecting = self._disk_watch.rejecting | self._resigned_epochs.keys()
            for partition in list(self._broker.partitions.values()):
                if partition.offline_reason is not None or partition.key in rejecting:
                    self._review(partition)
                leadership = partition.leadership
                if leadership is None:
                    continue
                shrunk = leadership.shrunk_isr(now, max_lag_s)
                if shrunk is not None:
                    self._change_isr(partition, leadership, shrunk)

    def _change_isr(
        self, partition: Partition, leadership: Leadership, isr: Mapping[int, int]
    ) -> None:
        proposal = leadership.propose(isr)
        task = asyncio.create_task(self._commit_isr(partition, leadership, proposal))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _commit_isr(
        self, partition: Partition, leadership: Leadership, proposal: Proposal
    ) -> None:
        topic = self._broker.image.topics.get(partition.key.topic)
        index, isr = partition.key.partition, proposal.isr
        if topic is None or index >= len(topic.partitions):
            leadership.rejected(proposal)
            return
        before = topic.partitions[index]
        path = tree.partition_path(topic.topic_id, index)
        checks = [
            Check(tree.registration_path(self._broker.node_id), leadership.incarnation),
            Check(path, proposal.partition_epoch),
        ]
        for joining, incarnation in sorted(proposal.joining.items()):
            checks.append(Check(tree.registration_path(joining), incarnation))
            checks.append(Check(tree.live_path(joining), 0))
        order = [replica for replica in before.replicas if replica in isr]
        new = before._replace(
            isr=tuple(order), isr_incarnations=tuple(isr[member] for member in order)
        )
        try:
            await self._broker.store.txn(checks, [Replace(path, tree.encode_partition(new))])
        except TxnConflict as conflict:
            logger.info(
                "%s: the partition changed during an ISR update, retrying: %s",
                partition.key,
                conflict,
            )
            await asyncio.sleep(RETRY_S)  # until the image shows what has changed
            leadership.rejected(proposal)
            partition.update_high_watermark()
        except KafkaError as error:
            logger.warning("%s: could not update the ISR: %s", partition.key, error.message)
            await asyncio.sleep(RETRY_S)
            leadership.rejected(proposal)
        else:
            logger.info("%s: the ISR is now %s", partition.key, order)

    # -------------------------------------------------------------------- fetch from followers

    def preferred_read_replica(self, partition: Partition, rack: str) -> int | None:
        """Return an in-sync replica in the client's rack, unless this broker is in that rack
        (KIP-392)."""
        config, image = self._broker.config, self._broker.image
        if config.replica_selector_class != RACK_AWARE or config.broker_rack == rack:
            return None
        assert partition.leadership is not None
        for member in sorted(partition.leadership.isr):
            broker = image.brokers.get(member)
            if broker is not None and not broker.fenced and broker.rack == rack:
                return member
        return None
