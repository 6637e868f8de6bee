"""Real consumers in groups: assignment, take-over, static members, cooperative rebalances."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count

import pytest
from tests.integration.groups.consumers import CLIENTS, ConsumerProcess, describe, wait_until_shared
from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

PARTITIONS = 6
SESSION_MS = 2_000
_values = count()


def produce(client: RawClient, topic: str, partitions: int = PARTITIONS) -> None:
    """Produce one record to each partition."""
    for partition in range(partitions):
        assert (
            client.produce(topic, [(None, b"%d" % next(_values), (), 0)], partition).error_code == 0
        )


def received(*consumers: ConsumerProcess) -> list[tuple[int, int]]:
    return sorted(record[:2] for consumer in consumers for record in consumer.records)


def test_clients_of_three_kinds_share_a_group_and_take_over(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(ConsumerProcess(broker, kind, group, topic, session_ms=SESSION_MS))
            for kind in CLIENTS
        ]
        wait_until_shared(client, group, 3, PARTITIONS)
        eventually(lambda: [len(each.owned) for each in consumers], lambda sizes: sizes == [2] * 3)
        produce(client, topic)
        once = [(partition, 0) for partition in range(PARTITIONS)]
        eventually(lambda: received(*consumers), lambda records: records == once)
        assert all(len(each.records) == 2 for each in consumers)

        consumers[0].kill()
        produce(client, topic)
        everything = [(partition, 1) for partition in range(PARTITIONS)]
        eventually(lambda: received(*consumers[1:]), lambda seen: set(everything) <= set(seen))
        wait_until_shared(client, group, 2, PARTITIONS)

        consumers[1].close()
        wait_until_shared(client, group, 1, PARTITIONS)
    assert describe(client, group).group_state == "Empty"


def test_the_partitions_of_a_dead_member_are_read_again_within_its_session_and_a_second(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        survivor, victim = (
            stack.enter_context(
                ConsumerProcess(broker, "confluent-kafka", group, topic, session_ms=SESSION_MS)
            )
            for _ in range(2)
        )
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: len(survivor.owned) == len(victim.owned) == PARTITIONS // 2)
        lost = sorted(victim.owned)
        killed_at = victim.kill()
        produce(client, topic)
        eventually(lambda: received(survivor), lambda seen: len(seen) == PARTITIONS)
        read_at = [when for partition, _, when in survivor.records if partition in lost]
        assert max(read_at) - killed_at < SESSION_MS / 1000 + 1


@pytest.mark.parametrize("kind", CLIENTS)
def test_progress_is_remembered(
    broker: BrokerProcess, client: RawClient, topic: str, group: str, kind: str
) -> None:
    client.create_topic(topic, 1)
    for round_number in range(2):
        produce(client, topic, 1)
        # A long session keeps a member in the group while its process gets no CPU time.
        with ConsumerProcess(broker, kind, group, topic, session_ms=30_000) as consumer:
            consumer.first_records()
        assert received(consumer) == [(0, round_number)], "from where the last one stopped"


def test_partitions_that_stay_are_not_taken_away_in_a_cooperative_group(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    options = {"strategy": "cooperative-sticky", "session_ms": SESSION_MS}
    with ConsumerProcess(broker, "confluent-kafka", group, topic, **options) as first:
        wait_until_shared(client, group, 1, PARTITIONS)
        eventually(lambda: len(first.owned), lambda size: size == PARTITIONS)
        with ConsumerProcess(broker, "confluent-kafka", group, topic, **options) as second:
            eventually(lambda: len(second.owned), lambda size: size == PARTITIONS // 2)
            wait_until_shared(client, group, 2, PARTITIONS)
            assert not first.owned & second.owned
            revoked = [said["revoked"] for said in first.changes() if "revoked" in said]
            assert [set(each) for each in revoked] == [second.owned], "and nothing else"


def test_a_static_member_that_restarts_causes_no_rebalance(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ConsumerProcess(
        broker, "confluent-kafka", group, topic, session_ms=20_000, instance="a"
    ) as stays:
        restarted = ConsumerProcess(
            broker, "confluent-kafka", group, topic, session_ms=20_000, instance="b"
        )
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: len(stays.owned) == len(restarted.owned) == PARTITIONS // 2)
        changes = stays.changes()
        before = members_by_instance(client, group)
        restarted.kill()
        with ConsumerProcess(
            broker, "confluent-kafka", group, topic, session_ms=20_000, instance="b"
        ) as back:
            eventually(lambda: back.owned, lambda owned: owned == restarted.owned)
            produce(client, topic)
            eventually(lambda: len(back.records) + len(stays.records) == PARTITIONS)
            after = members_by_instance(client, group)
            assert after["a"] == before["a"]
            assert after["b"] != before["b"], "it has another id"
            assert stays.changes() == changes, "nobody else noticed"


def members_by_instance(client: RawClient, group: str) -> dict[str, str]:
    described = describe(client, group)
    assert described.group_state == "Stable"
    return {each.group_instance_id: each.member_id for each in described.members}


def test_a_member_that_pauses_past_its_session_is_out_and_comes_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    with (
        ConsumerProcess(broker, "confluent-kafka", group, topic, session_ms=1_000) as active,
        ConsumerProcess(broker, "confluent-kafka", group, topic, session_ms=1_000) as sleeper,
    ):
        wait_until_shared(client, group, 2, 2)
        began = time.monotonic()
        sleeper.pause()
        wait_until_shared(client, group, 1, 2)
        eventually(lambda: active.owned, lambda owned: owned == {0, 1})
        assert time.monotonic() - began < 2 + 1
        sleeper.resume()
        wait_until_shared(client, group, 2, 2)
