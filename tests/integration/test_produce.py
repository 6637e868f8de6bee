"""Produce requests that are rejected: the error code, and the effect on the rest of the request."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from tests.raw_client import Api, ConnectionClosed, RawClient, eventually, produce_body, values

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess
from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORD_COUNT_AT,
    seal,
)
from ottla.wire.records.builder import build_batch

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100

DAY_MS = 86_400_000
GOOD = build_batch([(b"k", b"v", (), 1_700_000_000_000)] * 2)


def changed(position: int, layout: str, *fields: int, sealed: bool = True) -> bytes:
    """Return a valid batch with some bytes changed, and the matching CRC if `sealed`."""
    batch = bytearray(GOOD)
    struct.pack_into(layout, batch, position, *fields)
    return bytes(seal(batch)) if sealed else bytes(batch)


BAD_BATCHES: dict[str, tuple[bytes | None, int]] = {
    "a bit flipped in the records": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), CORRUPT_MESSAGE),
    "a wrong CRC": (changed(17, ">I", 0, sealed=False), CORRUPT_MESSAGE),
    "cut short": (GOOD[:-1], CORRUPT_MESSAGE),
    "a length that is too small": (changed(LENGTH_AT, ">i", 10, sealed=False), CORRUPT_MESSAGE),
    "a negative length": (changed(LENGTH_AT, ">i", -5, sealed=False), CORRUPT_MESSAGE),
    "magic 0": (changed(MAGIC_AT, ">b", 0), INVALID_RECORD),
    "magic 1": (changed(MAGIC_AT, ">b", 1), INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "no batch": (b"", INVALID_RECORD),
    "null": (None, INVALID_RECORD),
    "fewer records than offsets": (changed(LAST_OFFSET_DELTA_AT, ">i", 5), INVALID_RECORD),
    "more records than offsets": (changed(RECORD_COUNT_AT, ">i", 3), INVALID_RECORD),
    "no records": (
        build_batch([], last_offset=1),
        INVALID_RECORD,
    ),
    "a negative last offset": (changed(LAST_OFFSET_DELTA_AT, ">i", -1), INVALID_RECORD),
    "a base offset": (changed(BASE_OFFSET_AT, ">q", 5), INVALID_RECORD),
    "a control batch": (changed(ATTRIBUTES_AT, ">h", 0x20), INVALID_RECORD),
    "the broker's time": (changed(ATTRIBUTES_AT, ">h", 0x08), INVALID_TIMESTAMP),
    "a producer without a sequence": (
        build_batch([(None, b"v", (), 1)], producer_id=5, producer_epoch=0, base_sequence=-1),
        INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_is_refused(client: RawClient, topic: str, what: str) -> None:
    batch, code = BAD_BATCHES[what]
    client.create_topic(topic)
    answer = client.produce(topic, batch)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, -1)
    assert answer.error_message
    assert client.offsets(topic) == (0, 0)
    assert client.produce(topic, GOOD).base_offset == 0


def test_one_bad_partition_does_not_touch_the_good_ones(client: RawClient, topic: str) -> None:
    client.create_topic(topic, 3)
    bad = BAD_BATCHES["a wrong CRC"][0]
    other = f"{topic}-other"
    client.create_topic(other)
    body = produce_body(
        {topic: {0: GOOD, 1: bad, 2: GOOD, 9: GOOD}, other: {0: GOOD}, "x": {0: GOOD}}
    )
    answer = client.call(Api.PRODUCE, 12, **body)
    codes = {
        (each.name, partition.index): partition.error_code
        for each in answer.responses
        for partition in each.partition_responses
    }
    assert codes == {
        (topic, 0): 0,
        (topic, 1): CORRUPT_MESSAGE,
        (topic, 2): 0,
        (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): 0,
        ("x", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [client.offsets(topic, index)[1] for index in range(3)] == [2, 0, 2]
    assert client.offsets(other) == (0, 2)


def test_an_unknown_topic_id_is_refused(client: RawClient, topic: str) -> None:
    topic_id = client.create_topic(topic)
    body = produce_body({bytes(range(16)): {0: GOOD}, topic_id: {0: GOOD}})
    unknown, known = client.call(Api.PRODUCE, 13, **body).responses
    assert unknown.topic_id == bytes(range(16))
    assert unknown.partition_responses[0].error_code == UNKNOWN_TOPIC_ID
    assert known.partition_responses[0].error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_other_acks_than_kafka_knows_are_refused(client: RawClient, topic: str, acks: int) -> None:
    client.create_topic(topic)
    assert client.produce(topic, GOOD, acks=acks).error_code == INVALID_REQUIRED_ACKS
    assert client.offsets(topic) == (0, 0)
    assert client.produce("nobody", GOOD, acks=acks).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_above_max_message_bytes_is_refused(client: RawClient, topic: str) -> None:
    client.create_topic(topic, max_message_bytes="1000")
    at_limit = build_batch([(None, bytes(1000 - 61 - 10), (), 1)])
    assert 990 < len(at_limit) <= 1000
    assert client.produce(topic, at_limit).error_code == 0
    above = build_batch([(None, bytes(1001 - 61), (), 1)])
    answer = client.produce(topic, above)
    assert answer.error_code == MESSAGE_TOO_LARGE
    assert "max.message.bytes" in answer.error_message


def test_a_compressed_batch_counts_as_it_was_sent(client: RawClient, topic: str) -> None:
    client.create_topic(topic, max_message_bytes="1000")
    batch = build_batch([(None, bytes(5000), (), 1)], compression="gzip")
    assert len(batch) < 1000
    assert client.produce(topic, batch).error_code == 0


def test_a_batch_larger_than_a_segment_is_refused(client: RawClient, topic: str) -> None:
    client.create_topic(topic, segment_bytes="1048576", max_message_bytes="4000000")
    answer = client.produce(topic, [(None, bytes(1_100_000), (), 1)])
    assert answer.error_code == RECORD_LIST_TOO_LARGE
    assert client.produce(topic, [(None, bytes(900_000), (), 1)]).error_code == 0


def test_timestamps_too_far_from_the_clock_are_refused(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic,
        message_timestamp_after_max_ms=str(DAY_MS),
        message_timestamp_before_max_ms=str(DAY_MS),
    )
    now_ms = int(time.time() * 1000)
    for timestamp in (now_ms + 2 * DAY_MS, now_ms - 2 * DAY_MS):
        answer = client.produce(topic, [(None, b"good", (), now_ms), (None, b"v", (), timestamp)])
        assert answer.error_code == INVALID_TIMESTAMP
        assert answer.error_message
    assert client.produce(topic, [(None, b"v", (), now_ms)]).error_code == 0
    assert client.produce(topic, [(None, b"v", (), -1)]).error_code == 0
    assert client.offsets(topic) == (0, 2)


def test_a_compacted_topic_names_the_records_without_a_key(client: RawClient, topic: str) -> None:
    client.create_topic(topic, cleanup_policy="compact")
    for codec in ("none", "gzip", "zstd"):
        records = [
            (b"k", b"v", (), 1),
            (None, b"v", (), 1),
            (b"k", None, (), 1),
            (None, None, (), 1),
        ]
        answer = client.produce(topic, records, compression=codec)
        assert answer.error_code == INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
        assert all(each.batch_index_error_message for each in answer.record_errors)
    assert client.offsets(topic) == (0, 0)
    assert client.produce(topic, [(b"k", None, (), 1)]).error_code == 0


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_zstd_needs_version_7(client: RawClient, topic: str, version: int) -> None:
    client.create_topic(topic)
    batch = build_batch([(None, b"v", (), 1)], compression="zstd")
    answer = client.produce(topic, batch, version=version)
    assert answer.error_code == (0 if version >= 7 else UNSUPPORTED_COMPRESSION_TYPE)


def test_an_unknown_compression_is_refused(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    for codec in (5, 6, 7):
        answer = client.produce(topic, changed(ATTRIBUTES_AT, ">h", codec))
        assert answer.error_code in (UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, CORRUPT_MESSAGE)
    assert client.offsets(topic) == (0, 0)


def test_acks_all_needs_enough_replicas(client: RawClient, topic: str) -> None:
    client.create_topic(topic, min_insync_replicas="2")
    assert client.produce(topic, GOOD, acks=-1).error_code == NOT_ENOUGH_REPLICAS
    assert client.produce(topic, GOOD, acks=1).error_code == 0


def test_acks_0_gets_no_answer(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    client.send(Api.PRODUCE, 12, **produce_body({topic: {0: GOOD}}, acks=0))
    client.assert_is_silent()
    assert client.offsets(topic) == (0, 2)


@pytest.mark.parametrize("partition", [0, 9])
def test_a_failed_write_with_acks_0_closes_the_connection(
    broker: BrokerProcess, client: RawClient, topic: str, partition: int
) -> None:
    client.create_topic(topic)
    bad = BAD_BATCHES["a wrong CRC"][0]
    with RawClient(broker.port) as other:
        other.send(Api.PRODUCE, 12, **produce_body({topic: {partition: bad}}, acks=0))
        with pytest.raises(ConnectionClosed):
            other.receive_frame()


def test_a_write_that_waits_behind_others_keeps_its_order(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    batches = [build_batch([(None, b"%d" % number, (), 1)]) for number in range(200)]
    sent = [client.send(Api.PRODUCE, 9, **produce_body({topic: {0: batch}})) for batch in batches]
    answers = [client.receive(Api.PRODUCE, 9, each) for each in sent]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(200))
    assert values(client.records(topic)) == [b"%d" % number for number in range(200)]


def test_two_connections_share_the_offsets_without_a_gap(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    with RawClient(broker.port) as other:
        body = produce_body({topic: {0: GOOD}})
        sent = [
            (each, each.send(Api.PRODUCE, 9, **body)) for _ in range(50) for each in (client, other)
        ]
        found = [
            each.receive(Api.PRODUCE, 9, number).responses[0].partition_responses[0].base_offset
            for each, number in sent
        ]
    assert sorted(found) == list(range(0, 200, 2))


def test_a_request_of_many_partitions_is_one_answer(client: RawClient, topic: str) -> None:
    client.create_topic(topic, 100)
    answer = client.call(Api.PRODUCE, 12, **produce_body({topic: dict.fromkeys(range(100), GOOD)}))
    assert [each.base_offset for each in answer.responses[0].partition_responses] == [0] * 100


def test_an_empty_request_is_answered(client: RawClient) -> None:
    answer: Any = client.call(Api.PRODUCE, 12, **produce_body({}))
    assert list(answer.responses) == []


def test_records_arrive_while_a_consumer_waits(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    client.send(Api.PRODUCE, 12, **produce_body({topic: {0: GOOD}}, acks=0))
    assert eventually(lambda: client.offsets(topic)[1], lambda end: end == 2) == 2


@pytest.mark.parametrize("acks", [1, -1])
def test_clients_may_not_write_to_the_clusters_own_topics(client: RawClient, acks: int) -> None:
    client.call(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["any"])  # creates it
    records = build_batch([(b"key", b"value", (), 0)])
    answer = client.produce("__consumer_offsets", records, acks=acks)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
