"""A broker's membership in its cluster: registration, lease, and the controller if it is elected.

    join           register a new incarnation, acquire the lease, wait until the image shows the
                   registration, lead what the image assigns
    session lost   lead nothing and register again: the session's nodes are gone, the data is not
    leave          hand over leaderships, release the lease, close the session

The metadata store is ZooKeeper. A standalone broker has the embedded store and needs none of
this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState
from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.metadata import Check, Create, TxnConflict
from ottla.base.types import TopicPartition
from ottla.broker.cluster_controller import ClusterController
from ottla.broker.forwarding import Forwarding, Sender
from ottla.broker.leases import LeaseKeeper, LeaseStore
from ottla.broker.logs import Logs
from ottla.broker.partition import Partition
from ottla.broker.peers import Peers
from ottla.broker.ports import (
    Authorizing,
    Configuration,
    Flushing,
    HostedPartitions,
    Metadata,
    PeerEndpoints,
    PeerRecognition,
    Store,
    Threads,
    TimeSource,
)
from ottla.broker.registration import register
from ottla.broker.replication import Replication
from ottla.core.controller.create_topics import NewTopic, TopicDecision
from ottla.core.controller.elections import Brokers, elect
from ottla.metadata import tree

logger = logging.getLogger(__name__)

RETRY_S = 0.5
SHUTDOWN_WRITE_TIMEOUT_S = 1.0
"""Time limit of a stopping broker for writes to ZooKeeper that only speed up the other brokers."""
MIN_TAKEOVER_WAIT_S = 5.0
DRAIN_POLL_S = 0.05


class SessionLostAgain(Exception):
    """The session in which this broker has just registered has ended already."""


class ClusterPorts(
    Authorizing,
    Configuration,
    Flushing,
    HostedPartitions,
    Metadata,
    PeerEndpoints,
    PeerRecognition,
    Store,
    Threads,
    TimeSource,
    Protocol,
):
    """The parts of a broker that its membership in a cluster uses, including replication."""

    @property
    def logs(self) -> Logs: ...

    @property
    def data_owner(self) -> str:
        """Identity of the data directories that this process has locked."""

    async def applied(self, revision: int) -> None:
        """Wait until the image includes the revision."""

    def partitions_changed(self) -> None:
        """Invalidate what was cached about partitions."""

    def leader_changed(self, partition: Partition) -> None:
        """Start or stop the coordinator of a partition."""


class Cluster:
    """This broker as a member of a cluster."""

    def __init__(self, broker: ClusterPorts, leases: LeaseStore) -> None:
        self._broker = broker
        lease_ms = broker.config.broker_lease_ms
        self._lease = LeaseKeeper(leases, broker.clock, broker.node_id, lease_ms, broker.applied)
        self.replication = Replication(broker, lambda: self._lease.is_held)
        self.controller = ClusterController(broker, lease_ms, lambda: self._lease.is_held)
        self._lease.on_regained = self._lease_regained
        self.forwarding = Forwarding(broker)
        self.marker_peers = Peers(broker)
        self.coordinator_peers = Peers(broker)
        """Connections to transaction coordinators, for the verification before an append."""
        self._endpoints: Mapping[str, tuple[str, int]] = {}
        self._is_draining = False
        self._checkpoints: asyncio.Task[None] | None = None
        self._is_joining = False
        self._data_is_complete = True
        """Whether the next incarnation has all data that the last registered one had."""
        self._rejoining: asyncio.Task[None] | None = None

    # ----------------------------------------------------------------------------------- state

    @property
    def is_controller(self) -> bool:
        return self.controller.is_controller

    @property
    def has_lease(self) -> bool:
        """Whether it is certain that the controller has not replaced this broker as a leader."""
        return self._lease.is_held

    @property
    def can_acknowledge_alone(self) -> bool:
        """Whether a leader here may acknowledge without asking its followers: it has a lease and is
        not handing over its partitions."""
        return self._lease.is_held and not self._is_draining

    @property
    def brokers(self) -> Brokers:
        return self.controller.brokers

    def dead_brokers(self) -> Collection[int]:
        return self.controller.dead_brokers().keys()

    async def forward_create_topics(
        self, requested: Sequence[NewTopic], sender: Sender | None
    ) -> list[TopicDecision]:
        return await self.forwarding.create_topics(requested, sender)

    def _lease_regained(self) -> None:
        self.controller.restart_lease_expiry()
        self.replication.lease_regained()

    # ------------------------------------------------------------------------- joining, leaving

    async def join(self, endpoints: Mapping[str, tuple[str, int]], *, clean_shutdown: bool) -> None:
        """Register the broker, acquire the lease and start replication.

        Args:
            endpoints: Listener name to advertised host and port.
            clean_shutdown: Whether the previous run lost nothing that it had written.

        Raises:
            UserError: Another broker with the same `node.id` is alive.
        """
        self._endpoints = endpoints
        self._data_is_complete = clean_shutdown
        self._is_joining = True
        self._broker.store.on_session_lost(self._session_lost)
        self.controller.observe()
        while self._is_joining:
            try:
                await self._register()
            except SessionLostAgain:
                logger.warning("The ZooKeeper session was lost while the broker joined the cluster")
            else:
                self._is_joining = False
        await self._lease.start()
        self.replication.start()
        self.controller.start()
        self._checkpoints = asyncio.create_task(
            self._checkpoint_high_watermarks(), name="watermarks"
        )

    async def _checkpoint_high_watermarks(self) -> None:
        logs, config = self._broker.logs, self._broker.config
        logs.high_watermark = self._high_watermark
        while True:
            await asyncio.sleep(config.replica_high_watermark_checkpoint_interval_ms / 1000)
            try:
                await logs.write_high_watermarks()
            except OSError as error:
                logger.warning("Could not write the high watermark checkpoints: %s", error)

    def _high_watermark(self, key: TopicPartition) -> int | None:
        partition = self._broker.partitions.get(key)
        return None if partition is None else partition.high_watermark

    async def _register(self) -> None:
        registration, revision = await self._new_incarnation()
        # From now on only the session can be lost, not the data: the log remains complete.
        self._data_is_complete = True
        await self._broker.applied(revision)
        if not self._is_alive_as(registration.incarnation):
            raise SessionLostAgain
        self.replication.registered(registration.incarnation)
        self.controller.image_changed()

    def _is_alive_as(self, incarnation: int) -> bool:
        """Return whether the image shows this incarnation of the broker with a live session."""
        mine = self._broker.image.brokers.get(self._broker.node_id)
        return mine is not None and not mine.fenced and mine.incarnation == incarnation

    def image_changed(self) -> None:
        """Register again if the image shows that the session has ended."""
        incarnation = self.replication.incarnation
        if incarnation >= 0 and not self._is_alive_as(incarnation):
            self._session_lost()
        self.controller.image_changed()

    async def _new_incarnation(self) -> tuple[BrokerRegistration, int]:
        """Register a new incarnation. If the node of a former session still exists, wait until
        that session ends or its process is known to be dead."""
        clean, owner = self._data_is_complete, self._broker.data_owner
        node_id = self._broker.node_id
        # These nodes may change meanwhile: ZooKeeper ends the former session, or another broker
        # becomes the controller.
        may_vanish = (tree.draining_path(node_id), tree.CONTROLLER_EPOCH, tree.CONTROLLER_LEADER)
        replacing: Sequence[Check] | None = None
        while True:
            try:
                return await register(self._broker, self._endpoints, clean, replacing, owner)
            except TxnConflict as conflict:
                if conflict.path == tree.live_path(node_id):
                    replacing = await self._wait_for_former_process() if replacing is None else None
                elif conflict.path not in may_vanish:
                    raise

    async def _wait_for_former_process(self) -> Sequence[Check]:
        """Wait until the process of the former session is known to be dead.

        It is dead if it had locked the directories that this process has locked now, because the
        system releases a lock when its holder ends. Any other process counts as dead when its
        lease has expired.

        Returns:
            Checks that must still hold when the new incarnation takes its place.
        """
        if await self._former_held_same_lock():
            return ()
        node_id, lease_s = self._broker.node_id, self._broker.config.broker_lease_ms / 1000
        try:
            async with asyncio.timeout(max(2 * lease_s, MIN_TAKEOVER_WAIT_S)):
                while True:
                    version = self.controller.expired_leases().get(node_id)
                    if version is not None:
                        return [Check(tree.lease_path(node_id), version)]
                    await asyncio.sleep(lease_s / 20)
        except TimeoutError:
            raise UserError(
                f"Another broker with node.id {node_id} is running in this cluster. Set a "
                "different node.id for this broker."
            ) from None

    async def _former_held_same_lock(self) -> bool:
        path, owner = tree.live_path(self._broker.node_id), self._broker.data_owner
        nodes, _ = await self._broker.store.load(path)
        former = nodes.get(path)
        return bool(owner) and former is not None and tree.decode(former).get("owner") == owner

    def _session_lost(self) -> None:
        logger.warning(
            "Lost the ZooKeeper session; this broker leads no partitions until it has "
            "registered again"
        )
        self.replication.session_lost()
        if not self._is_joining and (self._rejoining is None or self._rejoining.done()):
            self._rejoining = asyncio.create_task(self._rejoin(), name="rejoin")

    async def _rejoin(self) -> None:
        while True:
            try:
                await self._register()
            except (SessionLostAgain, TxnConflict, KafkaError, UserError) as error:
                logger.warning("Could not register the broker again, retrying: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def leave(self) -> None:
        """Hand over leaderships, release the lease and disconnect from the cluster."""
        await self._drain()
        await self._stop_replication()
        try:
            await self._broker.logs.write_high_watermarks()
        except OSError as error:
            logger.warning("Could not write the high watermark checkpoints: %s", error)
        try:
            async with asyncio.timeout(SHUTDOWN_WRITE_TIMEOUT_S):
                await self.controller.hand_over()
                await self._lease.release()
        except TimeoutError:
            logger.warning(
                "ZooKeeper does not respond; the controller detects the shutdown when the "
                "lease expires"
            )
        except KafkaError as error:
            logger.info("Could not release the lease: %s", error.message)
        await self._close()

    async def abandon(self) -> None:
        """Stop everything that `join` has started, without handing anything over."""
        await self._stop_replication()
        await self._close()

    async def _stop_replication(self) -> None:
        for task in (self._rejoining, self._checkpoints):
            if task is not None:
                task.cancel()
        await self.replication.stop()

    async def _close(self) -> None:
        await self.controller.stop()
        await self._lease.stop()
        self.forwarding.close()
        self.marker_peers.close()
        self.coordinator_peers.close()

    async def _drain(self) -> None:
        broker, config = self._broker, self._broker.config
        others = [each for each in broker.image.live_brokers if each.id != broker.node_id]
        if not config.controlled_shutdown_enable or not others:
            return
        self._is_draining = True
        timeout_ms = config.controlled_shutdown_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._announce_drain(min(timeout_ms, config.zookeeper_session_timeout_ms))
                await self._wait_until_drained()
        except TimeoutError:
            logger.warning(
                "Shutting down as the leader of %d partitions: no other replica took over "
                "within %d ms",
                sum(1 for _ in self._led_partitions()),
                timeout_ms,
            )
        except (TxnConflict, KafkaError) as error:
            logger.warning("Shutting down without transferring leadership: %s", error)

    async def _announce_drain(self, timeout_ms: int) -> None:
        """Announce the shutdown to the controller. Raises KafkaError if ZooKeeper does not respond,
        because nothing can be handed over without it."""
        path = tree.draining_path(self._broker.node_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._broker.store.txn([], [Create(path, b"{}", ephemeral=True)])
        except TimeoutError:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"ZooKeeper did not respond within {timeout_ms} ms"
            ) from None

    async def _wait_until_drained(self) -> None:
        while self._leads_transferable_partitions():  # noqa: ASYNC110 the image has many readers, no events
            await asyncio.sleep(DRAIN_POLL_S)

    def _leads_transferable_partitions(self) -> bool:
        """Return whether the controller would find another leader for a partition led here. Brokers
        that are shutting down are no candidates, so a cluster that stops as a whole does not
        wait."""
        me, seen = self._broker.node_id, self.brokers
        brokers = seen._replace(draining=seen.draining | {me})
        return any(
            (new := elect(state, brokers, lambda: False)) is not None
            and new.leader not in (me, NO_LEADER)
            for state in self._led_partitions()
        )

    def _led_partitions(self) -> Iterator[PartitionState]:
        for topic in self._broker.image.topics.values():
            for state in topic.partitions:
                if state.leader == self._broker.node_id:
                    yield state
