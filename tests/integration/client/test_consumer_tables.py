"""Records as Arrow tables: polled by a consumer, or read from a range of offsets."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from itertools import islice

import pytest
from confluent_kafka import Producer as ConfluentProducer
from tests.raw_client import RawClient

from ottla import (
    AsyncConsumer,
    ClientError,
    Consumer,
    DeserializationFailed,
    TopicPartition,
    UnknownTopic,
    read_batches,
    read_table,
)
from ottla.testing.broker import BrokerProcess

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
pytest.importorskip("numba", reason="the extra `arrow` is not installed")

TIMEOUT_S = 60.0  # the kernels may have to be compiled first
FAST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
NAMES = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]


def fill(client: RawClient, topic: str, count: int, partitions: int = 1) -> None:
    client.create_topic(topic, partitions, retention_ms="-1")
    for number in range(count):
        record = (b"k%d" % number, b"v%d" % number, (("h", b"1"),), 1000 + number)
        client.produce(topic, [record], number % partitions)


def poll_rows(consumer: Consumer, count: int, **options: object) -> pa.Table:
    tables = []
    while sum(table.num_rows for table in tables) < count:
        table = consumer.poll_table(TIMEOUT_S, **options)  # type: ignore[arg-type]
        assert table.num_rows, "nothing came"
        tables.append(table)
    return pa.concat_tables(tables)


def test_a_polled_table_has_what_records_have(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 6, partitions=2)
    client.produce(topic, [(None, None, (), 5)], 0)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        table = poll_rows(consumer, 7)
        assert consumer.position(TopicPartition(topic, 0)) == 4
        consumer.seek_to_beginning()
        records = []
        while len(records) < 7:
            records += consumer.poll(TIMEOUT_S)
    assert table.column_names == NAMES
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert pa.types.is_dictionary(table.schema.field("topic").type)
    rows = table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    expected = sorted(records, key=lambda record: (record.partition, record.offset))
    assert [
        (row["topic"], row["partition"], row["offset"], row["key"], row["value"],
         row["timestamp_type"], tuple((h["key"], h["value"]) for h in row["headers"]))
        for row in rows
    ] == [
        (r.topic, r.partition, r.offset, r.key, r.value, r.timestamp_type, r.headers)
        for r in expected
    ]  # fmt: skip
    assert rows[0]["timestamp"] == datetime.fromtimestamp(1, UTC)


def test_columns_and_sizes_can_be_chosen(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, retention_ms="-1")
    client.produce(topic, [(None, b"%d" % number, (), 1) for number in range(100)])
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        first = consumer.poll_table(TIMEOUT_S, max_records=30, columns=["value", "partition"])
        assert first.column_names == ["value", "partition"]
        assert first["value"].to_pylist() == [b"%d" % number for number in range(30)]
        assert consumer.position(TopicPartition(topic, 0)) == 30
        assert [record.value for record in consumer.poll(TIMEOUT_S, max_records=2)] == [
            b"30",
            b"31",
        ]
        names = consumer.poll_table(TIMEOUT_S, columns=["topic"])
        assert (names.num_rows, set(names["topic"].to_pylist())) == (68, {topic})
        nothing = consumer.poll_table(0.05)
        assert (nothing.num_rows, nothing.column_names) == (0, NAMES)
        with pytest.raises(ValueError, match="Column 'valeu' does not exist"):
            consumer.poll_table(columns=["valeu"])
        with pytest.raises(ValueError, match="at least 1"):
            consumer.poll_table(max_records=0)


def test_tables_after_records_of_an_iterator_lose_nothing(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, retention_ms="-1")
    client.produce(topic, [(None, b"%d" % number, (), 1) for number in range(50)])
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        table = poll_rows(consumer, 47, columns=["offset"])
        assert table["offset"].to_pylist() == list(range(3, 50))


def test_tables_are_committed_as_records_are(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 5)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group_id=topic, topics=topic, **FAST) as consumer:
        poll_rows(consumer, 5)
    with Consumer(broker.bootstrap, group_id=topic) as consumer:
        committed = consumer.committed(tp)[tp]
        assert committed is not None
        assert (committed.offset, committed.leader_epoch) == (5, 0)


def test_reading_from_here_to_there(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    fill(client, topic, 20, partitions=2)

    def offsets(start: object = "earliest", end: object = "latest") -> list[list[int]]:
        table = read_table(
            broker.bootstrap,
            topic,
            start,
            end,
            columns=["partition", "offset"],  # type: ignore[arg-type]
        )
        rows = sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
        return [[offset for partition, offset in rows if partition == p] for p in (0, 1)]

    everything = list(range(10))
    assert offsets() == [everything, everything]
    assert offsets(3, 5) == [[3, 4], [3, 4]]
    assert offsets({0: 8}, {0: 9, 1: 1}) == [[8], [0]]
    assert offsets(datetime.fromtimestamp(1.010, UTC)) == [everything[5:], everything[5:]]
    assert offsets("earliest", datetime.fromtimestamp(1.003, UTC)) == [[0, 1], [0]]
    assert offsets("latest") == [[], []]
    assert offsets(0, 1000) == [everything, everything]
    with pytest.raises(ValueError, match="Partition 7 does not exist"):
        offsets({7: 1})
    with pytest.raises(ValueError, match="newest"):
        offsets("newest")
    with pytest.raises(UnknownTopic):
        read_table(broker.bootstrap, "no-such-topic", default_api_timeout_ms=300)
    batches = list(read_batches(broker.bootstrap, topic))
    assert sum(batch.num_rows for batch in batches) == 20


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_large_topic_is_read_whole(
    broker: BrokerProcess, client: RawClient, topic: str, codec: str
) -> None:
    client.create_topic(topic, 3, retention_ms="-1")
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for number in range(30_000):
        producer.produce(topic, b"%06d" % number * 10, partition=number % 3)
    producer.flush(TIMEOUT_S)
    table = read_table(broker.bootstrap, topic, columns=["value"], max_partition_fetch_bytes=50_000)
    assert sorted(table["value"].to_pylist()) == [b"%06d" % number * 10 for number in range(30_000)]


def test_json_values_become_columns(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    client.create_topic(topic, retention_ms="-1")
    rows = [{"id": 1, "name": "a", "offset": 2.5}, {"id": 2, "tags": ["x"]}, None, {"id": 4}]
    values = [None if row is None else json.dumps(row, indent=1).encode() for row in rows]
    client.produce(topic, [(b"k", value, (), 1) for value in values])
    table = read_table(broker.bootstrap, topic, columns=["offset", "value"], value="json")
    assert table.column_names == ["offset", "id", "name", "value.offset", "tags"]
    assert table.to_pylist() == [
        {"offset": 0, "id": 1, "name": "a", "value.offset": 2.5, "tags": None},
        {"offset": 1, "id": 2, "name": None, "value.offset": None, "tags": ["x"]},
        {"offset": 2, "id": None, "name": None, "value.offset": None, "tags": None},
        {"offset": 3, "id": 4, "name": None, "value.offset": None, "tags": None},
    ]
    schema = pa.schema([("id", pa.int32()), ("missing", pa.string())])
    table = read_table(broker.bootstrap, topic, columns=["value"], schema=schema)
    assert table.schema == schema
    assert table["id"].to_pylist() == [1, 2, None, 4]
    empty = read_table(broker.bootstrap, topic, "latest", columns=["key", "value"], schema=schema)
    assert (empty.num_rows, empty.column_names) == (0, ["key", "id", "missing"])


@pytest.mark.parametrize("bad", [b"{", b"[1]", b"", b"7", b'{"a":1}{"a":2}'])
def test_a_value_that_is_no_object_is_named_and_stays(
    broker: BrokerProcess, client: RawClient, topic: str, bad: bytes
) -> None:
    client.create_topic(topic, retention_ms="-1")
    client.produce(topic, [(None, value, (), 1) for value in (b'{"a":1}', bad, b'{"a":3}')])
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([tp])
        for _ in range(2):
            with pytest.raises(DeserializationFailed) as caught:
                consumer.poll_table(TIMEOUT_S, value="json")
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*tp, 1)
        consumer.seek(tp, 2)
        assert consumer.poll_table(TIMEOUT_S, value="json")["a"].to_pylist() == [3]


def test_batches_one_after_another_for_ever(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 3)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        seen: list[int] = []
        for batch in consumer.iter_batches(columns=["offset"]):
            seen += batch.column("offset").to_pylist()
            if len(seen) == 3:
                client.produce(topic, [(None, b"more", (), 1)])
            if len(seen) == 4:
                break
        assert seen == [0, 1, 2, 3]


def test_tables_with_asyncio(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    fill(client, topic, 4)

    async def consume() -> None:
        async with AsyncConsumer(broker.bootstrap, **FAST) as consumer:
            consumer.assign([(topic, 0)])
            rows = 0
            while rows < 4:
                rows += (await consumer.poll_table(TIMEOUT_S)).num_rows
            consumer.seek_to_beginning()
            async for batch in consumer.iter_batches(columns=["key"]):
                assert batch.schema.names == ["key"]
                break

    asyncio.run(consume())


def test_damage_is_reported_and_what_is_before_it_is_given(
    broker: BrokerProcess, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would not send such bytes, but a faulty network card might."""
    from ottla.client.consumer import fetcher

    original = fetcher.FetchedPartition

    def damaged(state: object, version: int, records: memoryview, *more: object) -> object:
        data = bytearray(records)
        data[-1] ^= 0xFF
        return original(state, version, bytes(data), *more)  # type: ignore[arg-type]

    fill(client, topic, 2)
    monkeypatch.setattr(fetcher, "FetchedPartition", damaged)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.poll_table(TIMEOUT_S, columns=["offset"])["offset"].to_pylist() == [0]
        with pytest.raises(ClientError, match="offset 1 is invalid"):
            consumer.poll_table(TIMEOUT_S)
