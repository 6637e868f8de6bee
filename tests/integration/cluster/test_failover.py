"""Brokers die and return under load; no acknowledged record is lost, duplicated or reordered."""

from __future__ import annotations

import time

from confluent_kafka import Message, Producer
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    consumer_of,
    wait_for,
)
from tests.integration.cluster.load import Load

from ottla import Admin

SLOWEST_FAILOVER_S = 15.0
"""Limit for a busy machine; the chaos run prints the actual times."""


def kill_leaders(cluster: ClusterOfProcesses, topic: str, rounds: int) -> list[float]:
    """Kill the leader of partition 0 under load, `rounds` times.

    Returns:
        For each round, the seconds to the next acknowledgement."""
    cluster.create_topic(topic, partitions=3)
    times = []
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        for _ in range(rounds):
            load.next_acknowledgement(0, time.monotonic())
            leader = cluster.leader(topic)
            killed_at = time.monotonic()
            cluster.brokers[leader].kill()
            # Records sent earlier may be acknowledged already, with the response still on its way.
            sent = load.sent[0]
            times.append(load.first_acknowledgement_from(0, sent) - killed_at)
            wait_for(lambda old=leader: cluster.leader(topic) != old, "another leader")
            cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    return times


def test_a_killed_leader_is_replaced_and_nothing_is_lost(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    times = kill_leaders(cluster, topic, rounds=3)
    print("to the next acknowledgement, in s:", [round(each, 2) for each in times])
    assert max(times) < SLOWEST_FAILOVER_S


def test_an_old_leader_returns_as_a_follower_without_what_it_alone_had(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, min_insync_replicas="1")
    with Load(cluster.bootstrap, topic, partitions=1) as load:
        load.next_acknowledgement(0, time.monotonic())
        old = cluster.leader(topic)
        cluster.brokers[old].kill()
        load.next_acknowledgement(0, time.monotonic())
        cluster.brokers[old].start()
        wait_for(lambda: old in cluster.partitions(topic)[0].isr, "the old leader in the ISR")
    cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    logs = {
        (broker.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
        for broker in cluster.brokers.values()
    }
    assert len(logs) == 1


def test_after_all_brokers_were_killed_at_once_nothing_is_lost(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        load.next_acknowledgement(0, time.monotonic())
        for broker in cluster.brokers.values():
            broker.kill()
        cluster.heal()
        load.next_acknowledgement(0, time.monotonic())
    load.assert_all_there(cluster.read_all(topic))


def test_another_controller_takes_over(cluster: ClusterOfProcesses, topic: str) -> None:
    controller = cluster.controller()
    cluster.brokers[controller].kill()
    new = wait_for(
        lambda: found if (found := cluster.controller()) not in (controller, -1) else 0,
        "another controller",
    )
    assert new in cluster.brokers
    cluster.create_topic(topic, replicas=2)
    assert wait_for(lambda: cluster.leader(topic), "a leader") != controller


def test_a_rolling_restart_fails_no_request(cluster: ClusterOfProcesses, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        for broker in cluster.brokers.values():
            load.next_acknowledgement(0, time.monotonic())
            assert broker.stop() == 0
            cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    print("longest stall in s:", round(load.longest_stall_s(), 2))


def test_leaders_are_fair_again_after_a_broker_returned(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, partitions=30)
    cluster.brokers[2].kill()
    wait_for(
        lambda: all(each.leader in (1, 3) for each in cluster.partitions(topic).values()),
        "leaders elsewhere",
    )
    cluster.heal()

    def is_fair() -> bool:
        leaders = [each.leader for each in cluster.partitions(topic).values()]
        return all(9 <= leaders.count(id) <= 11 for id in cluster.brokers)

    wait_for(is_fair, "fair leaders")


def test_a_consumer_group_continues_when_its_coordinator_dies(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic)
    group = f"group-{topic}"
    with Load(cluster.bootstrap, topic, partitions=1) as load:
        with consumer_of(cluster.bootstrap, group_id=group, session_timeout_ms=6000) as consumer:
            consumer.subscribe([topic])

            def records() -> list[Message]:
                """Return new records, without the transient errors of a coordinator change."""
                return [each for each in consumer.consume(10, 1.0) if not each.error()]

            first = wait_for(records, "records")
            consumer.commit(message=first[-1], asynchronous=False)
            coordinator = _coordinator(cluster, group)
            cluster.brokers[coordinator].kill()
            wait_for(records, "records from another coordinator")
            assert wait_for(lambda: _coordinator(cluster, group), "a coordinator") != coordinator

            def commit() -> bool:
                consumer.commit(asynchronous=False)
                return True

            wait_for(commit, "a commit with the new coordinator")
        load.next_acknowledgement(0, time.monotonic())


def _coordinator(cluster: ClusterOfProcesses, group: str) -> int:
    """Return the group's coordinator.

    This uses a new client, because librdkafka's keeps asking the dead broker."""
    with Admin(cluster.bootstrap) as admin:
        return admin.describe_groups(group)[group].coordinator.id


def test_a_transaction_is_committed_by_the_coordinator_that_takes_over(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": f"id-{topic}",
            "transaction.timeout.ms": 60_000,
            "retry.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    for number, victim in enumerate(cluster.brokers):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0
        cluster.brokers[victim].kill()
        producer.commit_transaction(45)
        cluster.heal()
    # EndTxn is answered at the decision; the records become visible with the markers, soon after.
    expected = {index: [b"0", b"1", b"2"] for index in range(3)}
    wait_for(lambda: cluster.read_all(topic) == expected, f"{expected} in the topic")
