"""ListOffsets: every special timestamp, and look-ups by time."""

from __future__ import annotations

import pytest
from tests.raw_client import Api, RawClient

UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
NEEDS_VERSION = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    PENDING_UPLOAD: 11,
}


@pytest.fixture
def filled(client: RawClient, topic: str) -> str:
    """Produce timestamps 100, 300, 200 in one batch; 250; 900 and 50 in one batch."""
    client.create_topic(topic, 2)
    for stamps in ((100, 300, 200), (250,), (900, 50)):
        client.produce(topic, [(None, b"v", (), stamp) for stamp in stamps], compression="gzip")
    return topic


def test_both_ends_and_the_newest_record(client: RawClient, filled: str) -> None:
    found = {
        timestamp: client.list_offset(filled, timestamp)
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL)
    }
    assert {each.error_code for each in found.values()} == {0}
    assert {timestamp: each.offset for timestamp, each in found.items()} == {
        EARLIEST: 0,
        LATEST: 6,
        MAX_TIMESTAMP: 4,
        EARLIEST_LOCAL: 0,
    }
    assert found[MAX_TIMESTAMP].timestamp == 900
    assert {found[each].timestamp for each in (EARLIEST, LATEST, EARLIEST_LOCAL)} == {-1}


def test_nothing_is_in_remote_storage(client: RawClient, filled: str) -> None:
    for timestamp in (LATEST_TIERED, PENDING_UPLOAD):
        found = client.list_offset(filled, timestamp)
        assert (found.error_code, found.offset, found.leader_epoch) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [
        (0, 0, 100),
        (100, 0, 100),
        (101, 1, 300),
        (300, 1, 300),
        (301, 4, 900),
        (900, 4, 900),
        (901, -1, -1),
        (2**62, -1, -1),
    ],
)
def test_the_first_record_at_or_after_a_time_is_found(
    client: RawClient, filled: str, timestamp: int, offset: int, found_timestamp: int
) -> None:
    found = client.list_offset(filled, timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_timestamp)


def test_an_empty_partition_has_ends_and_no_records(client: RawClient, filled: str) -> None:
    found = {
        timestamp: client.list_offset(filled, timestamp, 1)
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, 0)
    }
    assert {each.error_code for each in found.values()} == {0}
    assert {timestamp: each.offset for timestamp, each in found.items()} == {
        EARLIEST: 0,
        LATEST: 0,
        MAX_TIMESTAMP: -1,
        0: -1,
    }


def test_deleted_records_are_not_found(client: RawClient, filled: str) -> None:
    partitions = [{"partition_index": 0, "offset": 2}]
    topics = [{"name": filled, "partitions": partitions}]
    client.call(Api.DELETE_RECORDS, topics=topics, timeout_ms=10_000)
    assert client.list_offset(filled, EARLIEST).offset == 2
    found = client.list_offset(filled, 0)
    assert (found.offset, found.timestamp) == (2, 200)


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps_need_the_version_that_brought_them(
    client: RawClient, filled: str, version: int
) -> None:
    for timestamp, needed in NEEDS_VERSION.items():
        found = client.list_offset(filled, timestamp, version=version)
        assert found.error_code == (0 if version >= needed else UNSUPPORTED_VERSION)
    found = client.list_offset(filled, -7, version=version)
    assert (found.error_code, found.offset, found.timestamp) == (UNSUPPORTED_VERSION, -1, -1)


def test_a_partition_asked_for_twice_is_an_invalid_request(client: RawClient, filled: str) -> None:
    asked = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": -1}
    partitions = [asked, {**asked, "timestamp": EARLIEST}, {**asked, "partition_index": 1}]
    topics = [{"name": filled, "partitions": partitions}]
    answer = client.call(Api.LIST_OFFSETS, replica_id=-1, topics=topics)
    codes = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    assert codes == {0: INVALID_REQUEST, 1: 0}


def test_unknown_partitions_are_reported(client: RawClient, filled: str) -> None:
    for topic, partition in (("nobody", 0), (filled, 9)):
        found = client.list_offset(topic, LATEST, partition)
        assert (found.error_code, found.offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_times_are_found_across_segments(client: RawClient, topic: str) -> None:
    client.create_topic(topic, segment_bytes="1048576")
    for number in range(6):
        client.produce(topic, [(None, bytes(500_000), (), 1000 + 1000 * number)])
    for number in range(6):
        assert client.list_offset(topic, 1000 + 1000 * number).offset == number
        assert client.list_offset(topic, 1 + 1000 * number).offset == number
    assert client.list_offset(topic, MAX_TIMESTAMP).offset == 5
