"""Tables that other clients read record by record, and their records read as tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.compat.clients.record import CODECS, Client, Received
from tests.compat.conftest import LIBRARIES, make_client
from tests.compat.test_records import for_client
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.decode import decode_fetch
from ottla.wire.records.columnar.encode import encode_batches
from ottla.wire.records.columnar.partition import group_rows, partition_by_key

PARTITIONS = 3
ROWS = 500
TABLE = pa.table(
    {
        "key": [None if row % 50 == 0 else f"key {row % 97}" for row in range(ROWS)],
        "value": [None if row % 31 == 0 else b"%d" % row * (row % 40) for row in range(ROWS)],
        "headers": pa.array(
            [[{"key": "row", "value": b"%d" % row}] * (row % 3) for row in range(ROWS)],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
        "timestamp": pa.array(range(1_700_000_000_000, 1_700_000_000_000 + ROWS)),
    }
)


def expected(row: int, offset: int) -> Received:
    fields = TABLE.slice(row, 1).to_pylist()[0]
    key = None if fields["key"] is None else fields["key"].encode()
    headers = tuple((header["key"], header["value"]) for header in fields["headers"])
    return Received(offset, fields["timestamp"], key, fields["value"], headers)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_a_table_is_read_by_every_client_record_by_record(
    raw: RawClient, client: Client, codec: str, topic: str
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} here")
    raw.create_topic(topic, PARTITIONS)
    columns = RecordColumns(**{name: TABLE.column(name) for name in TABLE.column_names})
    partitions = partition_by_key(TABLE.column("key"), PARTITIONS, null_partition=1)
    groups = group_rows(partitions, PARTITIONS)
    for partition in range(PARTITIONS):
        rows = groups.rows(partition)
        for batch in encode_batches(columns, rows, batch_size=2_000, compression=codec):
            answer = raw.produce(topic, bytes(batch.data), partition)
            assert answer.error_code == 0, answer
        received = client.consume(topic, len(rows), partition=partition)
        assert received == [expected(row, offset) for offset, row in enumerate(rows.tolist())]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_records_of_every_client_are_read_as_a_table(
    raw: RawClient, client: Client, codec: str, topic: str
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} here")
    sent = for_client(client)
    client.create_topic(topic)
    client.produce(topic, sent, compression=codec)
    (part,) = decode_fetch(raw.fetch(topic).records)
    received = [
        (
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            row["timestamp"],
        )
        for row in part.batch.to_pylist()
    ]
    assert received == [tuple(record) for record in sent]
    assert part.next_offset == len(sent)


def test_keys_fall_where_librdkafka_puts_them_as_java_does(
    broker: BrokerProcess, topic: str
) -> None:
    reader = make_client("confluent-kafka", broker.bootstrap)
    reader.create_topic(topic, PARTITIONS)
    keys = [b"%d" % number * (number % 9) for number in range(200)]
    settings = {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"}
    fallen: dict[bytes, int] = {}
    producer = Producer(settings)
    for key in keys:
        producer.produce(
            topic, b"", key, on_delivery=lambda _, m: fallen.update({m.key() or b"": m.partition()})
        )
    assert producer.flush(20) == 0
    ours = partition_by_key(pa.array(keys), PARTITIONS).tolist()
    assert fallen == dict(zip(keys, ours, strict=True))
