"""A producer's second request, which the broker answers without decoding it.

See broker/produce_fast_path.py. Clients must not notice a difference, in any version and whatever
changes in between."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, produce_body, values

from ottla.base.errors import ErrorCode
from ottla.wire import codec, schema
from ottla.wire.records.builder import build_batch

VERSIONS = schema.versions(Api.PRODUCE)


def batch(value: bytes) -> bytes:
    return build_batch([(b"key", value, (), 1_000)])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_later_requests_are_answered_as_the_first(
    client: RawClient, topic: str, version: int, acks: int
) -> None:
    topic_id = client.create_topic(topic, partitions=2)
    named: Any = topic_id if version >= 13 else topic
    for number in range(4):
        partition = number % 2
        body = produce_body({named: {partition: batch(b"%d" % number)}}, acks)
        answer = client.call(Api.PRODUCE, version, **body)  # kio parses the response too
        (partition_response,) = answer.responses[0].partition_responses
        assert (partition_response.index, partition_response.error_code) == (partition, 0)
        assert (partition_response.base_offset, partition_response.log_append_time_ms) == (
            number // 2,
            -1,
        )
    assert values(client.records(topic, 0, 0)) == [b"0", b"2"]
    assert values(client.records(topic, 0, 1)) == [b"1", b"3"]


def test_a_bad_batch_in_a_known_shape_gets_its_error(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    good = batch(b"good")
    damaged = bytearray(good)
    damaged[-1] ^= 1
    assert client.produce(topic, good).error_code == 0
    assert client.produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert client.produce(topic, good).base_offset == 1


@pytest.mark.parametrize("version", [6, 7])
def test_zstd_is_refused_to_old_versions_in_a_known_shape(
    client: RawClient, topic: str, version: int
) -> None:
    client.create_topic(topic)
    plain = batch(b"plain")
    for _ in range(2):
        assert client.produce(topic, plain, version=version).error_code == 0
    packed = build_batch([(b"key", b"value", (), 1_000)], compression="zstd")
    expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
    assert client.produce(topic, packed, version=version).error_code == expected


def test_a_changed_config_is_heeded_in_a_known_shape(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    without_key = build_batch([(None, b"value", (), 1_000)])
    assert client.produce(topic, without_key).error_code == 0
    assert client.produce(topic, without_key).error_code == 0
    client.alter_topic(topic, **{"cleanup.policy": "compact"})
    assert client.produce(topic, without_key).error_code == ErrorCode.INVALID_RECORD
    client.alter_topic(topic, **{"cleanup.policy": "delete", "max.message.bytes": "70"})
    assert client.produce(topic, without_key).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_deleted_topic_is_noticed_in_a_known_shape(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    assert client.produce(topic, batch(b"1")).error_code == 0
    assert client.produce(topic, batch(b"2")).error_code == 0
    client.delete_topic(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(topic, batch(b"3")).error_code == unknown
    client.create_topic(topic)
    assert client.produce(topic, batch(b"4")).base_offset == 0


def test_a_frame_that_only_begins_like_a_known_one_is_decoded(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    assert client.produce(topic, batch(b"1")).error_code == 0
    body = produce_body({topic: {0: batch(b"2")}})
    frame = b"".join(codec.encode_request(Api.PRODUCE, 12, 77, "raw", body))
    tagged = bytearray(frame[:-1] + b"\x01\x05\x01x")  # one unknown tag at the end of the request
    struct.pack_into(">i", tagged, 0, len(tagged) - 4)
    client.send_frame(bytes(tagged[4:]))
    answer = client.receive(Api.PRODUCE, 12, 77)
    assert answer.responses[0].partition_responses[0].base_offset == 1
    client.send_frame(frame[4:-40])
    client.assert_is_closed()
