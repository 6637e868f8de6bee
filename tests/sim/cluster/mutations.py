"""Mutations that each remove one rule of replication or transactions.

The simulator must notice every one of them. A mutation patches one rule out of the running code.
If the design numbers the rule, the mutation's docstring begins with that number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ottla.base.cluster import BrokerRegistration, PartitionState
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Check, Op
from ottla.broker.cluster import Cluster
from ottla.broker.partition import Partition
from ottla.broker.replica_fetcher import ReplicaFetcher
from ottla.broker.replication import Replication
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.broker.transaction_verification import TransactionVerification
from ottla.core.controller import elections
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.replication import lease
from ottla.core.replication.leadership import Leadership
from ottla.core.txn import machine
from ottla.core.txn.events import EndRequested
from ottla.core.txn.records import Transaction
from ottla.metadata import tree
from ottla.metadata.zookeeper.store import ZooKeeperStore

Mutation = Callable[[pytest.MonkeyPatch], None]


def lead_in_any_incarnation(patch: pytest.MonkeyPatch) -> None:
    """1: a broker leads as the image says, even if the ISR names an earlier incarnation of it."""

    def leads(self: Replication, state: PartitionState) -> bool:
        return state.leader == self._broker.node_id and self.incarnation >= 0

    patch.setattr(Replication, "_leads", leads)


def acknowledge_at_once(patch: pytest.MonkeyPatch) -> None:
    """2: the high watermark is the leader's own log end offset."""

    def advance(self: Leadership, leader_end: int) -> bool:
        moved = leader_end > self.high_watermark
        self.high_watermark = max(self.high_watermark, leader_end)
        return moved

    patch.setattr(Leadership, "advance", advance)


def forget_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    """2: only the committed ISR counts for the high watermark, not a pending change."""
    advance = Leadership.advance

    def without_pending(self: Leadership, leader_end: int) -> bool:
        pending, self._pending = self._pending, None
        try:
            return advance(self, leader_end)
        finally:
            self._pending = pending

    patch.setattr(Leadership, "advance", without_pending)


def shrink_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """2: a replica leaving the ISR stops counting before the change is committed."""
    propose = Leadership.propose

    def at_once(self: Leadership, isr: Mapping[int, int]) -> Any:
        proposal = propose(self, isr)
        if len(isr) < len(self._committed):
            self._committed = dict(isr)
        return proposal

    patch.setattr(Leadership, "propose", at_once)


def refuse_whatever_is_pending(patch: pytest.MonkeyPatch) -> None:
    """2: the rejection of one ISR change is mistaken for that of the next."""
    commit = Replication._commit_isr

    async def clumsy(self: Replication, partition: Partition, *rest: Any) -> None:
        leadership = rest[0]
        await commit(self, partition, *rest)
        leadership._pending = None

    patch.setattr(Replication, "_commit_isr", clumsy)


def never_cut(patch: pytest.MonkeyPatch) -> None:
    """3: a follower keeps records that its leader does not have."""

    async def keep(self: ReplicaFetcher, *_: object) -> None:
        return None

    patch.setattr(ReplicaFetcher, "_truncate", keep)


def never_diverge(patch: pytest.MonkeyPatch) -> None:
    """3: a leader assumes that no follower's log diverges from its own."""
    patch.setattr("ottla.broker.handlers.fetch.diverges", lambda *_: None)


def join_too_early(patch: pytest.MonkeyPatch) -> None:
    """4: a follower joins the ISR as soon as it fetches."""

    def expanded(self: Leadership, follower: int) -> dict[int, int] | None:
        known = self._followers.get(follower)
        if self._pending is not None or known is None:
            return None
        if self._committed.get(follower) == known.incarnation:
            return None
        return {**self._committed, follower: known.incarnation}

    patch.setattr(Leadership, "expanded_isr", expanded)


def let_anybody_lead(patch: pytest.MonkeyPatch) -> None:
    """5: any live replica may be elected, in sync or not."""

    def elect(
        state: PartitionState, brokers: elections.Brokers, unclean: Callable[[], bool]
    ) -> PartitionState | None:
        if elections._keeps_leader(state, brokers):
            return elections._without_dead(state, brokers)
        alive = [each for each in reversed(state.replicas) if each in brokers.alive]
        return elections._with_leader(state, alive[0], alive, brokers) if alive else None

    patch.setattr(elections, "elect", elect)


def trust_what_lost_power(patch: pytest.MonkeyPatch) -> None:
    """5: a returning broker is assumed to have kept its data, even after a power cut."""
    patch.setattr(BrokerRegistration, "continues", lambda self, incarnation: True)


def commit_without_checks(patch: pytest.MonkeyPatch) -> None:
    """Commit every ZooKeeper transaction, even if its preconditions no longer hold."""
    txn = ZooKeeperStore.txn

    async def unchecked(self: ZooKeeperStore, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        kept = [check for check in checks if check.version is None]
        return await txn(self, kept, ops)

    patch.setattr(ZooKeeperStore, "txn", unchecked)


def give_producer_ids_unchecked(patch: pytest.MonkeyPatch) -> None:
    """9: a block of producer IDs is allocated without checking for another owner."""
    txn = ZooKeeperStore.txn

    async def unchecked(self: ZooKeeperStore, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        kept = [check for check in checks if check.path != tree.PRODUCER_IDS]
        return await txn(self, kept, ops)

    patch.setattr(ZooKeeperStore, "txn", unchecked)


def judge_too_soon(patch: pytest.MonkeyPatch) -> None:
    """6: a broker is replaced before its lease has expired."""
    patch.setattr(lease, "GRACE", 0.6)


def trust_the_lease_for_ever(patch: pytest.MonkeyPatch) -> None:
    """6: a broker trusts its lease until it hears otherwise."""
    patch.setattr(Cluster, "has_lease", True)


def fence_before_the_markers_are_written(patch: pytest.MonkeyPatch) -> None:
    """Let EndTxn check the producer epoch before it looks for a pending transition."""
    end = machine._end_with_bump

    def check_epoch(known: Transaction, event: EndRequested, now_ms: int) -> Transaction | None:
        if known.state in machine.PREPARED and not machine._is_retry(known, event.producer):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return end(known, event, now_ms)

    patch.setattr(machine, "_end_with_bump", check_epoch)


def check_the_id_before_the_markers_are_written(patch: pytest.MonkeyPatch) -> None:
    """Let AddPartitionsToTxn check the producer ID before it looks for a pending transition."""
    check_producer = machine._check_producer

    def check_id(known: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
        if known is not None and known.producer_id != producer.id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return check_producer(known, producer)

    patch.setattr(machine, "_check_producer", check_id)


def never_wait_for_markers(patch: pytest.MonkeyPatch) -> None:
    """Reject a partition at once while the producer's previous transaction is being completed."""
    patch.setattr(TransactionCoordinator, "_is_completing", lambda *_: False)
    patch.setattr(TransactionVerification, "verify", TransactionVerification._ask_coordinator)


# Two rules have no mutation here: fetches count only under the current incarnation, and only in the
# current leader epoch. Without them, other rules still protect everything that the oracle checks
# (leases expire before a broker can return, and only members whose incarnation continues are
# elected), so no simulated run fails. Unit tests cover them.
MUTATIONS: tuple[Mutation, ...] = (
    lead_in_any_incarnation,
    acknowledge_at_once,
    forget_what_is_pending,
    shrink_before_the_commit,
    refuse_whatever_is_pending,
    never_cut,
    never_diverge,
    let_anybody_lead,
    commit_without_checks,
    give_producer_ids_unchecked,
    judge_too_soon,
    trust_the_lease_for_ever,
    fence_before_the_markers_are_written,
    check_the_id_before_the_markers_are_written,
)
