"""librdkafka's admin calls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.compat.clients.record import TIMEOUT_S
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_module = pytest.importorskip("confluent_kafka.admin")

from confluent_kafka import (  # noqa: E402
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # noqa: E402
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def error_of(futures: dict[Any, Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        result(futures)
    name: str = caught.value.args[0].name()
    return name


def test_topics_are_created_as_asked_and_described(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 5, 1, config={"retention.ms": "60000", "cleanup.policy": "compact"})
    result(admin.create_topics([new]))
    described = result(admin.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == list(range(5))
    assert {partition.leader.id for partition in described.partitions} == {1}
    assert {len(partition.isr) for partition in described.partitions} == {1}
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")


def test_topics_that_cannot_be_are_refused_with_kafkas_codes(
    admin: AdminClient, topic: str
) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    refused = {
        "TOPIC_ALREADY_EXISTS": NewTopic(topic, 1, 1),
        "INVALID_REPLICATION_FACTOR": NewTopic(f"{topic}-rf", 1, 2),
        "INVALID_PARTITIONS": NewTopic(f"{topic}-none", 0, 1),
        "TOPIC_EXCEPTION": NewTopic("not a name", 1, 1),
        "INVALID_CONFIG": NewTopic(f"{topic}-c", 1, 1, config={"retention.ms": "soon"}),
    }
    for name, new in refused.items():
        assert error_of(admin.create_topics([new])) == name
    assert error_of(admin.delete_topics(["compat.nobody"])) == "UNKNOWN_TOPIC_OR_PART"


def test_a_topic_that_is_only_validated_is_not_created(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_partitions_are_added(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    result(admin.create_partitions([NewPartitions(topic, 4)]))
    listed = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2, 3]
    assert error_of(admin.create_partitions([NewPartitions(topic, 2)])) == "INVALID_PARTITIONS"


def test_topic_configs_are_described_with_their_sources(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))
    configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["retention.ms"].value == "60000"
    assert configs["retention.ms"].source == 1  # dynamic topic config
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    assert configs["max.message.bytes"].value == "1048588"
    assert "message.max.bytes" in configs["max.message.bytes"].synonyms


def test_configs_are_altered_one_by_one(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        result(admin.incremental_alter_configs([resource]))

    alter("max.message.bytes", "2000", AlterConfigOpType.SET)
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["max.message.bytes"].value == "2000"
    assert configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete,compact"
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["cleanup.policy"].value == "compact"


def test_all_configs_are_replaced_by_the_older_call(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "60000"})]))
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "3000"})
    result(admin.alter_configs([resource]))
    configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert configs["max.message.bytes"].value == "3000"
    assert configs["retention.ms"].is_default


def test_wrong_configs_are_refused(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    for name, value in (("no.such.config", "1"), ("segment.bytes", "x")):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        assert error_of(admin.incremental_alter_configs([resource])) == "INVALID_CONFIG"


def test_the_brokers_configs_are_described(admin: AdminClient, broker: BrokerProcess) -> None:
    configs = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert configs["log.dirs"].value == str(broker.data_dir)
    assert configs["log.dirs"].is_read_only
    assert configs["num.partitions"].value == "1"


def test_offsets_are_listed(admin: AdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(b"k", b"v", (), 5000), (b"k", b"v", (), 9000), (b"k", b"v", (), 7000)])
    where = TopicPartition(topic, 0)
    found = {
        name: result(admin.list_offsets({where: spec}))
        for name, spec in {
            "earliest": OffsetSpec.earliest(),
            "latest": OffsetSpec.latest(),
            "by time": OffsetSpec.for_timestamp(6000),
            "newest": OffsetSpec.max_timestamp(),
        }.items()
    }
    assert {name: each.offset for name, each in found.items()} == {
        "earliest": 0,
        "latest": 3,
        "by time": 1,
        "newest": 1,
    }
    assert found["newest"].timestamp == 9000


def test_records_are_deleted(admin: AdminClient, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(None, b"%d" % number, (), 1) for number in range(5)])
    deleted = result(admin.delete_records([TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert raw.offsets(topic) == (3, 5)
    beyond = admin.delete_records([TopicPartition(topic, 0, 6)])
    assert error_of(beyond) == "OFFSET_OUT_OF_RANGE"


def test_the_cluster_is_described(admin: AdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    assert (cluster.nodes[0].host, cluster.nodes[0].port) == ("127.0.0.1", broker.port)
    assert len(cluster.cluster_id) == 22
    assert len(cluster.authorized_operations) >= 7


def test_users_are_altered_and_described(admin: AdminClient, topic: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    new = UserScramCredentialUpsertion(topic, info, b"secret")
    assert result(admin.alter_user_scram_credentials([new])) is None
    described = result(admin.describe_user_scram_credentials([topic]))
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    assert topic in admin.describe_user_scram_credentials().result(TIMEOUT_S)
    gone = UserScramCredentialDeletion(topic, ScramMechanism.SCRAM_SHA_512)
    assert result(admin.alter_user_scram_credentials([gone])) is None
    assert error_of(admin.alter_user_scram_credentials([gone])) == "RESOURCE_NOT_FOUND"
    assert error_of(admin.describe_user_scram_credentials([topic])) == "RESOURCE_NOT_FOUND"


@pytest.mark.parametrize("iterations", [4095, 16385])
def test_unacceptable_credentials_are_refused_with_kafkas_code(
    admin: AdminClient, topic: str, iterations: int
) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    weak = UserScramCredentialUpsertion(topic, info, b"secret")
    assert error_of(admin.alter_user_scram_credentials([weak])) == "UNACCEPTABLE_CREDENTIAL"
