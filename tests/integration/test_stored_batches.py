"""Changes that the broker makes to a batch before it stores it: times, offsets, compression."""

from __future__ import annotations

import time

import pytest
from tests.raw_client import RawClient, read_batches, values

from ottla.wire.records.batch import BatchHeader, iter_headers, seal
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression import codec_id

CODECS = ("gzip", "snappy", "lz4", "zstd")
OLD = 1_700_000_000_000
RECORDS = [
    (b"key %d" % number, b"value " * 50, (("header", b"%d" % number),), OLD + number * 7)
    for number in range(10)
]


def stored(client: RawClient, topic: str) -> list[BatchHeader]:
    return list(iter_headers(bytes(client.fetch(topic).records)))


def test_batches_are_stored_as_they_were_sent(client: RawClient, topic: str) -> None:
    """Only the 16 bytes that the broker sets may differ."""
    client.create_topic(topic)
    sent = [build_batch(RECORDS, compression=codec) for codec in ("none", *CODECS)]
    for batch in sent:
        assert client.produce(topic, batch).error_code == 0
    found = bytes(client.fetch(topic).records)
    headers = list(iter_headers(found))
    assert [found[each.position + 16 : each.end] for each in headers] == [
        each[16:] for each in sent
    ]
    assert [each.base_offset for each in headers] == [0, 10, 20, 30, 40]
    assert {each.leader_epoch for each in headers} == {0}


def test_log_append_time_replaces_the_producers_time(client: RawClient, topic: str) -> None:
    client.create_topic(topic, message_timestamp_type="LogAppendTime")
    for codec in ("none", "gzip"):
        before_ms = int(time.time() * 1000)
        answer = client.produce(topic, RECORDS, compression=codec)
        after_ms = int(time.time() * 1000)
        assert before_ms <= answer.log_append_time_ms <= after_ms
        records = client.records(topic, answer.base_offset)
        assert {record.timestamp for record in records} == {answer.log_append_time_ms}
        assert [record.value for record in records] == [record[1] for record in RECORDS]
        found = client.list_offset(topic, before_ms)
        assert found.offset >= 0
    assert {header.timestamp_type for header in stored(client, topic)} == {1}
    assert client.list_offset(topic, OLD).offset == 0


def test_a_retry_gets_the_time_of_the_first_append(client: RawClient, topic: str) -> None:
    client.create_topic(topic, message_timestamp_type="LogAppendTime")
    identity = {"producer_id": client.new_producer(), "producer_epoch": 0, "base_sequence": 0}
    first = client.produce(topic, RECORDS, **identity)
    while int(time.time() * 1000) == first.log_append_time_ms:
        pass
    again = client.produce(topic, RECORDS, **identity)
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert again.log_append_time_ms == first.log_append_time_ms


def test_create_time_keeps_the_producers_time(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    answer = client.produce(topic, RECORDS)
    assert answer.log_append_time_ms == -1
    records = client.records(topic)
    assert [record.timestamp for record in records] == [record[3] for record in RECORDS]


@pytest.mark.parametrize("sent", ["none", *CODECS])
@pytest.mark.parametrize("wanted", ["uncompressed", *CODECS])
def test_a_topics_compression_type_is_what_is_stored(
    client: RawClient, topic: str, sent: str, wanted: str
) -> None:
    client.create_topic(topic, compression_type=wanted)
    small = client.produce(topic, RECORDS, compression=sent)
    large = [(b"k", bytes(20_000), (), OLD)]
    second = client.produce(topic, large, compression=sent)
    assert (small.error_code, second.error_code) == (0, 0)
    expected = codec_id("none" if wanted == "uncompressed" else wanted)
    assert [header.compression for header in stored(client, topic)] == [expected, expected]
    records = client.records(topic)
    assert [record[1:] for record in records[:-1]] == [
        (timestamp, key, value, headers) for key, value, headers, timestamp in RECORDS
    ]
    assert records[-1].value == large[0][1]


def test_recompression_keeps_producer_and_sequence(client: RawClient, topic: str) -> None:
    client.create_topic(topic, compression_type="zstd")
    producer_id = client.new_producer()
    identity = {"producer_id": producer_id, "producer_epoch": 0}
    client.produce(topic, RECORDS, **identity, base_sequence=0)
    again = client.produce(topic, RECORDS, **identity, base_sequence=0)
    client.produce(topic, RECORDS, **identity, base_sequence=10)
    assert again.base_offset == 0
    headers = stored(client, topic)
    assert [(each.producer_id, each.base_sequence) for each in headers] == [
        (producer_id, 0),
        (producer_id, 10),
    ]


def test_damaged_compressed_records_are_refused_where_they_are_looked_into(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic, compression_type="gzip")
    batch = bytearray(build_batch(RECORDS, compression="zstd"))
    batch[70:90] = bytes(20)
    answer = client.produce(topic, bytes(seal(batch)))
    assert answer.error_code in (2, 87)
    assert client.offsets(topic) == (0, 0)


def test_a_batch_in_the_middle_is_found_by_any_of_its_offsets(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    for _ in range(3):
        client.produce(topic, RECORDS, compression="lz4")
    for offset in (10, 15, 19):
        found = read_batches(client.fetch(topic, offset).records)
        assert found[0].offset == 10
        assert values(found[:10]) == [record[1] for record in RECORDS]
