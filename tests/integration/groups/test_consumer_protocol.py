"""Real consumers of the consumer protocol (librdkafka), alone and among classic ones."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from tests.integration.groups.consumers import (
    ConsumerProcess,
    describe,
    describe_consumers,
    owned_by,
    wait_until_consumers_share,
    wait_until_shared,
)
from tests.integration.groups.ownership import OwnershipWatch
from tests.integration.groups.test_consumers import PARTITIONS, produce, received
from tests.raw_client import RawClient, eventually

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess

SESSION_S = 2.0
"""The session timeout that conftest.py configures."""


def consumer(broker: BrokerProcess, group: str, topic: str, **options: Any) -> ConsumerProcess:
    return ConsumerProcess(broker, "confluent-kafka", group, topic, protocol="consumer", **options)


def test_members_share_a_group_take_over_and_read_everything_once(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        members = [stack.enter_context(consumer(broker, group, topic)) for _ in range(3)]
        watch = stack.enter_context(OwnershipWatch(*members))
        wait_until_consumers_share(client, group, 3, PARTITIONS)
        eventually(lambda: [len(each.owned) for each in members], lambda sizes: sizes == [2] * 3)
        produce(client, topic)
        once = [(partition, 0) for partition in range(PARTITIONS)]
        eventually(lambda: received(*members), lambda records: records == once)

        left = members.pop()
        left.close()
        wait_until_consumers_share(client, group, 2, PARTITIONS)
        eventually(lambda: [len(each.owned) for each in members], lambda sizes: sizes == [3, 3])
        produce(client, topic)
        twice = sorted([(partition, 1) for partition in range(PARTITIONS)])
        seen = eventually(
            lambda: [each for each in received(*members) if each[1] == 1],
            lambda records: len(records) == PARTITIONS,
        )
        assert seen == twice
    assert watch.conflicts == []
    assert describe_consumers(client, group).group_state == "Empty"


def test_the_partitions_of_a_dead_member_are_read_again_within_its_session_and_a_second(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with consumer(broker, group, topic) as survivor, consumer(broker, group, topic) as victim:
        wait_until_consumers_share(client, group, 2, PARTITIONS)
        eventually(lambda: len(survivor.owned) == len(victim.owned) == PARTITIONS // 2)
        lost = sorted(victim.owned)
        killed_at = victim.kill()
        produce(client, topic)
        eventually(lambda: received(survivor), lambda seen: len(seen) == PARTITIONS)
        read_at = [when for partition, _, when in survivor.records if partition in lost]
        assert max(read_at) - killed_at < SESSION_S + 1


def test_what_stays_is_read_on_while_a_member_is_added(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    """Records keep arriving; no retained partition waits for the rebalance."""
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        first = stack.enter_context(consumer(broker, group, topic))
        wait_until_consumers_share(client, group, 1, PARTITIONS)
        eventually(lambda: len(first.owned), lambda size: size == PARTITIONS)
        second = stack.enter_context(consumer(broker, group, topic))
        watch = stack.enter_context(OwnershipWatch(first, second))

        def produce_on() -> bool:
            produce(client, topic)
            return len(second.owned) == PARTITIONS // 2

        eventually(produce_on)
        stays = set(first.owned)
        sent = time.monotonic()
        produce(client, topic)
        eventually(
            lambda: {each[0] for each in first.records if each[2] >= sent},
            lambda seen: seen == stays,
        )
        revoked = [said["revoked"] for said in first.changes() if "revoked" in said]
        assert [set(each) for each in revoked] == [set(range(PARTITIONS)) - stays], "nothing else"
        for partition in stays:
            times = [each[2] for each in first.records if each[0] == partition]
            pauses = [later - earlier for earlier, later in pairwise(times)]
            assert max(pauses) < 1.0, "it was read all the time"
    assert watch.conflicts == []


def test_a_rolling_restart_of_static_members_causes_no_rebalance(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    members = {name: consumer(broker, group, topic, instance=name) for name in ("a", "b")}
    try:
        before = wait_until_consumers_share(client, group, 2, PARTITIONS)
        eventually(lambda: all(len(each.owned) == PARTITIONS // 2 for each in members.values()))
        for name, other in (("a", "b"), ("b", "a")):
            owned, changes = set(members[name].owned), members[other].changes()
            members[name].close()
            members[name] = consumer(broker, group, topic, instance=name)
            eventually(lambda name=name: members[name].owned, lambda seen, o=owned: seen == o)
            assert members[other].changes() == changes, "nobody else noticed"
        after = wait_until_consumers_share(client, group, 2, PARTITIONS)
        assert after.group_epoch == before.group_epoch
        assert owned_by(after).keys().isdisjoint(owned_by(before)), "they have other ids"
    finally:
        for each in members.values():
            each.close()


def test_a_member_that_pauses_past_its_session_is_out_and_comes_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    with consumer(broker, group, topic) as active, consumer(broker, group, topic) as sleeper:
        wait_until_consumers_share(client, group, 2, 2)
        began = time.monotonic()
        sleeper.pause()
        wait_until_consumers_share(client, group, 1, 2)
        eventually(lambda: active.owned, lambda owned: owned == {0, 1})
        assert time.monotonic() - began < SESSION_S + 1 + 1
        sleeper.resume()
        wait_until_consumers_share(client, group, 2, 2)


def test_progress_is_remembered(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    for round_number in range(2):
        produce(client, topic, 1)
        with consumer(broker, group, topic) as member:
            seen = eventually(lambda member=member: received(member))
        assert seen == [(0, round_number)], "from where the last one stopped"


def test_a_pattern_is_matched_by_the_broker_as_topics_come(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(f"{topic}.one", 1)
    with consumer(broker, group, f"^{topic}.*") as member:
        eventually(lambda: member.owned, lambda owned: owned == {0})
        client.create_topic(f"{topic}.two", 2)
        eventually(lambda: member.owned, lambda owned: owned == {0, 1})
        (described,) = describe_consumers(client, group).members
        names = {each.topic_name for each in described.assignment.topic_partitions}
        assert names == {f"{topic}.one", f"{topic}.two"}
        assert described.subscribed_topic_regex


@pytest.mark.parametrize("kind", ["kafka-python", "aiokafka", "confluent-kafka"])
def test_a_live_classic_group_moves_to_the_consumer_protocol_and_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str, kind: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        old = [
            stack.enter_context(ConsumerProcess(broker, kind, group, topic, session_ms=2_000))
            for _ in range(2)
        ]
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: all(len(each.owned) == 3 for each in old))
        new = stack.enter_context(consumer(broker, group, topic))
        watch = stack.enter_context(OwnershipWatch(*old, new))
        wait_until_consumers_share(client, group, 3, PARTITIONS)
        eventually(lambda: [len(each.owned) for each in (*old, new)], lambda n: n == [2, 2, 2])
        produce(client, topic)
        once = [(partition, 0) for partition in range(PARTITIONS)]
        eventually(lambda: received(*old, new), lambda records: records == once)
        assert all(len(each.records) == 2 for each in (*old, new))
        assert describe(client, group).group_state == "Dead", "it is no classic group"

        new.close()
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: all(len(each.owned) == 3 for each in old))
        produce(client, topic)
        again = eventually(
            lambda: [each for each in received(*old) if each[1] == 1],
            lambda seen: len(seen) == PARTITIONS,
        )
        assert again == [(partition, 1) for partition in range(PARTITIONS)]
    assert watch.conflicts == []


def test_a_group_of_three_clients_in_both_protocols(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        members = [
            stack.enter_context(consumer(broker, group, topic)),
            stack.enter_context(ConsumerProcess(broker, "kafka-python", group, topic)),
            stack.enter_context(ConsumerProcess(broker, "aiokafka", group, topic)),
        ]
        wait_until_consumers_share(client, group, 3, PARTITIONS)
        eventually(lambda: [len(each.owned) for each in members], lambda n: n == [2, 2, 2])
        members[1].kill()
        wait_until_consumers_share(client, group, 2, PARTITIONS)
        produce(client, topic)
        seen = eventually(
            lambda: received(members[0], members[2]), lambda records: len(records) == PARTITIONS
        )
        assert seen == [(partition, 0) for partition in range(PARTITIONS)]


def test_a_group_survives_the_death_of_its_broker(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t", PARTITIONS)
    with consumer(own_broker, "g", "t") as one, consumer(own_broker, "g", "t") as two:
        with RawClient(own_broker.port) as client:
            before = wait_until_consumers_share(client, "g", 2, PARTITIONS)
            eventually(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2)
        changes = one.changes(), two.changes()
        own_broker.restart(kill=True)
        with RawClient(own_broker.port) as client:
            after = eventually(
                lambda: describe_consumers(client, "g"),
                lambda seen: seen.error_code == ErrorCode.NONE,
            )
            assert owned_by(after) == owned_by(before)
            assert (after.group_epoch, after.group_state) == (before.group_epoch, "Stable")
            produce(client, "t")
            eventually(lambda: received(one, two), lambda seen: len(seen) == PARTITIONS)
        assert (one.changes(), two.changes()) == changes, "members did not notice"
