from __future__ import annotations

from dataclasses import replace

from tests.unit.core.controller.cluster import broker

from ottla.base.cluster import NO_LEADER, PartitionState, TopicImage
from ottla.core.controller.elections import decide_broker_returned, new_partition

LED_IN_3 = PartitionState(1, 5, (1,), (1,), isr_incarnations=(3,))


def topic(*states: PartitionState) -> TopicImage:
    return TopicImage("t", b"\x01" * 16, {}, states)


def returned(incarnation: int, clean_from: int):
    return replace(broker(1), incarnation=incarnation, clean_from=clean_from)


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    known = {1: broker(1, fenced=True), 2: replace(broker(2), incarnation=7), 3: broker(3)}
    state = new_partition([1, 2, 3], known)
    assert (state.leader, state.isr, state.isr_incarnations) == (2, (2, 3), (7, 0))
    assert new_partition([1], known).leader == NO_LEADER


def test_after_clean_shutdowns_leadership_continues_in_the_same_epoch() -> None:
    assert decide_broker_returned([topic(LED_IN_3)], returned(6, clean_from=2)) == []


def test_after_a_crash_the_only_replica_leads_in_a_new_epoch() -> None:
    (change,) = decide_broker_returned([topic(LED_IN_3)], returned(4, clean_from=4))
    assert change.partition == 0
    assert change.state == LED_IN_3._replace(leader_epoch=6, isr_incarnations=(4,))
    assert decide_broker_returned([topic(change.state)], returned(4, clean_from=4)) == []


def test_a_leaderless_partition_gets_its_only_replica_back() -> None:
    leaderless = LED_IN_3._replace(leader=NO_LEADER)
    (change,) = decide_broker_returned([topic(leaderless)], returned(4, clean_from=1))
    assert (change.state.leader, change.state.leader_epoch) == (1, 6)


def test_partitions_with_other_in_sync_replicas_are_left_alone() -> None:
    shared = PartitionState(2, 5, (2, 1), (1, 2), isr_incarnations=(0, 3))
    others = PartitionState(2, 5, (2,), (1, 2), isr_incarnations=(0,))
    assert decide_broker_returned([topic(shared, others)], returned(4, clean_from=4)) == []
