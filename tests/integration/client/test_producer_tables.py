"""Arrow tables written to topics, read back with librdkafka."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from ottla import (
    AsyncProducer,
    Producer,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
)
from ottla.base.errors import UserError
from ottla.client.producer.partitioners import partition_of
from ottla.testing.broker import BrokerProcess

pa = pytest.importorskip("pyarrow")

TIMEOUT_S = 60


def read(broker: BrokerProcess, topic: str, partitions: int = 1) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ended += 1
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def created(broker: BrokerProcess, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_columns_become_keys_values_headers_and_timestamps(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    table = pa.table(
        {
            "k": pa.array([b"a", None, b"c"]),
            "v": pa.array(["one", "two", None]),
            "h": pa.array([[("x", b"1")], None, [("y", None), ("x", b"")]],
                          pa.map_(pa.string(), pa.binary())),
            "t": pa.array([10, 20, 30], pa.timestamp("ms")),
        }
    )  # fmt: skip
    with Producer(broker.bootstrap, compression_type=codec) as producer:
        future = producer.send_table(topic, table, key="k", value="v", headers="h", timestamp="t")
        metadata = future.result(TIMEOUT_S)
    assert metadata == (topic, 3, {0: (0, 2, 3)})
    found = [
        (each.key(), each.value(), each.headers(), each.timestamp()[1])
        for each in read(broker, topic)
    ]
    assert found == [
        (b"a", b"one", [("x", b"1")], 10),
        (None, b"two", None, 20),
        (b"c", None, [("y", None), ("x", b"")], 30),
    ]


def test_rows_lie_where_single_records_would(broker: BrokerProcess, topic: str) -> None:
    created(broker, topic, 5)
    keys = [b"key-%d" % (number % 97) for number in range(2000)]
    table = pa.table({"k": keys, "v": [b"%d" % number for number in range(2000)]})
    with Producer(broker.bootstrap) as producer:
        metadata = producer.send_table(topic, table, key="k", value="v").result(TIMEOUT_S)
    found = read(broker, topic, 5)
    assert metadata.record_count == len(found) == 2000
    assert all(each.partition() == partition_of(each.key(), 5) for each in found)
    for partition in range(5):
        expected = [n for n in range(2000) if partition_of(keys[n], 5) == partition]
        assert [int(each.value()) for each in found if each.partition() == partition] == expected
        assert metadata.offsets[partition] == (0, len(expected) - 1, len(expected))


def test_rows_go_to_the_partition_of_a_column_or_of_an_argument(
    broker: BrokerProcess, topic: str
) -> None:
    created(broker, topic, 3)
    table = pa.table({"p": [2, 0, 2], "v": ["a", "b", "c"]})
    with Producer(broker.bootstrap) as producer:
        producer.send_table(topic, table, value="v", partition="p").result(TIMEOUT_S)
        producer.send_table(topic, table, value="v", partition=1).result(TIMEOUT_S)
        with pytest.raises(SerializationFailed, match="partition 3"):
            producer.send_table(topic, pa.table({"p": [3], "v": ["x"]}), value="v", partition="p")
        with pytest.raises(UnknownTopic, match="no partition 7"):
            producer.send_table(topic, table, value="v", partition=7)
    found = [(each.partition(), each.value()) for each in read(broker, topic, 3)]
    assert found == [(0, b"b"), (1, b"a"), (1, b"b"), (1, b"c"), (2, b"a"), (2, b"c")]


def test_other_columns_become_json(broker: BrokerProcess, topic: str) -> None:
    rows = [
        {"n": 1, "f": 1.5, "b": True, "s": 'q"\\\n\x01é', "st": {"a": 1, "b": None}, "l": [1, None],
         "ts": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC), "d": date(2026, 1, 2),
         "x": Decimal("1.50"), "by": b"bytes"},
        {"n": None, "f": float("nan"), "b": None, "s": None, "st": None, "l": None, "ts": None,
         "d": None, "x": None, "by": None},
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows).append_column("id", pa.array([7, 8]))
    with Producer(broker.bootstrap) as producer:
        producer.send_table(topic, table, key="id").result(TIMEOUT_S)
        producer.send_table(topic, table, key=["id", "n"], value="st").result(TIMEOUT_S)
    first, second, third, fourth = read(broker, topic)
    assert (first.key(), second.key()) == (b"7", b"8")
    value = json.loads(first.value())
    assert value.pop("ts") == "2026-01-02T03:04:05.678000Z"
    assert value == {
        "n": 1, "f": 1.5, "b": True, "s": 'q"\\\n\x01é', "st": {"a": 1, "b": None}, "l": [1, None],
        "d": "2026-01-02", "x": 1.5, "by": "bytes",
    }  # fmt: skip
    assert set(json.loads(second.value()).values()) == {None}
    assert (json.loads(third.key()), json.loads(third.value())) == (
        {"id": 7, "n": 1}, {"a": 1, "b": None}
    )  # fmt: skip
    assert fourth.value() == b"null"


def test_invalid_arguments_are_reported(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, max_request_size=5000) as producer:
        table = pa.table({"v": ["small", "x" * 6000]})
        with pytest.raises(RecordTooLarge, match="row 1"):
            producer.send_table(topic, table, value="v")
        with pytest.raises(UserError, match="no column 'w'; it has v"):
            producer.send_table(topic, table, value="w")
        with pytest.raises(UserError, match="not int"):
            producer.send_table(topic, 5)
        producer.send_table(topic, table.slice(0, 1), value="v").result(TIMEOUT_S)
    with (
        Producer(broker.bootstrap, partitioner=lambda *_: 0) as producer,
        pytest.raises(UserError, match="partition"),
    ):
        producer.send_table(topic, table, value="v")
    assert [each.value() for each in read(broker, topic)] == [b"small"]


def test_tables_and_single_records_keep_their_order_and_wait_for_memory(
    broker: BrokerProcess, topic: str
) -> None:
    table = pa.table({"v": [b"%06d" % number for number in range(50_000)]})
    with Producer(broker.bootstrap, buffer_memory=300_000, max_request_size=100_000) as producer:
        producer.send(topic, b"first")
        future = producer.send_table(topic, table, value="v")
        producer.send(topic, b"last")
        producer.flush(TIMEOUT_S)
        assert future.done()
        assert future.result(0).offsets == {0: (1, 50_000, 50_000)}
    values = [each.value() for each in read(broker, topic)]
    assert values == [b"first", *table.column("v").to_pylist(), b"last"]


def test_a_tables_batch_that_the_topic_finds_too_large_is_split() -> None:
    with BrokerProcess(overrides={"message.max.bytes": "3000"}) as broker:
        table = pa.table({"v": [b"%06d" % number for number in range(5_000)]})
        with Producer(broker.bootstrap, compression_type="lz4") as producer:
            future = producer.send_table("t", table, value="v")
            assert future.result(TIMEOUT_S).offsets == {0: (0, 4_999, 5_000)}
        assert [each.value() for each in read(broker, "t")] == table.column("v").to_pylist()


def test_tables_in_asyncio_and_from_pandas(broker: BrokerProcess, topic: str) -> None:
    pandas = pytest.importorskip("pandas")

    async def run() -> None:
        async with AsyncProducer(broker.bootstrap, buffer_memory=2_000_000) as producer:
            frame = pandas.DataFrame({"v": [f"{number:0100}" for number in range(50_000)]})
            future = await producer.send_table(topic, frame, value="v")
            metadata = await future
            assert metadata.record_count == future.record_count == 50_000

    asyncio.run(run())
    assert len(read(broker, topic)) == 50_000
