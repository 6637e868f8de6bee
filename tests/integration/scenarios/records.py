"""Records: produced, fetched, looked up, deleted."""

from __future__ import annotations

from tests.integration.scenarios.given import TIMESTAMP, Given, Scenarios, by_name_or_id, same_topic
from tests.raw_client import Api, produce_body, read_batches, values

from ottla.wire.records.builder import build_batch


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


def describe_producers(given: Given, version: int) -> None:
    topics = [{"name": given.topic, "partition_indexes": [0, 9]}]
    answer = given.client.call(Api.DESCRIBE_PRODUCERS, version, topics=topics)
    known, unknown = answer.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (given.producer_id, 0)
    assert (producer.last_sequence, producer.last_timestamp) == (2, TIMESTAMP + 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert unknown.error_code == 3


SCENARIOS: Scenarios = {
    Api.PRODUCE: produce,
    Api.FETCH: fetch,
    Api.LIST_OFFSETS: list_offsets,
    Api.DELETE_RECORDS: delete_records,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.DESCRIBE_PRODUCERS: describe_producers,
}
