"""aiokafka's admin calls, in older versions of the protocol."""

from __future__ import annotations

import pytest
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

pytest.importorskip("aiokafka", reason="aiokafka is not installed")

from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.compat.clients.aio import AioKafka


@pytest.fixture
def client(broker: BrokerProcess) -> AioKafka:
    return AioKafka(broker.bootstrap)


def test_topics_are_created_as_asked_and_described(client: AioKafka, topic: str) -> None:
    new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "60000"})
    client.with_admin(lambda admin: admin.create_topics([new]))
    (described,) = client.with_admin(lambda admin: admin.describe_topics([topic]))
    assert described["error_code"] == 0
    assert {each["leader"] for each in described["partitions"]} == {1}
    assert sorted(each["partition"] for each in described["partitions"]) == [0, 1, 2]


def test_topics_that_cannot_be_are_refused_with_kafkas_codes(client: AioKafka, topic: str) -> None:
    client.create_topic(topic)
    new = [NewTopic(topic, 1, 1), NewTopic(f"{topic}-rf", 1, 3), NewTopic(f"{topic}-none", 0, 1)]
    answer = client.with_admin(lambda admin: admin.create_topics(new))
    assert [error[1] for error in answer.topic_errors] == [36, 38, 37]


def test_partitions_are_added(client: AioKafka, topic: str) -> None:
    client.create_topic(topic)
    more = {topic: NewPartitions(4)}
    answer = client.with_admin(lambda admin: admin.create_partitions(more))
    assert answer.topic_errors[0][1] == 0
    (described,) = client.with_admin(lambda admin: admin.describe_topics([topic]))
    assert len(described["partitions"]) == 4


def test_configs_are_altered_and_described(client: AioKafka, topic: str) -> None:
    client.create_topic(topic)
    changes = {"max.message.bytes": "2000"}
    altered = ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)
    (answer,) = client.with_admin(lambda admin: admin.alter_configs([altered]))
    assert answer.resources[0][0] == 0
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)
    (answer,) = client.with_admin(lambda admin: admin.describe_configs([asked]))
    error_code, _, _, _, configs = answer.resources[0]
    assert error_code == 0
    assert [config[:2] for config in configs] == [("max.message.bytes", "2000")]


def test_records_are_deleted(client: AioKafka, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(None, b"%d" % number, (), 1) for number in range(5)])
    where = TopicPartition(topic, 0)
    deleted = client.with_admin(
        lambda admin: admin.delete_records({where: RecordsToDelete(before_offset=3)})
    )
    assert deleted == {where: 3}
    assert raw.offsets(topic) == (3, 5)


def test_the_cluster_is_described(client: AioKafka, broker: BrokerProcess) -> None:
    cluster = client.with_admin(lambda admin: admin.describe_cluster())
    (node,) = cluster["brokers"]
    assert (node["host"], node["port"]) == ("127.0.0.1", broker.port)
    assert cluster["controller_id"] == 1
    assert len(cluster["cluster_id"]) == 22


def test_the_ends_of_a_partition_are_reported(client: AioKafka, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(None, b"v", (), 1)] * 3)
    where = TopicPartition(topic, 0)
    begin = client.with_consumer(lambda consumer: consumer.beginning_offsets([where]))
    end = client.with_consumer(lambda consumer: consumer.end_offsets([where]))
    assert (begin[where], end[where]) == (0, 3)
