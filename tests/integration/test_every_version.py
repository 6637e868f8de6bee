"""Every API that the broker serves, in every version that the schema has: the answer is read by kio
and by us, and says what is true.

Each API has one scenario: what is asked, and what must be in the answer. Fields that a version does
not have are left out of the request by the codec; in the answer they read as their defaults, so a
scenario says from which version on it expects a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.raw_client import Api, RawClient, produce_body, read_batches, values

from ottla.broker.router import HANDLERS
from ottla.testing.broker import BrokerProcess
from ottla.wire import schema
from ottla.wire.records.builder import build_batch

TIMESTAMP = 1_700_000_000_000
API_KEYS = sorted({*HANDLERS, Api.API_VERSIONS})


class Given(NamedTuple):
    """A topic with two partitions; partition 0 has three records of one idempotent producer."""

    broker: BrokerProcess
    client: RawClient
    topic: str
    topic_id: bytes
    producer_id: int


@pytest.fixture
def given(broker: BrokerProcess, client: RawClient, topic: str) -> Given:
    topic_id = client.create_topic(topic, 2)
    producer_id = client.new_producer()
    records = [(b"k", b"v%d" % number, (), TIMESTAMP + number) for number in range(3)]
    answer = client.produce(
        topic, records, producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    assert answer.error_code == 0
    return Given(broker, client, topic, topic_id, producer_id)


def by_name_or_id(given: Given, by_id: bool, name: str = "topic") -> dict[str, Any]:
    return {"topic_id": given.topic_id} if by_id else {name: given.topic}


def same_topic(given: Given, answered: Any, by_id: bool, name: str = "topic") -> bool:
    if by_id:
        return bool(answered.topic_id == given.topic_id)
    return bool(getattr(answered, name) == given.topic)


def produce(given: Given, version: int) -> None:
    by_id = version >= 13
    batch = build_batch([(b"k", b"one more", (), TIMESTAMP)])
    body = produce_body({given.topic_id if by_id else given.topic: {0: batch, 7: batch}})
    answer = given.client.call(Api.PRODUCE, version, **body)
    (topic,) = answer.responses
    assert same_topic(given, topic, by_id, "name")
    good, unknown = topic.partition_responses
    assert (good.index, good.error_code, good.base_offset) == (0, 0, 3)
    assert good.log_append_time_ms == -1
    assert good.log_start_offset == (0 if version >= 5 else -1)
    assert (unknown.index, unknown.error_code, unknown.base_offset) == (7, 3, -1)
    assert values(given.client.records(given.topic, 3)) == [b"one more"]


def fetch(given: Given, version: int) -> None:
    by_id = version >= 13
    asked = {
        "fetch_offset": 1,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    partitions = [{"partition": index, **asked, "fetch_offset": 1 - index} for index in (0, 1)]
    answer = given.client.call(
        Api.FETCH,
        version,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[{**by_name_or_id(given, by_id), "partitions": partitions}],
    )
    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    assert (answer.session_id != 0) == (version >= 7)
    (topic,) = answer.responses
    assert same_topic(given, topic, by_id)
    full, empty = topic.partitions
    assert (full.partition_index, full.error_code) == (0, 0)
    assert (full.high_watermark, full.last_stable_offset) == (3, 3)
    assert full.log_start_offset == (0 if version >= 5 else -1)
    assert values(read_batches(full.records)) == [b"v0", b"v1", b"v2"]
    assert (empty.partition_index, empty.error_code, empty.high_watermark) == (1, 0, 0)
    assert bytes(empty.records) == b""


def list_offsets(given: Given, version: int) -> None:
    wanted = {-2: (-1, 0), -1: (-1, 3), TIMESTAMP + 1: (TIMESTAMP + 1, 1), TIMESTAMP + 9: (-1, -1)}
    for timestamp, found in wanted.items():
        answer = given.client.list_offset(given.topic, timestamp, version=version)
        assert (answer.partition_index, answer.error_code) == (0, 0)
        assert (answer.timestamp, answer.offset) == found
        has_epoch = version >= 4 and found[1] >= 0
        assert answer.leader_epoch == (0 if has_epoch else -1)


def metadata(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.METADATA,
        version,
        topics=[{"name": given.topic}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host) == (1, "127.0.0.1")
    assert (broker.port, broker.rack) == (given.broker.port, None)
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert len(answer.cluster_id) == 22
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, given.topic, False)
    if version >= 10:
        assert topic.topic_id == given.topic_id
    if version >= 8:
        assert topic.topic_authorized_operations > 0
    for index, partition in enumerate(topic.partitions):
        assert (partition.error_code, partition.partition_index) == (0, index)
        assert partition.leader_id == 1
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [1]
        assert not partition.offline_replicas
        if version >= 7:
            assert partition.leader_epoch == 0


def find_coordinator(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.FIND_COORDINATOR, version, key="group", key_type=0, coordinator_keys=["group", "other"]
    )
    found = [answer] if version < 4 else answer.coordinators
    assert len(found) == (1 if version < 4 else 2)
    for each in found:
        assert (each.error_code, each.node_id, each.host, each.port) == (15, -1, "", -1)


def api_versions(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.API_VERSIONS, version, client_software_name="test", client_software_version="1.0"
    )
    assert answer.error_code == 0
    assert [api.api_key for api in answer.api_keys] == API_KEYS


def create_topics(given: Given, version: int) -> None:
    name = f"{given.topic}-new"
    config = {"name": "retention.ms", "value": "60000"}
    new = {"num_partitions": 2, "replication_factor": 1, "configs": [config]}
    assigned = {
        "name": f"{name}-2",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": [1]} for index in range(3)],
    }
    topics = [{"name": name, **new}, assigned, {"name": given.topic, **new}]
    answer = given.client.call(Api.CREATE_TOPICS, version, topics=topics, timeout_ms=10_000)
    created, by_hand, refused = answer.topics
    assert (created.name, created.error_code) == (name, 0)
    assert (by_hand.name, by_hand.error_code) == (f"{name}-2", 0)
    assert (refused.name, refused.error_code) == (given.topic, 36)
    assert refused.error_message
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (2, 1)
        assert (by_hand.num_partitions, by_hand.replication_factor) == (3, 1)
        (retention,) = [each for each in created.configs if each.name == "retention.ms"]
        assert (retention.value, retention.config_source) == ("60000", 1)
    if version >= 7:
        assert created.topic_id not in (bytes(16), given.topic_id)
    assert given.client.offsets(name, 1) == (0, 0)


def delete_topics(given: Given, version: int) -> None:
    by_id = version >= 6
    others = [{"name": None, "topic_id": given.topic_id}, {"name": "nobody"}]
    answer = given.client.call(
        Api.DELETE_TOPICS,
        version,
        topics=others,
        topic_names=[given.topic, "nobody"],
        timeout_ms=10_000,
    )
    deleted, unknown = answer.responses
    assert (deleted.name, deleted.error_code) == (given.topic, 0)
    assert deleted.topic_id == (given.topic_id if by_id else bytes(16))
    assert (unknown.name, unknown.error_code) == ("nobody", 3)
    assert given.client.fetch(given.topic).error_code == 3


def delete_records(given: Given, version: int) -> None:
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": 5}]
    topics = [{"name": given.topic, "partitions": partitions}]
    answer = given.client.call(Api.DELETE_RECORDS, version, topics=topics, timeout_ms=10_000)
    (topic,) = answer.topics
    assert topic.name == given.topic
    deleted, beyond = topic.partitions
    assert (deleted.partition_index, deleted.error_code, deleted.low_watermark) == (0, 0, 2)
    assert (beyond.partition_index, beyond.error_code, beyond.low_watermark) == (1, 1, -1)
    assert given.client.offsets(given.topic) == (2, 3)


def init_producer_id(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.INIT_PRODUCER_ID,
        version,
        transactional_id=None,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id > given.producer_id


def offset_for_leader_epoch(given: Given, version: int) -> None:
    asked = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    topics = [{"topic": given.topic, "partitions": [asked, {**asked, "partition": 9}]}]
    answer = given.client.call(Api.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-2, topics=topics)
    (topic,) = answer.topics
    found, unknown = topic.partitions
    assert topic.topic == given.topic
    assert (found.partition, found.error_code) == (0, 0)
    assert (found.leader_epoch, found.end_offset) == (0, 3)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (3, -1, -1)


def describe_configs(given: Given, version: int) -> None:
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configuration_keys": ["segment.bytes"]},
        {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "nobody", "configuration_keys": None},
    ]
    answer = given.client.call(
        Api.DESCRIBE_CONFIGS,
        version,
        resources=resources,
        include_synonyms=True,
        include_documentation=True,
    )
    topic, broker, unknown = answer.results
    assert (topic.error_code, topic.resource_type, topic.resource_name) == (0, 2, given.topic)
    (config,) = topic.configs
    assert (config.name, config.value, config.config_source) == ("segment.bytes", "1073741824", 5)
    assert [each.name for each in config.synonyms] == ["log.segment.bytes"]
    if version >= 3:
        assert config.config_type == 3
        assert config.documentation
    assert broker.error_code == 0
    assert {"num.partitions", "log.dirs", "node.id"} <= {each.name for each in broker.configs}
    assert (unknown.error_code, list(unknown.configs)) == (3, [])


def alter_configs(given: Given, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "60000"}]
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configs": configs},
        {"resource_type": 2, "resource_name": "nobody", "configs": configs},
    ]
    answer = given.client.call(Api.ALTER_CONFIGS, version, resources=resources)
    assert [each.error_code for each in answer.responses] == [0, 3]
    assert topic_config(given, "retention.ms") == "60000"


def incremental_alter_configs(given: Given, version: int) -> None:
    changes = [
        {"name": "retention.ms", "config_operation": 0, "value": "60000"},
        {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
    ]
    wrong = [{"name": "no.such.config", "config_operation": 0, "value": "1"}]
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configs": changes},
        {"resource_type": 2, "resource_name": f"{given.topic}-x", "configs": wrong},
    ]
    answer = given.client.call(Api.INCREMENTAL_ALTER_CONFIGS, version, resources=resources)
    assert [each.error_code for each in answer.responses] == [0, 3]
    assert topic_config(given, "retention.ms") == "60000"
    assert topic_config(given, "cleanup.policy") == "delete,compact"


def topic_config(given: Given, name: str) -> str:
    resource = {"resource_type": 2, "resource_name": given.topic, "configuration_keys": [name]}
    answer = given.client.call(Api.DESCRIBE_CONFIGS, resources=[resource])
    value: str = answer.results[0].configs[0].value
    return value


def describe_log_dirs(given: Given, version: int) -> None:
    topics = [{"topic": given.topic, "partitions": [0, 1]}]
    answer = given.client.call(Api.DESCRIBE_LOG_DIRS, version, topics=topics)
    (directory,) = answer.results
    assert (directory.error_code, directory.log_dir) == (0, str(given.broker.data_dir))
    (topic,) = directory.topics
    sizes = {each.partition_index: each.partition_size for each in topic.partitions}
    assert topic.name == given.topic
    assert sizes[0] > sizes[1] == 0
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0


def create_partitions(given: Given, version: int) -> None:
    topics = [
        {"name": given.topic, "count": 4, "assignments": None},
        {"name": "nobody", "count": 4, "assignments": None},
    ]
    answer = given.client.call(Api.CREATE_PARTITIONS, version, topics=topics, timeout_ms=10_000)
    more, unknown = answer.results
    assert (more.name, more.error_code, unknown.error_code) == (given.topic, 0, 3)
    assert given.client.offsets(given.topic, 3) == (0, 0)


def describe_cluster(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.DESCRIBE_CLUSTER, version, endpoint_type=1, include_cluster_authorized_operations=True
    )
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", given.broker.port)
    assert (answer.error_code, answer.controller_id, len(answer.cluster_id)) == (0, 1, 22)
    assert answer.cluster_authorized_operations > 0


def describe_producers(given: Given, version: int) -> None:
    topics = [{"name": given.topic, "partition_indexes": [0, 9]}]
    answer = given.client.call(Api.DESCRIBE_PRODUCERS, version, topics=topics)
    known, unknown = answer.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (given.producer_id, 0)
    assert (producer.last_sequence, producer.last_timestamp) == (2, TIMESTAMP + 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert unknown.error_code == 3


def list_config_resources(given: Given, version: int) -> None:
    answer = given.client.call(Api.LIST_CONFIG_RESOURCES, version, resource_types=[2, 4])
    found = {(each.resource_type, each.resource_name) for each in answer.config_resources}
    assert answer.error_code == 0
    assert found >= ({(2, given.topic), (4, "1")} if version >= 1 else set())


def describe_topic_partitions(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        version,
        topics=[{"name": given.topic}],
        response_partition_limit=1,
        cursor=None,
    )
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.error_code, topic.name, topic.topic_id) == (0, given.topic, given.topic_id)
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert answer.next_cursor.topic_name == given.topic
    assert answer.next_cursor.partition_index == 1


SCENARIOS: dict[int, Callable[[Given, int], None]] = {
    Api.PRODUCE: produce,
    Api.FETCH: fetch,
    Api.LIST_OFFSETS: list_offsets,
    Api.METADATA: metadata,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.API_VERSIONS: api_versions,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.DELETE_RECORDS: delete_records,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.ALTER_CONFIGS: alter_configs,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_PRODUCERS: describe_producers,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}
CASES = [(api_key, version) for api_key in API_KEYS for version in schema.versions(api_key)]


def test_every_api_has_a_scenario() -> None:
    assert sorted(SCENARIOS) == API_KEYS


@pytest.mark.parametrize(
    ("api_key", "version"), CASES, ids=[f"{schema.api_name(a)}-{v}" for a, v in CASES]
)
def test_the_answer_is_right(given: Given, api_key: int, version: int) -> None:
    SCENARIOS[api_key](given, version)
