"""Rows that a task writes with the producer's own engine; no Spark is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from tests.spark.conftest import Topic

from ottla import Admin
from ottla.base.types import TopicPartition
from ottla.client.admin import ConfigResource, ResourceType
from ottla.client.errors import ClientError, RecordTooLarge
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.spark.record_writer import RecordWriter, take_writer, write_record
from ottla.spark.shared_client import SharedClient
from ottla.spark.transactions import EndResult, end_transaction, init_producer
from ottla.wire.records.columnar.columns import RecordColumns

TIMEOUT_MS = 60_000


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    return make_topic(2)


@pytest.fixture
def client(topic: Topic) -> Iterator[SharedClient]:
    made = SharedClient(config(topic))
    yield made
    made.close()


def config(topic: Topic, **properties: object) -> ProducerConfig:
    return ProducerConfig.of(topic.broker.bootstrap, None, properties)


def transaction(client: SharedClient, topic: Topic) -> ProducerIdentity:
    return client.run(init_producer, client.cluster, f"t-{topic.name}", TIMEOUT_MS)


def write(writer: RecordWriter, topic: Topic, values: list[bytes]) -> None:
    rows = RecordColumns(
        key=None, value=pa.array(values, pa.binary()), headers=None, timestamp=None,
        default_timestamp_ms=1,
    )  # fmt: skip
    writer.write(topic.name, rows, [index % 2 for index in range(len(values))])


def refuse_large_batches(topic: Topic) -> None:
    with Admin(topic.broker.bootstrap) as admin:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        admin.alter_configs({resource: {"max.message.bytes": "1000"}})


def test_a_writer_leaves_nothing_behind_on_the_connections_that_it_shares(
    topic: Topic, client: SharedClient
) -> None:
    before = list(client.cluster.on_metadata)
    for number in range(3):
        writer = RecordWriter(client, config(topic))
        write(writer, topic, [b"%d" % number] * 2)
        writer.finish()
        writer.stop()
    assert client.cluster.on_metadata == before
    assert topic.values() == ["0", "0", "1", "1", "2", "2"]


def test_a_batch_that_the_broker_refuses_fails_the_task(topic: Topic, client: SharedClient) -> None:
    refuse_large_batches(topic)
    writer = RecordWriter(client, config(topic))
    write(writer, topic, [b"x" * 2_000])
    with pytest.raises(RecordTooLarge):
        writer.finish()
    writer.stop()


def test_a_transaction_fails_with_the_reason_and_not_with_what_follows_from_it(
    topic: Topic, client: SharedClient
) -> None:
    refuse_large_batches(topic)
    producer = transaction(client, topic)
    writer = RecordWriter(client, config(topic), producer)

    def write_on() -> None:
        while True:  # until the writer notices that the first batch has failed
            write(writer, topic, [b"x" * 2_000])

    with pytest.raises(RecordTooLarge):
        write_on()
    with pytest.raises(RecordTooLarge):
        write(writer, topic, [b"small"])
    writer.stop()
    end = client.run(end_transaction, client.cluster, producer, commit=False)
    assert end is EndResult.COMPLETED


def test_rows_of_a_transaction_are_seen_when_another_client_commits_it(
    topic: Topic, client: SharedClient
) -> None:
    producer = transaction(client, topic)
    writer = RecordWriter(client, config(topic), producer)
    write(writer, topic, [b"a", b"b", b"c"])
    writer.finish()
    writer.stop()
    assert topic.values() == []
    other = SharedClient(config(topic))
    assert other.run(end_transaction, other.cluster, producer, commit=True) is EndResult.COMPLETED
    assert other.run(end_transaction, other.cluster, producer, commit=True) is EndResult.COMPLETED
    other.close()
    assert topic.values() == ["a", "b", "c"]


def test_a_producer_that_was_fenced_writes_nothing(topic: Topic, client: SharedClient) -> None:
    old = transaction(client, topic)
    transaction(client, topic)
    tp = TopicPartition(topic.name, 0)
    client.run(client.cluster.topic, topic.name)
    with pytest.raises(ClientError, match=r"epoch|fenced"):
        client.run(write_record, client.cluster, config(topic), old, tp, b"key", b"value")
    assert client.run(end_transaction, client.cluster, old, commit=True) is EndResult.LOST
    assert topic.values(committed=False) == []


def test_the_next_task_of_a_process_writes_with_the_same_producer_id(
    topic: Topic, client: SharedClient
) -> None:
    for _ in range(2):
        writer = take_writer(client, config(topic))
        write(writer, topic, [b"a", b"b"])
        writer.finish()
        writer.keep()
    assert len(producers(topic)) == 1
    failed = take_writer(client, config(topic))
    failed.stop()
    writer = take_writer(client, config(topic))
    write(writer, topic, [b"c"])
    writer.finish()
    writer.stop()
    assert len(producers(topic)) == 2
    assert topic.values() == ["a", "a", "b", "b", "c"]


def test_a_kept_writer_is_stopped_with_its_connections(topic: Topic) -> None:
    client = SharedClient(config(topic))
    writer = take_writer(client, config(topic))
    write(writer, topic, [b"a"])
    writer.finish()
    writer.keep()
    client.close()
    assert not client.is_alive
    assert client.take_kept() is None


def producers(topic: Topic) -> set[int]:
    tp = TopicPartition(topic.name, 0)
    with Admin(topic.broker.bootstrap) as admin:
        return {each.producer_id for each in admin.describe_producers(tp)[tp]}
