"""Topics, partitions and the cluster."""

from __future__ import annotations

from tests.integration.scenarios.given import Given, Scenarios
from tests.raw_client import Api


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


def create_partitions(given: Given, version: int) -> None:
    topics = [
        {"name": given.topic, "count": 4, "assignments": None},
        {"name": "nobody", "count": 4, "assignments": None},
    ]
    answer = given.client.call(Api.CREATE_PARTITIONS, version, topics=topics, timeout_ms=10_000)
    more, unknown = answer.results
    assert (more.name, more.error_code, unknown.error_code) == (given.topic, 0, 3)
    assert given.client.offsets(given.topic, 3) == (0, 0)


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


def describe_cluster(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.DESCRIBE_CLUSTER, version, endpoint_type=1, include_cluster_authorized_operations=True
    )
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", given.broker.port)
    assert (answer.error_code, answer.controller_id, len(answer.cluster_id)) == (0, 1, 22)
    assert answer.cluster_authorized_operations > 0


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


def elect_leaders(given: Given, version: int) -> None:
    asked = [{"topic": given.topic, "partitions": [0, 9]}]
    answer = given.client.call(
        Api.ELECT_LEADERS, version, topic_partitions=asked, timeout_ms=10_000
    )
    assert answer.error_code == 0
    (topic,) = answer.replica_election_results
    assert topic.topic == given.topic
    reported = [(each.partition_id, each.error_code) for each in topic.partition_result]
    assert reported == [(0, 84), (9, 3)]  # ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION


def alter_partition_reassignments(given: Given, version: int) -> None:
    wanted = {0: [1], 1: [1, 2], 9: [1]}
    asked = [{"partition_index": index, "replicas": each} for index, each in wanted.items()]
    answer = given.client.call(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        version,
        topics=[{"name": given.topic, "partitions": asked}],
        timeout_ms=10_000,
    )
    assert answer.error_code == 0
    (topic,) = answer.responses
    reported = [(each.partition_index, each.error_code) for each in topic.partitions]
    assert reported == [(0, 0), (1, 39), (9, 3)]  # INVALID_REPLICA_ASSIGNMENT
    cancelled = given.client.call(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        version,
        topics=[
            {"name": given.topic, "partitions": [{"partition_index": 0, "replicas": None}]},
        ],
        timeout_ms=10_000,
    )
    assert cancelled.responses[0].partitions[0].error_code == 85  # NO_REASSIGNMENT_IN_PROGRESS


def list_partition_reassignments(given: Given, version: int) -> None:
    for topics in (None, [{"name": given.topic, "partition_indexes": [0, 9]}]):
        answer = given.client.call(
            Api.LIST_PARTITION_REASSIGNMENTS, version, topics=topics, timeout_ms=10_000
        )
        assert answer.error_code == 0
        assert not answer.topics


SCENARIOS: Scenarios = {
    Api.ELECT_LEADERS: elect_leaders,
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.METADATA: metadata,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
}
