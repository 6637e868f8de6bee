"""Topics on three brokers: placement of replicas, ISR membership, and acks=all."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode


def produce_one(cluster: ClusterOfProcesses, topic: str, **properties: object) -> None:
    """Produce one record, and raise the error that the broker returns."""
    outcome = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
    )
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(30) == 0
    if outcome[0] is not None:
        raise KafkaException(outcome[0])


def test_replicas_and_leaders_are_spread_over_the_brokers(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, partitions=6)
    partitions = cluster.partitions(topic)
    assert all(sorted(each.replicas) == [1, 2, 3] for each in partitions.values())
    leaders = [each.leader for each in partitions.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_every_broker_answers_admin_requests_by_asking_the_controller(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    controller = cluster.controller()
    for id, broker in cluster.brokers.items():
        with RawClient(broker.port) as client:
            name = f"{topic}-{id}"
            client.create_topic(name)
            client.alter_topic(name, **{"retention.ms": "123456"})
            metadata = client.call(Api.METADATA, topics=[{"name": name}])
            assert metadata.controller_id == controller
            assert client.delete_topic(name) == 0


def test_acks_all_needs_the_smallest_number_of_replicas(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic)
    produce_one(cluster, topic)
    leader = cluster.leader(topic)
    others = [id for id in cluster.brokers if id != leader]
    for id in others:
        cluster.brokers[id].kill()
    leader_port = cluster.brokers[leader].port
    wait_for(lambda: cluster.partitions(topic)[0].isr == (leader,), "ISR of the leader alone")
    assert cluster.leader(topic) == leader
    with RawClient(leader_port) as client:
        assert produced(client, topic, acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produced(client, topic, acks=1) == 0
    cluster.heal()
    produce_one(cluster, topic)
    stored = cluster.read_all(topic)[0]
    assert len(stored) == 3


def produced(client: RawClient, topic: str, acks: int) -> int:
    answer = client.produce(topic, [(None, b"value", (), 0)], acks=acks)
    return int(answer.error_code)


def test_a_record_is_on_every_replica(cluster: ClusterOfProcesses, topic: str) -> None:
    cluster.create_topic(topic)
    produce_one(cluster, topic)
    paths = [broker.data_dir / f"{topic}-0" for broker in cluster.brokers.values()]

    def is_everywhere() -> bool:
        logs = {(path / f"{0:020}.log").read_bytes() for path in paths}
        return len(logs) == 1 and logs != {b""}

    # On a busy machine a replica may have left the ISR for a moment; it catches up.
    wait_for(is_everywhere, "the same log on every broker")


def test_a_follower_refuses_writers(cluster: ClusterOfProcesses, topic: str) -> None:
    cluster.create_topic(topic)
    leader = cluster.leader(topic)
    follower = next(id for id in cluster.brokers if id != leader)
    with RawClient(cluster.brokers[follower].port) as client:
        # A follower may hear of the topic slightly later than its leader.
        wait_for(
            lambda: produced(client, topic, acks=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "refusal by a follower",
        )


def test_more_replicas_than_brokers_are_refused(cluster: ClusterOfProcesses, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        cluster.create_topic(topic, replicas=4)
    assert refused.value.args[0].code() == ErrorCode.INVALID_REPLICATION_FACTOR
