"""The duties of the controller towards its cluster, apart from admin requests.

    controller election     the broker that creates /controller/leader (ephemeral) and increments
                            /controller/epoch, in one transaction, is the controller
    a broker dies           its lease expires one and a quarter lease durations after its last
                            renewal was seen; then its partitions get other leaders
    a broker shuts down     its partitions get other leaders at once, while it still serves them
    a reassignment ends     the old replicas are removed (core/controller/reassignment.py)
    a broker returns        partitions without a leader are reconsidered; a while later leadership
                            moves back to the preferred replicas

Every decision is based on the image and committed with checks: that this broker is still the
controller, the leases that count as expired, the registration of the new leader and the version of
the partition. A commit that conflicts is not forced. Once the image shows the change, the decision
is made again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ottla.base.cluster import TopicImage
from ottla.base.config.topic import topic_config
from ottla.base.errors import KafkaError
from ottla.base.metadata import (
    Change,
    Check,
    Create,
    Delete,
    Op,
    Replace,
    TxnConflict,
)
from ottla.broker.controller import ControllerPorts
from ottla.broker.ports import TimeSource
from ottla.core.controller.elections import (
    Brokers,
    LeadershipChange,
    decide_leaders,
    prefer_leader,
)
from ottla.core.controller.reassignment import decide_completions
from ottla.core.replication.lease import LeaseWatch
from ottla.metadata import tree
from ottla.metadata.image import NO_CONTROLLER, NO_CONTROLLER_EPOCH

logger = logging.getLogger(__name__)

PARTITIONS_PER_TXN = 100
"""ZooKeeper accepts about 1 MB per transaction, and a batch that conflicts is decided again."""
RETRY_S = 0.2
MAX_WAIT_S = 5.0


class ClusterControllerPorts(ControllerPorts, TimeSource, Protocol):
    """The parts of a broker that the cluster controller uses."""


class ClusterController:
    """The part of the controller that runs elections: its own and those of partition leaders."""

    def __init__(
        self, broker: ClusterControllerPorts, lease_ms: int, has_lease: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._has_lease = has_lease
        self._leases = LeaseWatch(lease_ms / 1000)
        self._epoch: int | None = None
        """Controller epoch while this broker is the controller, else None."""
        self._unwatch_leases: Callable[[], None] = _nothing
        self._wake = asyncio.Event()
        self._balance_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------ start and stop

    def observe(self) -> None:
        """Start to watch the leases of all brokers."""
        self._unwatch_leases = self._broker.store.watch(tree.LEASES, self._on_leases)

    def expired_leases(self) -> dict[int, int]:
        """Return the brokers whose lease has certainly expired -> version of the lease node."""
        return self._leases.expired(self._broker.clock.monotonic())

    def restart_lease_expiry(self) -> None:
        """Restart the expiry timers of all leases after this broker was cut off from the store."""
        self._leases.restart_expiry(self._broker.clock.monotonic())
        self._mark_dead_brokers()
        self._wake.set()

    def dead_brokers(self) -> dict[int, int]:
        """Like `expired_leases`, but empty while this broker has no lease itself: it may be the
        one that is cut off."""
        return self.expired_leases() if self._has_lease() else {}

    def _mark_dead_brokers(self) -> None:
        """Mark dead brokers in the image, so that Metadata stops listing them before ZooKeeper ends
        their sessions."""
        self._broker.image.set_presumed_dead(self.dead_brokers())

    def start(self) -> None:
        """Start the loop. Call it when the broker is registered and the image shows it."""
        self._task = asyncio.create_task(self._run(), name="cluster-controller")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._unwatch_leases()
        self._unwatch_leases = _nothing
        self._resign()

    async def hand_over(self) -> None:
        """Stop, and resign as the controller so that another broker can take over."""
        await self.stop()
        image = self._broker.image
        if image.controller_id == self._broker.node_id:
            try:
                await self._broker.store.txn([], [Delete(tree.CONTROLLER_LEADER)])
            except (TxnConflict, KafkaError) as error:
                logger.info("Could not resign as controller: %s", error)

    @property
    def is_controller(self) -> bool:
        return self._epoch is not None and self._epoch == self._broker.image.controller_epoch

    def image_changed(self) -> None:
        """Run the loop again: brokers, partitions or the controller have changed."""
        self._wake.set()

    # ------------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._once()
            except KafkaError as error:
                logger.warning(
                    "The controller could not update the cluster, retrying: %s", error.message
                )
                await asyncio.sleep(RETRY_S)
                continue
            except Exception:
                logger.exception("The controller failed, retrying")
                await asyncio.sleep(RETRY_S)
                continue
            try:
                async with asyncio.timeout(self._wait_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _once(self) -> None:
        image, node_id = self._broker.image, self._broker.node_id
        self._mark_dead_brokers()
        expired = self.dead_brokers()
        if image.controller_id == NO_CONTROLLER or (
            image.controller_id in expired and image.controller_id != node_id
        ):
            self._resign()
            await self._stand_for_election(expired)
        elif image.controller_id != node_id:
            self._resign()
        else:
            if self._epoch != image.controller_epoch:
                self._become_controller(image.controller_epoch)
            await self._elect_leaders()
            await self._complete_reassignments()
            await self._balance()
            if self._balance_at is None and self._is_unbalanced():
                self._balance_soon()

    def _wait_s(self) -> float:
        now = self._broker.clock.monotonic()
        due = [now + MAX_WAIT_S]
        expiry = self._leases.next_expiry(now)
        if expiry is not None:
            due.append(expiry)
        if self._epoch is not None and self._balance_at is not None:
            due.append(self._balance_at)
        return max(0.0, min(due) - now) + 0.001

    # --------------------------------------------------------------------------- being elected

    async def _stand_for_election(self, expired: Mapping[int, int]) -> None:
        """Try to become the controller, in place of none or of one whose lease has expired. The
        commits of the former controller fail from then on, because the epoch has changed."""
        image, node_id = self._broker.image, self._broker.node_id
        leader = Create(tree.CONTROLLER_LEADER, tree.encode({"id": node_id}), ephemeral=True)
        value = tree.encode({"controller_id": node_id})
        epoch: Op = Replace(tree.CONTROLLER_EPOCH, value)
        known = image.controller_epoch
        checks = [Check(tree.CONTROLLER_EPOCH, known)]
        if known == NO_CONTROLLER_EPOCH:
            epoch, checks = Create(tree.CONTROLLER_EPOCH, value), []
        mine = image.brokers.get(node_id)
        if mine is None or mine.fenced:
            return  # not registered in this session yet
        checks.append(Check(tree.registration_path(node_id), mine.incarnation))
        ops: list[Op] = [leader, epoch]
        former = image.controller_id
        if former in expired:
            checks.append(Check(tree.lease_path(former), expired[former]))
            ops = [Delete(tree.CONTROLLER_LEADER), *ops]
        try:
            await self._broker.store.txn(checks, ops)
        except TxnConflict:
            logger.debug("Another broker is the controller")
        else:
            logger.info("Broker %d is now the controller", node_id)

    def _become_controller(self, epoch: int) -> None:
        self._epoch = epoch
        self._balance_soon()

    def _resign(self) -> None:
        if self._epoch is not None:
            logger.info("Broker %d is no longer the controller", self._broker.node_id)
        self._epoch = None

    def _on_leases(self, revision: int, changes: Sequence[Change]) -> None:
        now = self._broker.clock.monotonic()
        for path, node in changes:
            if node is None:
                continue
            broker_id = int(path[len(tree.LEASES) :])
            if tree.decode(node).get("released"):
                self._leases.released(broker_id, node.version)
                self._wake.set()
                continue
            if broker_id in self._leases.expired(now):
                self._wake.set()  # the broker has returned
            self._leases.observed(broker_id, now, node.version)
        self._mark_dead_brokers()

    # ------------------------------------------------------------------------------- elections

    def _brokers(self, expired: Mapping[int, int]) -> Brokers:
        image = self._broker.image
        leasing = image.brokers.keys() - expired.keys()
        alive = {broker for broker in leasing if image.is_alive(broker)}
        return Brokers(image.brokers, leasing, alive, frozenset(image.draining))

    async def _elect_leaders(self) -> None:
        expired = self.dead_brokers()
        brokers = self._brokers(expired)
        topics = list(self._broker.image.topics.values())
        changes = decide_leaders(topics, brokers, self._allows_unclean)
        if changes:
            logger.info("Electing leaders for %d partitions", len(changes))
            await self._commit(changes, expired)
            self._balance_soon()

    @property
    def brokers(self) -> Brokers:
        """The brokers as elections see them now."""
        return self._brokers(self.dead_brokers())

    async def _complete_reassignments(self) -> None:
        expired = self.dead_brokers()
        topics = self._broker.image.topics.values()
        changes = decide_completions(topics, self._brokers(expired))
        if changes:
            logger.info("Completing the reassignment of %d partitions", len(changes))
            await self._commit(changes, expired)

    def _allows_unclean(self, topic: TopicImage) -> bool:
        config = topic_config(self._broker.config, topic.configs)
        return bool(config.unclean_leader_election_enable)

    def _balance_soon(self) -> None:
        delay_s = self._broker.config.leader_imbalance_check_interval_seconds
        self._balance_at = self._broker.clock.monotonic() + min(delay_s, MAX_WAIT_S)

    async def _balance(self) -> None:
        """Move leadership back to the preferred replicas, if that has been due for a while."""
        now = self._broker.clock.monotonic()
        if self._balance_at is None or now < self._balance_at:
            return
        self._balance_at = None
        if not self._broker.config.auto_leader_rebalance_enable:
            return
        expired = self.dead_brokers()
        brokers = self._brokers(expired)
        changes = [
            LeadershipChange(topic, index, better)
            for topic in self._broker.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if (better := prefer_leader(state, brokers)) is not None
        ]
        if changes:
            logger.info(
                "Moving leadership of %d partitions back to their preferred replicas", len(changes)
            )
            await self._commit(changes, expired)

    def _is_unbalanced(self) -> bool:
        return any(
            state.leader != state.replicas[0]
            for topic in self._broker.image.topics.values()
            for state in topic.partitions
        )

    async def _commit(
        self, changes: Sequence[LeadershipChange], expired: Mapping[int, int]
    ) -> None:
        for start in range(0, len(changes), PARTITIONS_PER_TXN):
            batch = changes[start : start + PARTITIONS_PER_TXN]
            try:
                await self._broker.store.txn(self._checks(batch, expired), list(_ops(batch)))
            except TxnConflict as conflict:
                # The image will show what has changed; meanwhile the other batches may succeed.
                logger.info("The cluster changed during a leader election, retrying: %s", conflict)
                self._wake.set()
                await asyncio.sleep(RETRY_S)

    def _checks(self, batch: Sequence[LeadershipChange], expired: Mapping[int, int]) -> list[Check]:
        assert self._epoch is not None, "only the controller commits elections"
        checks = tree.controller_checks(self._epoch)
        checks += [Check(tree.lease_path(dead), version) for dead, version in expired.items()]
        leaders = {change.state.leader for change in batch}
        registrations = self._broker.image.brokers
        checks += [
            Check(tree.registration_path(leader), registrations[leader].incarnation)
            for leader in sorted(leaders)
            if leader in registrations
        ]
        checks += [
            Check(
                tree.partition_path(change.topic.topic_id, change.partition),
                change.state.partition_epoch,
            )
            for change in batch
        ]
        return checks


def _nothing() -> None:
    """Stand in for the function that ends a watch, when there is none."""


def _ops(batch: Iterable[LeadershipChange]) -> Iterable[Op]:
    for change in batch:
        path = tree.partition_path(change.topic.topic_id, change.partition)
        yield Replace(path, tree.encode_partition(change.state))
