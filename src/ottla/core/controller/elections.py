"""Who leads a partition.

A new partition is led by the first of its replicas that is alive; the replicas that are alive are
its first in-sync replicas.

A broker that registered again leads what it led, as long as it has everything it had: that is so
after a clean shutdown (its registration *continues* the incarnation in the ISR). After a crash the
end of its logs may be lost. Where it is the only in-sync replica nobody else has more, so it leads
again, in a new leader epoch: clients that have read further can see by the epoch that the log was
cut. Where there are other in-sync replicas, nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.cluster import NO_LEADER, BrokerRegistration, PartitionState, TopicImage


class LeadershipChange(NamedTuple):
    topic: TopicImage
    partition: int
    state: PartitionState


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
    """The changes that make the broker leader of what only it can lead."""
    return [
        LeadershipChange(topic, index, _led_again(state, broker))
        for topic in topics
        for index, state in enumerate(topic.partitions)
        if state.isr == (broker.id,) and not _leads_still(state, broker)
    ]


def _leads_still(state: PartitionState, broker: BrokerRegistration) -> bool:
    return state.leader == broker.id and broker.continues(state.isr_incarnations[0])


def _led_again(state: PartitionState, broker: BrokerRegistration) -> PartitionState:
    return state._replace(
        leader=broker.id,
        leader_epoch=state.leader_epoch + 1,
        isr_incarnations=(broker.incarnation,),
    )
