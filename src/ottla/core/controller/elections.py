"""Election of partition leaders.

A new partition is led by its first live replica, and its live replicas form its first ISR.

An ISR member is *eligible* if it is alive and still has every record it had when it joined the ISR:
its current incarnation (broker epoch) is the one listed in the ISR, or follows it by clean
shutdowns alone (its registration *continues* that incarnation). After a crash, the end of a log may
be lost.

    condition                                            result
    the leader holds a lease in the incarnation that     it remains the leader
    the ISR lists
    an ISR member is eligible                            the first one in replica order leads;
                                                         draining brokers are chosen only if all
                                                         are draining, the current leader first
    none is eligible, the only replica has returned      it leads: no other broker had more records
    none is eligible, unclean elections are allowed      a live replica leads
    none is eligible                                     no leader; the ISR is kept, so that a
                                                         member that returns intact can lead

If the leader remains, dead members are removed from the ISR. Every election starts a new leader
epoch. The new ISR consists of the eligible members in their current incarnations, so that a crashed
member does not hold back the new leader's high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState, TopicImage


class LeadershipChange(NamedTuple):
    """A change of a partition's leader, ISR or replicas."""

    topic: TopicImage
    partition: int
    state: PartitionState
    """The new state; its `partition_epoch` is that of the state it replaces."""


class Brokers(NamedTuple):
    """The brokers' status, as far as elections need it."""

    registrations: Mapping[int, BrokerRegistration]
    leasing: Set[int]
    """Brokers whose lease may still be valid: partitions they lead cannot get another leader."""
    alive: Set[int]
    """The leasing brokers that have a session: they can be elected."""
    draining: Set[int] = frozenset()
    """Brokers that gave up their leases to shut down: they lead only if no other broker can."""

    def has_returned(self, broker: int, incarnation: int) -> bool:
        """Return whether the broker is alive and has every record that the incarnation had."""
        return broker in self.alive and self.registrations[broker].continues(incarnation)


def new_partition(
    replicas: Sequence[int], brokers: Mapping[int, BrokerRegistration]
) -> PartitionState:
    """Return the initial state of a partition: live replicas are in the ISR, the first one leads.

    Args:
        replicas: The partition's replicas, the preferred leader first.
        brokers: All registered brokers, by id.
    """
    alive = tuple(id for id in replicas if id in brokers and not brokers[id].fenced)
    return PartitionState(
        leader=alive[0] if alive else NO_LEADER,
        leader_epoch=0,
        isr=alive,
        replicas=tuple(replicas),
        isr_incarnations=tuple(brokers[id].incarnation for id in alive),
    )


def decide_broker_returned(
    topics: Iterable[TopicImage], broker: BrokerRegistration
) -> list[LeadershipChange]:
    """Make the only broker of a cluster the leader of all partitions that only it can lead.

    Args:
        topics: The topics to examine.
        broker: The broker's new registration.

    Returns:
        The partitions to change. Those that the broker continues to lead are left out.
    """
    brokers = Brokers({broker.id: broker}, {broker.id}, {broker.id})
    return [
        LeadershipChange(topic, index, _led_by_sole_member(state, broker))
        for topic in topics
        for index, state in enumerate(topic.partitions)
        if state.isr == (broker.id,) and not _keeps_leader_after_restart(state, brokers)
    ]


def _keeps_leader_after_restart(state: PartitionState, brokers: Brokers) -> bool:
    # A sole broker keeps its leader epoch across a clean restart.
    leader = state.leader
    return leader in state.isr and brokers.has_returned(leader, incarnation_in_isr(state, leader))


def _led_by_sole_member(state: PartitionState, broker: BrokerRegistration) -> PartitionState:
    return state._replace(
        leader=broker.id,
        leader_epoch=state.leader_epoch + 1,
        isr_incarnations=(broker.incarnation,),
    )


def decide_leaders(
    topics: Iterable[TopicImage],
    brokers: Brokers,
    allows_unclean: Callable[[TopicImage], bool],
) -> list[LeadershipChange]:
    """Return the elections that are due.

    Args:
        topics: The topics to examine.
        brokers: The brokers' status.
        allows_unclean: Whether a topic allows unclean leader elections.

    Returns:
        The partitions whose state changes.
    """
    changes = []
    for topic in topics:
        unclean = partial(allows_unclean, topic)
        for index, state in enumerate(topic.partitions):
            new = elect(state, brokers, unclean)
            if new is not None:
                changes.append(LeadershipChange(topic, index, new))
    return changes


def elect(
    state: PartitionState, brokers: Brokers, unclean: Callable[[], bool]
) -> PartitionState | None:
    """Return the partition's state after an election, or None if its state does not change.

    Args:
        state: The current state.
        brokers: The brokers' status.
        unclean: Whether an unclean election is allowed. Called only if no member is eligible.
    """
    if _keeps_leader(state, brokers):
        return _without_dead(state, brokers)
    eligible = [
        replica
        for replica in state.replicas
        if replica in state.isr
        and brokers.has_returned(replica, incarnation_in_isr(state, replica))
    ]
    if eligible:
        leader = next((each for each in eligible if each not in brokers.draining), None)
        if leader is not None:
            return _with_leader(state, leader, eligible, brokers)
        if state.leader in eligible and _isr_has_current_incarnation(state, brokers, state.leader):
            return None  # every member is shutting down: a new leader would soon be gone, too
        return _with_leader(state, eligible[0], eligible, brokers)
    last_resort = _last_resort(state, brokers, unclean)
    if last_resort is not None:
        return _with_leader(state, last_resort, [last_resort], brokers)
    if state.leader == NO_LEADER:
        return None
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)


def prefer_leader(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state in which the preferred replica leads, or None if it leads or cannot lead."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or preferred in brokers.draining:
        return None
    if not brokers.has_returned(preferred, incarnation_in_isr(state, preferred)):
        return None
    return _with_leader(state, preferred, _eligible(state, brokers), brokers)


def incarnation_in_isr(state: PartitionState, broker: int) -> int:
    return state.isr_incarnations[state.isr.index(broker)]


def _eligible(state: PartitionState, brokers: Brokers) -> list[int]:
    """Return the eligible ISR members, in replica order."""
    members = (replica for replica in state.replicas if replica in state.isr)
    return [
        member
        for member in members
        if brokers.has_returned(member, incarnation_in_isr(state, member))
    ]


def _keeps_leader(state: PartitionState, brokers: Brokers) -> bool:
    leader = state.leader
    if leader not in brokers.leasing or leader in brokers.draining:
        return False
    return _isr_has_current_incarnation(state, brokers, leader)


def _without_dead(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Remove ISR members whose lease has expired, so that the leader no longer waits for them.

    The leader epoch stays the same, because the leader does.
    """
    kept = [member for member in state.isr if member in brokers.leasing]
    if len(kept) == len(state.isr):
        return None
    return state._replace(
        isr=tuple(kept),
        isr_incarnations=tuple(incarnation_in_isr(state, member) for member in kept),
    )


def _isr_has_current_incarnation(state: PartitionState, brokers: Brokers, leader: int) -> bool:
    """Return whether the ISR lists the broker's current incarnation: only then may it lead."""
    if leader not in state.isr:
        return False
    return brokers.registrations[leader].incarnation == incarnation_in_isr(state, leader)


def _last_resort(
    state: PartitionState, brokers: Brokers, unclean: Callable[[], bool]
) -> int | None:
    alive = [replica for replica in state.replicas if replica in brokers.alive]
    if not alive:
        return None
    if len(state.replicas) == 1 or unclean():
        members = [replica for replica in alive if replica in state.isr]
        return (members or alive)[0]
    return None


def _with_leader(
    state: PartitionState, leader: int, isr: Sequence[int], brokers: Brokers
) -> PartitionState:
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(isr),
        isr_incarnations=tuple(brokers.registrations[each].incarnation for each in isr),
    )
