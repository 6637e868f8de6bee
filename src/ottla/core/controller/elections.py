"""Who leads a partition.

A new partition is led by the first of its replicas that is alive; the replicas that are alive are
its first in-sync replicas.

A member of the ISR is *eligible* if it is alive and has everything it had when it joined: its
present incarnation is the one in the ISR, or is linked to it by clean shutdowns alone (its
registration *continues* it). After a crash the end of a log may be lost.

    the leader is alive in the incarnation of the ISR    it goes on
    a member is eligible                                 the first in the order of the replicas
                                                         leads; one that is being drained only if
                                                         all are, and then the present leader first
    none is, and the only replica has returned           it leads: nobody ever had more
    none is, and unclean elections are allowed           a replica that is alive leads
    none is                                              no leader; the ISR is kept, for whoever of
                                                         it returns in order

Where the leader goes on, members of the ISR that are dead are taken out of it. Every election
begins a new leader epoch. The new ISR is what is eligible, under its present incarnations: a
crashed member does not hold up the new leader's watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState, TopicImage


class LeadershipChange(NamedTuple):
    topic: TopicImage
    partition: int
    state: PartitionState
    """As it is to be; its `partition_epoch` is that of the state it replaces."""


class Brokers(NamedTuple):
    """What an election has to know of brokers."""

    registrations: Mapping[int, BrokerRegistration]
    leasing: Set[int]
    """Their lease may not be over: nobody takes from them what they lead."""
    alive: Set[int]
    """Those of them that are in a session: they can be given something to lead."""
    draining: Set[int] = frozenset()
    """About to shut down, without a lease by their own will: they lead only if nobody else can."""

    def has_returned(self, broker: int, incarnation: int) -> bool:
        """Whether it is alive with everything that this incarnation had."""
        return broker in self.alive and self.registrations[broker].continues(incarnation)


def new_partition(
    replicas: Sequence[int], brokers: Mapping[int, BrokerRegistration]
) -> PartitionState:
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
    """The changes that make a broker, alone in its cluster, leader of what only it can lead."""
    brokers = Brokers({broker.id: broker}, {broker.id}, {broker.id})
    return [
        LeadershipChange(topic, index, _led_by_sole_member(state, broker))
        for topic in topics
        for index, state in enumerate(topic.partitions)
        if state.isr == (broker.id,) and not _leads_on_after_restart(state, brokers)
    ]


def _leads_on_after_restart(state: PartitionState, brokers: Brokers) -> bool:
    """A broker alone keeps its leader epoch over a clean restart."""
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
    """The elections that are due, of all partitions of these topics."""
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
    """The state after an election, or None if none is due."""
    if _leads_on(state, brokers):
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
            return _led(state, leader, eligible, brokers)
        if state.leader in eligible and _carries_present(state, brokers, state.leader):
            return None  # every member is shutting down: another leader would soon be gone, too
        return _led(state, eligible[0], eligible, brokers)
    last_resort = _last_resort(state, brokers, unclean)
    if last_resort is not None:
        return _led(state, last_resort, [last_resort], brokers)
    if state.leader == NO_LEADER:
        return None
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)


def prefer_leader(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """The state in which the first of the replicas leads; None if it does, or cannot."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or preferred in brokers.draining:
        return None
    if not brokers.has_returned(preferred, incarnation_in_isr(state, preferred)):
        return None
    return _led(state, preferred, _eligible(state, brokers), brokers)


def incarnation_in_isr(state: PartitionState, broker: int) -> int:
    return state.isr_incarnations[state.isr.index(broker)]


def _eligible(state: PartitionState, brokers: Brokers) -> list[int]:
    """In the order of the replicas."""
    members = (replica for replica in state.replicas if replica in state.isr)
    return [
        member
        for member in members
        if brokers.has_returned(member, incarnation_in_isr(state, member))
    ]


def _leads_on(state: PartitionState, brokers: Brokers) -> bool:
    leader = state.leader
    if leader not in brokers.leasing or leader in brokers.draining:
        return False
    return _carries_present(state, brokers, leader)


def _without_dead(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """The ISR without members whose lease is over: the leader need not wait for them any more. The
    leader epoch stays: nothing begins anew."""
    kept = [member for member in state.isr if member in brokers.leasing]
    if len(kept) == len(state.isr):
        return None
    return state._replace(
        isr=tuple(kept),
        isr_incarnations=tuple(incarnation_in_isr(state, member) for member in kept),
    )


def _carries_present(state: PartitionState, brokers: Brokers, leader: int) -> bool:
    """Whether the ISR has the broker in its present incarnation: only then may it act as leader."""
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


def _led(
    state: PartitionState, leader: int, isr: Sequence[int], brokers: Brokers
) -> PartitionState:
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(isr),
        isr_incarnations=tuple(brokers.registrations[each].incarnation for each in isr),
    )
