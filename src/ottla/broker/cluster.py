"""A broker as a member of a cluster: registered, with a lease, and in one case the controller.

    join           register under a new incarnation, take the lease, see oneself in the image, lead
                   what the image says
    session lost   lead nothing, register anew: the session's nodes are gone, the data is not
    leave          be drained of leaderships, give the lease back, end the session

The store is ZooKeeper's; a broker alone has the embedded store and none of this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState
from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.metadata import Check, Create, TxnConflict
from ottla.base.types import TopicPartition
from ottla.broker.cluster_controller import ClusterController
from ottla.broker.forwarding import Forwarding
from ottla.broker.leases import LeaseKeeper, LeaseStore
from ottla.broker.peers import Peers
from ottla.broker.registration import register
from ottla.broker.replication import Replication
from ottla.core.controller.create_topics import NewTopic, TopicDecision
from ottla.core.controller.elections import Brokers, elect
from ottla.metadata import tree

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

RETRY_S = 0.5
GOODBYE_S = 1.0
"""Longest wait of a stopping broker for ZooKeeper to take what only speeds up the others."""
MIN_PATIENCE_S = 5.0
DRAIN_POLL_S = 0.05


class SessionLostAgain(Exception):
    """The session in which this broker has just registered is no more."""


class Cluster:
    def __init__(self, broker: Broker, leases: LeaseStore) -> None:
        self._broker = broker
        lease_ms = broker.config.broker_lease_ms
        self._lease = LeaseKeeper(leases, broker.clock, broker.node_id, lease_ms, broker.applied)
        self.replication = Replication(broker)
        self.controller = ClusterController(broker, lease_ms, lambda: self._lease.is_held)
        self._lease.on_regained = self._lease_regained
        self.forwarding = Forwarding(broker)
        self.marker_peers = Peers(broker)
        self.coordinator_peers = Peers(broker)
        """To transaction coordinators, who are asked before something is written."""
        self._endpoints: Mapping[str, tuple[str, int]] = {}
        self._is_draining = False
        self._checkpoints: asyncio.Task[None] | None = None
        self._is_joining = False
        self._has_everything = True
        """Whether the next incarnation has what the last registered one had."""
        self._rejoining: asyncio.Task[None] | None = None

    # ----------------------------------------------------------------------------------- state

    @property
    def is_controller(self) -> bool:
        return self.controller.is_controller

    @property
    def has_lease(self) -> bool:
        """Whether nobody can have taken from this broker what it leads."""
        return self._lease.is_held

    @property
    def leads_freely(self) -> bool:
        """Whether a leader here may act on its own word."""
        return self._lease.is_held and not self._is_draining

    @property
    def brokers(self) -> Brokers:
        return self.controller.brokers

    def dead_brokers(self) -> Collection[int]:
        return self.controller.dead().keys()

    async def ask_to_create_topics(self, requested: Sequence[NewTopic]) -> list[TopicDecision]:
        return await self.forwarding.create_topics(requested)

    def _lease_regained(self) -> None:
        self.controller.count_anew()
        self.replication.lease_regained()

    # ------------------------------------------------------------------------- joining, leaving

    async def join(self, endpoints: Mapping[str, tuple[str, int]], *, clean_shutdown: bool) -> None:
        self._endpoints = endpoints
        self._has_everything = clean_shutdown
        self._is_joining = True
        self._broker.store.on_session_lost(self._session_lost)
        self.controller.observe()
        while self._is_joining:
            try:
                await self._register()
            except SessionLostAgain:
                logger.warning("the session with ZooKeeper was lost while joining")
            else:
                self._is_joining = False
        await self._lease.start()
        self.replication.start()
        self.controller.start()
        self._checkpoints = asyncio.create_task(self._keep_high_watermarks(), name="watermarks")

    async def _keep_high_watermarks(self) -> None:
        logs, config = self._broker.logs, self._broker.config
        logs.high_watermark = self._high_watermark
        while True:
            await asyncio.sleep(config.replica_high_watermark_checkpoint_interval_ms / 1000)
            try:
                await logs.write_high_watermarks()
            except OSError as error:
                logger.warning("high watermarks could not be kept: %s", error)

    def _high_watermark(self, key: TopicPartition) -> int | None:
        partition = self._broker.partitions.get(key)
        return None if partition is None else partition.high_watermark

    async def _register(self) -> None:
        registration, revision = await self._new_incarnation()
        # Nothing is lost with a session but the session: the log is all there.
        self._has_everything = True
        await self._broker.applied(revision)
        if not self._is_alive_as(registration.incarnation):
            raise SessionLostAgain
        self.replication.registered(registration.incarnation)
        self.controller.image_changed()

    def _is_alive_as(self, incarnation: int) -> bool:
        """Whether the image has this broker in a session, as this incarnation."""
        mine = self._broker.image.brokers.get(self._broker.node_id)
        return mine is not None and not mine.fenced and mine.incarnation == incarnation

    def image_changed(self) -> None:
        """A registration is worth nothing without its session, however that was lost."""
        incarnation = self.replication.incarnation
        if incarnation >= 0 and not self._is_alive_as(incarnation):
            self._session_lost()
        self.controller.image_changed()

    async def _new_incarnation(self) -> tuple[BrokerRegistration, int]:
        """Register. While a former session of this broker exists, wait until it ends or its
        process is known to be dead."""
        clean, owner = self._has_everything, self._broker.data_owner
        node_id = self._broker.node_id
        # ZooKeeper may end the former session, or others elect a controller, in between.
        may_vanish = (tree.draining_path(node_id), tree.CONTROLLER_EPOCH, tree.CONTROLLER_LEADER)
        replacing: Sequence[Check] | None = None
        while True:
            try:
                return await register(self._broker, self._endpoints, clean, replacing, owner)
            except TxnConflict as conflict:
                if conflict.path == tree.live_path(node_id):
                    replacing = await self._former_is_dead() if replacing is None else None
                elif conflict.path not in may_vanish:
                    raise

    async def _former_is_dead(self) -> Sequence[Check]:
        """Return once the process of the former session is known to be dead, with what must still
        hold when its place is taken. It is dead if it had locked the directories that this process
        has locked now: the system releases a lock when its holder ends. Of any other process it is
        known when its lease has expired."""
        if await self._had_the_same_lock():
            return ()
        node_id, lease_s = self._broker.node_id, self._broker.config.broker_lease_ms / 1000
        try:
            async with asyncio.timeout(max(2 * lease_s, MIN_PATIENCE_S)):
                while True:
                    version = self.controller.expired_leases().get(node_id)
                    if version is not None:
                        return [Check(tree.lease_path(node_id), version)]
                    await asyncio.sleep(lease_s / 20)
        except TimeoutError:
            raise UserError(
                f"Another broker with node.id {node_id} is alive in this cluster; "
                "give this one another node.id."
            ) from None

    async def _had_the_same_lock(self) -> bool:
        path, owner = tree.live_path(self._broker.node_id), self._broker.data_owner
        nodes, _ = await self._broker.store.load(path)
        former = nodes.get(path)
        return bool(owner) and former is not None and tree.decode(former).get("owner") == owner

    def _session_lost(self) -> None:
        logger.warning("the session with ZooKeeper is lost: leading nothing until it is back")
        self.replication.session_lost()
        if not self._is_joining and (self._rejoining is None or self._rejoining.done()):
            self._rejoining = asyncio.create_task(self._rejoin(), name="rejoin")

    async def _rejoin(self) -> None:
        while True:
            try:
                await self._register()
            except (SessionLostAgain, TxnConflict, KafkaError, UserError) as error:
                logger.warning("registering anew failed, and is tried again: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def leave(self) -> None:
        """Hand over what this broker leads, then give up the lease."""
        await self._drain()
        await self._stop_replication()
        try:
            await self._broker.logs.write_high_watermarks()
        except OSError as error:
            logger.warning("high watermarks could not be kept: %s", error)
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.controller.hand_over()
                await self._lease.release()
        except TimeoutError:
            logger.warning("ZooKeeper does not answer; the others notice when the lease is over")
        except KafkaError as error:
            logger.info("the lease was not given back: %s", error.message)
        await self._close()

    async def abandon(self) -> None:
        """Stop what `join` has started, without handing anything over."""
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
                await self._drained()
        except TimeoutError:
            logger.warning(
                "shutting down as the leader of %d partitions: nobody has taken them over in %d ms",
                sum(1 for _ in self._led()),
                timeout_ms,
            )
        except (TxnConflict, KafkaError) as error:
            logger.warning("shutting down without handing over what this broker leads: %s", error)

    async def _announce_drain(self, timeout_ms: int) -> None:
        """Raises KafkaError if ZooKeeper is away: nothing can be handed over without it."""
        path = tree.draining_path(self._broker.node_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._broker.store.txn([], [Create(path, b"{}", ephemeral=True)])
        except TimeoutError:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"ZooKeeper did not answer in {timeout_ms} ms"
            ) from None

    async def _drained(self) -> None:
        while self._leads_what_others_could():  # noqa: ASYNC110 the image has many readers, no events
            await asyncio.sleep(DRAIN_POLL_S)

    def _leads_what_others_could(self) -> bool:
        """Whether the controller would find another leader. Brokers that are drained themselves
        are none: of a cluster that stops as a whole nobody waits for the others."""
        me, seen = self._broker.node_id, self.brokers
        brokers = seen._replace(draining=seen.draining | {me})
        return any(
            (new := elect(state, brokers, lambda: False)) is not None
            and new.leader not in (me, NO_LEADER)
            for state in self._led()
        )

    def _led(self) -> Iterator[PartitionState]:
        for topic in self._broker.image.topics.values():
            for state in topic.partitions:
                if state.leader == self._broker.node_id:
                    yield state
