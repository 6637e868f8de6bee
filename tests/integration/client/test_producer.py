"""The producer against a real broker, with the records read back by other clients."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from ottla import (
    AsyncProducer,
    BrokersUnreachable,
    BufferFull,
    ClientClosed,
    InvalidConfig,
    KafkaTimeout,
    PriorityPartitioner,
    Producer,
    RecordFuture,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
)
from ottla.client.producer.partitioners import partition_of
from ottla.testing.broker import BrokerProcess

TIMEOUT_S = 20


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    configs = {name.replace("_", "."): value for name, value in config.items()}
    futures = admin.create_topics([NewTopic(topic, partitions, 1, config=configs)])
    futures[topic].result(TIMEOUT_S)


def await_leader(broker: BrokerProcess, topic: str) -> None:
    """Wait for the leader to accept writes: Apache Kafka announces it before that."""
    consumer = ConfluentConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    try:
        consumer.get_watermark_offsets(ConfluentPartition(topic, 0), TIMEOUT_S)
    finally:
        consumer.close()


def read(broker: BrokerProcess, topic: str, partitions: int = 1, count: int = 1) -> list[Message]:
    """Return all records of a topic by partition and offset; fail if fewer than `count`."""
    consumer = ConfluentConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([ConfluentPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended: set[int] = set()
    try:
        while len(ended) < partitions or len(found) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"only {len(found)} records of {topic}"
            if message.error() is None:
                found.append(message)
                ended.discard(message.partition())
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    assert len(found) == count
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def test_a_record_is_read_back_as_it_was_sent(broker: BrokerProcess, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("null", None), ("é", b"")]
    timestamp = int(time.time() * 1000) - 12_345
    with Producer(broker.bootstrap) as producer:
        future = producer.send(topic, b"value", key=b"key", headers=headers, timestamp=timestamp)
        metadata = future.result(TIMEOUT_S)
        assert metadata == (topic, 0, 0, timestamp)
        producer.send(topic, None, key=b"tombstone")
        producer.send(topic, "text", headers={"from": "mapping"})
    first, second, third = read(broker, topic, count=3)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp()[1] == timestamp
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.value(), third.headers()) == (b"text", [("from", b"mapping")])


def test_kafka_python_reads_the_same(broker: BrokerProcess, topic: str) -> None:
    timestamp = int(time.time() * 1000)
    with Producer(broker.bootstrap, compression_type="gzip") as producer:
        for number in range(100):
            producer.send(
                topic, b"v%d" % number, key=b"k%d" % number, headers={"n": b"%d" % number},
                timestamp=timestamp + number,
            )  # fmt: skip
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = []
    while len(found) < 100:
        polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        assert polled, f"only {len(found)} records"
        found += polled[partition]
    consumer.close()
    assert [
        (each.offset, each.key, each.value, each.headers, each.timestamp) for each in found
    ] == [
        (n, b"k%d" % n, b"v%d" % n, [("n", b"%d" % n)], timestamp + n) for n in range(100)
    ]  # fmt: skip


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_every_acks(
    broker: BrokerProcess, topic: str, acks: str, codec: str
) -> None:
    values = [b"%d " % number * 20 for number in range(500)]
    create(broker, topic)
    await_leader(broker, topic)  # without acks, records sent before the leader is ready are lost
    with Producer(broker.bootstrap, acks=acks, compression_type=codec) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(TIMEOUT_S)
        offsets = [future.result(0).offset for future in futures]
    assert offsets == ([-1] * 500 if acks == "0" else list(range(500)))
    assert [message.value() for message in read(broker, topic, count=500)] == values


def test_keys_lie_where_librdkafka_puts_them_by_javas_hash(
    broker: BrokerProcess, topic: str
) -> None:
    create(broker, topic, 7)
    keys = [b"key-%d" % number for number in range(200)] + [b""]
    with Producer(broker.bootstrap) as producer:
        ours = {key: producer.send(topic, b"", key=key).result(TIMEOUT_S).partition for key in keys}
    theirs: dict[bytes, int] = {}
    other = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys[:-1]:  # librdkafka's "random" partitioner treats an empty key as none
        other.produce(
            topic,
            b"",
            key,
            callback=lambda _, reported: theirs.update({reported.key(): reported.partition()}),
        )
    assert other.flush(TIMEOUT_S) == 0
    assert {key: ours[key] for key in keys[:-1]} == theirs
    assert ours[b""] == partition_of(b"", 7)


def test_records_without_key_go_to_all_partitions(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 3)
    with Producer(broker.bootstrap, batch_size=1000, linger_ms=1) as producer:
        futures = [producer.send(topic, bytes(100)) for _ in range(500)]
        partitions = {future.result(TIMEOUT_S).partition for future in futures}
    assert partitions == {0, 1, 2}


def test_round_robin_functions_and_priorities(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 6)

    def sent(partitioner: Any, count: int = 6, **record: Any) -> list[int]:
        with Producer(broker.bootstrap, partitioner=partitioner) as producer:
            futures = [producer.send(topic, b"v", **record) for _ in range(count)]
            return [future.result(TIMEOUT_S).partition for future in futures]

    assert sorted(sent("round_robin")) == [0, 1, 2, 3, 4, 5]
    assert sent(lambda topic, key, value, count: count - 1, 1) == [5]
    assert set(sent(PriorityPartitioner(levels=3), priority=0)) == {0, 1}
    assert set(sent(PriorityPartitioner(levels=3), priority=2)) == {4, 5}
    assert set(sent(PriorityPartitioner(levels=3))) == {4, 5}
    by_key = sent(PriorityPartitioner(ranges=[range(1), range(1, 6)]), priority=1, key=b"k")
    assert set(by_key) == {1 + partition_of(b"k", 5)}
    with pytest.raises(UnknownTopic, match="partitioner chose"):
        sent(lambda *_: 6)
    with pytest.raises(InvalidConfig, match="Priority 3 does not exist"):
        sent(PriorityPartitioner(levels=3), priority=3)
    with pytest.raises(InvalidConfig, match="PriorityPartitioner"):
        sent(None, priority=1)


def test_order_within_a_partition_is_the_order_of_sends(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, batch_size=500, linger_ms=0) as producer:
        for number in range(3000):
            producer.send(topic, b"%d" % number)
    values = [int(message.value()) for message in read(broker, topic, count=3000)]
    assert values == list(range(3000))


def test_many_threads_share_a_producer(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:

        def send(thread: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d %d" % (thread, number))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen: dict[int, list[int]] = {}
    for message in read(broker, topic, count=2000):
        thread, number = map(int, message.value().split())
        seen.setdefault(thread, []).append(number)
    assert seen == {thread: list(range(500)) for thread in range(4)}


# -------------------------------------------------------------------------------------- errors


def test_what_is_wrong_with_one_record_harms_no_other(broker: BrokerProcess, topic: str) -> None:
    def serialize(value: object) -> bytes:
        if value == "bad":
            raise ValueError("no")
        return str(value).encode()

    with Producer(
        broker.bootstrap, value_serializer=serialize, max_request_size=1000, linger_ms=100
    ) as producer:
        producer.send(topic, "first")
        with pytest.raises(SerializationFailed) as failure:
            producer.send(topic, "bad")
        assert isinstance(failure.value.__cause__, ValueError)
        assert failure.value.topic == topic
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            producer.send(topic, "x" * 1000)
        with pytest.raises(SerializationFailed, match="headers"):
            producer.send(topic, "v", headers=[("a", 5)])  # type: ignore[list-item]
        with pytest.raises(UnknownTopic, match="no partition 3"):
            producer.send(topic, "v", partition=3)
        producer.send(topic, "last")
    assert [message.value() for message in read(broker, topic, count=2)] == [b"first", b"last"]


def test_what_cannot_be_sent_as_bytes_needs_a_serialiser(broker: BrokerProcess, topic: str) -> None:
    needs = pytest.raises(SerializationFailed, match="value_serializer")
    with Producer(broker.bootstrap) as producer, needs:
        producer.send(topic, {"a": 1})
    with Producer(broker.bootstrap, value_serializer="json") as producer:
        producer.send(topic, {"a": 1})
    assert read(broker, topic)[0].value() == b'{"a":1}'


def test_a_topic_that_does_not_exist_is_an_error_after_max_block_ms() -> None:
    with (
        BrokerProcess(overrides={"auto.create.topics.enable": "false"}) as broker,
        Producer(broker.bootstrap, max_block_ms=1_500) as producer,
    ):
        with pytest.raises(UnknownTopic, match="nowhere"):
            producer.send("nowhere", b"")
        create(broker, "somewhere")
        producer.send("somewhere", b"there").result(TIMEOUT_S)


def test_servers_that_do_not_answer_are_named() -> None:
    with pytest.raises(BrokersUnreachable, match=r"127\.0\.0\.1:1"):
        Producer("127.0.0.1:1", max_block_ms=1_500)


def test_a_full_buffer_makes_send_wait_and_then_fail() -> None:
    with BrokerProcess() as broker:
        producer = Producer(
            broker.bootstrap, buffer_memory=50_000, batch_size=10_000, max_block_ms=2_000,
            linger_ms=0, reconnect_backoff_max_ms=100,
        )  # fmt: skip
        producer.send("t", b"first").result(TIMEOUT_S)
        broker.kill()
        futures: list[RecordFuture] = []
        with pytest.raises(BufferFull, match=r"buffer\.memory"):
            futures += [producer.send("t", bytes(5_000)) for _ in range(100)]
        broker.start()
        producer.send("t", b"again").result(TIMEOUT_S)
        producer.close(TIMEOUT_S)


def test_back_pressure_slows_down_and_loses_nothing(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, buffer_memory=20_000, batch_size=5_000) as producer:
        futures = [producer.send(topic, b"%d" % number * 100) for number in range(1000)]
        producer.flush(TIMEOUT_S)
        assert [future.result(0).offset for future in futures] == list(range(1000))


def test_a_batch_that_the_topic_finds_too_large_is_split(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, max_message_bytes="2000")
    values = [b"%d " % number * 100 for number in range(50)]
    with Producer(broker.bootstrap, batch_size=100_000, linger_ms=500) as producer:
        futures = [producer.send(topic, value) for value in values]
        too_large = producer.send(topic, bytes(5_000))
        after = [producer.send(topic, value) for value in values]
        producer.flush(TIMEOUT_S)
        assert [future.result(0).offset for future in futures + after] == list(range(100))
        assert isinstance(too_large.exception(0), RecordTooLarge)
    assert [message.value() for message in read(broker, topic, count=100)] == values + values


def test_records_that_no_broker_takes_fail_after_the_delivery_timeout() -> None:
    with BrokerProcess() as broker:
        producer = Producer(
            broker.bootstrap, delivery_timeout_ms=1_500, request_timeout_ms=1_000, linger_ms=0,
            reconnect_backoff_max_ms=100,
        )  # fmt: skip
        producer.send("t", b"first").result(TIMEOUT_S)
        broker.kill()
        futures = [producer.send("t", b"%d" % number) for number in range(3)]
        for future in futures:
            failure = future.exception(TIMEOUT_S)
            assert isinstance(failure, KafkaTimeout)
            assert (failure.topic, failure.partition) == ("t", 0)
        broker.start()
        producer.send("t", b"last").result(TIMEOUT_S)
        producer.close(TIMEOUT_S)
        values = [message.value() for message in read(broker, "t", count=2)]
    assert values == [b"first", b"last"]


def test_a_topic_that_is_deleted_and_created_anew_is_written_to(
    broker: BrokerProcess, topic: str
) -> None:
    create(broker, topic, 2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with Producer(broker.bootstrap, retry_backoff_ms=20) as producer:
        for _ in range(3):
            producer.send(topic, b"old", partition=1).result(TIMEOUT_S)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        create(broker, topic, 2)
        for number in range(3):
            producer.send(topic, b"new %d" % number, partition=1).result(TIMEOUT_S)
    values = [message.value() for message in read(broker, topic, 2, count=3)]
    assert values == [b"new 0", b"new 1", b"new 2"]


def test_partitions_that_are_added_are_used(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"").result(TIMEOUT_S)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
        assert producer.send(topic, b"", partition=2).result(TIMEOUT_S).partition == 2


def test_a_broker_that_forgot_the_producer_accepts_it_again(
    broker: BrokerProcess, topic: str
) -> None:
    """Deleting all records also deletes the producer's state."""
    create(broker, topic, 1)
    with Producer(broker.bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number).result(TIMEOUT_S)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        deleted = admin.delete_records([ConfluentPartition(topic, 0, 5)])
        next(iter(deleted.values())).result(TIMEOUT_S)
        assert producer.send(topic, b"more").result(TIMEOUT_S).offset == 5


# ------------------------------------------------------------------------ asyncio and closing


def test_the_same_in_asyncio(broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(
            broker.bootstrap, buffer_memory=20_000, batch_size=1000
        ) as producer:
            futures = [await producer.send(topic, b"%d" % number) for number in range(1000)]
            offsets = [(await future).offset for future in futures]
            assert offsets == list(range(1000))
            assert len(await producer.partition_metadata(topic)) == 1
            called: list[RecordFuture] = []
            future = await producer.send(topic, b"more")
            future.add_done_callback(called.append)
            await producer.flush()
            assert called == [future]

    asyncio.run(run())
    read(broker, topic, count=1001)


def test_close_sends_what_waits_and_refuses_more(broker: BrokerProcess, topic: str) -> None:
    producer = Producer(broker.bootstrap, linger_ms=10_000)
    future = producer.send(topic, b"waits")
    producer.close()
    assert future.result(0).offset == 0
    with pytest.raises(ClientClosed):
        producer.send(topic, b"late")
    producer.close()


def test_close_with_a_timeout_fails_what_could_not_be_sent() -> None:
    with BrokerProcess() as broker:
        producer = Producer(broker.bootstrap)
        producer.send("t", b"first").result(TIMEOUT_S)
        broker.kill()
        future = producer.send("t", b"second")
        producer.close(timeout_s=0.2)
        with pytest.raises(ClientClosed):
            future.result(0)
