"""kafka-python's admin calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

pytest.importorskip("kafka", reason="kafka-python is not installed")

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.protocol.consumer import OffsetSpec


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def test_topics_are_created_described_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "60000"})])
    (described,) = admin.describe_topics([topic])
    assert described["error_code"] == 0
    assert [each["partition_index"] for each in described["partitions"]] == [0, 1, 2]
    assert {each["leader_id"] for each in described["partitions"]} == {1}
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_topics_that_cannot_be_are_refused_with_kafkas_codes(
    admin: KafkaAdminClient, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    refused = {
        errors.TopicAlreadyExistsError: NewTopic(topic, 1, 1),
        errors.InvalidReplicationFactorError: NewTopic(f"{topic}-rf", 1, 3),
        errors.InvalidPartitionsError: NewTopic(f"{topic}-none", 0, 1),
        errors.InvalidTopicError: NewTopic("not a name", 1, 1),
    }
    for error, new in refused.items():
        with pytest.raises(error):
            admin.create_topics([new])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["compat.nobody"])


def test_partitions_are_added(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_topics_are_described_a_page_at_a_time(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 5, 1)])
    first = admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert [each["partition_index"] for each in first["topics"][0]["partitions"]] == [0, 1]
    second = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [each["partition_index"] for each in second["topics"][0]["partitions"]] == [2, 3, 4]
    assert second["next_cursor"] is None


def test_configs_are_altered_and_described(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])
    changes = {"max.message.bytes": "2000", "cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], include_synonyms=True)["topic"][topic]
    assert {name: config["value"] for name, config in found.items()} == changes
    assert found["max.message.bytes"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    synonyms = [each["name"] for each in found["max.message.bytes"]["synonyms"]]
    assert synonyms[0] == "max.message.bytes"
    assert "message.max.bytes" in synonyms
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["cleanup.policy"])])
    found = admin.describe_configs([resource])["topic"][topic]
    assert list(found) == ["max.message.bytes"]


def test_all_configs_of_a_broker_are_described(admin: KafkaAdminClient) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, "1")
    found = admin.describe_configs([resource], config_filter="all")["broker"]["1"]
    assert found["log.segment.bytes"]["value"] == "1073741824"
    assert found["log.segment.bytes"]["config_source"] == "DEFAULT_CONFIG"
    assert found["log.dirs"]["config_source"] == "STATIC_BROKER_CONFIG"
    assert found["listeners"]["config_type"] == "LIST"


def test_offsets_are_listed(admin: KafkaAdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(b"k", b"v", (), 5000), (b"k", b"v", (), 9000), (b"k", b"v", (), 7000)])
    where = TopicPartition(topic, 0)
    specs = {
        OffsetSpec.EARLIEST: 0,
        OffsetSpec.LATEST: 3,
        OffsetSpec.MAX_TIMESTAMP: 1,
        OffsetSpec.EARLIEST_LOCAL: 0,
        6000: 1,
    }
    for spec, offset in specs.items():
        assert admin.list_partition_offsets({where: spec})[where].offset == offset


def test_records_are_deleted(admin: KafkaAdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(None, b"%d" % number, (), 1) for number in range(5)])
    admin.delete_records({TopicPartition(topic, 0): 3})
    assert raw.offsets(topic) == (3, 5)


def test_the_cluster_is_described(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    (node,) = cluster["brokers"]
    assert (node["host"], node["port"]) == ("127.0.0.1", broker.port)
    assert cluster["controller_id"] == 1
    assert len(cluster["cluster_id"]) == 22


def test_log_directories_are_described(
    admin: KafkaAdminClient, broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    raw.create_topic(topic, 2)
    raw.produce(topic, [(None, bytes(1000), (), 1)], partition=1)
    (answer,) = admin.describe_log_dirs({topic: [0, 1]})
    (directory,) = answer["log_dirs"]
    assert directory["error_code"] == 0
    assert directory["log_dir"] == str(broker.data_dir)
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    (described,) = directory["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in described["partitions"]}
    assert sizes[0] == 0
    assert sizes[1] > 1000


def test_producers_are_described(admin: KafkaAdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    producer_id = raw.new_producer()
    records = [(None, b"v", (), 4000), (None, b"v", (), 4001)]
    raw.produce(topic, records, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    where = TopicPartition(topic, 0)
    (state,) = admin.describe_producers([where])[where].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer_id, 0, 1)
    assert state.last_timestamp == 4001


def test_what_has_configs_is_listed(admin: KafkaAdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    found = admin.list_config_resources()
    assert topic in found["topic"]
    assert found["broker"] == ["1"]


def test_users_are_altered_and_described(admin: KafkaAdminClient, topic: str) -> None:
    new = UserScramCredentialUpsertion(topic, ScramMechanism.SCRAM_SHA_256, "secret", 8192)
    assert admin.alter_user_scram_credentials([new]) == {topic: None}
    info = {"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 8192}
    described = admin.describe_user_scram_credentials([topic, "nobody"])
    assert described[topic] == {"error": None, "credential_infos": [info]}
    assert described["nobody"]["error"]
    assert topic in admin.describe_user_scram_credentials()
    gone = UserScramCredentialDeletion(topic, ScramMechanism.SCRAM_SHA_256)
    assert admin.alter_user_scram_credentials([gone]) == {topic: None}
    assert topic not in admin.describe_user_scram_credentials()
