"""Fetch without sessions: limits, waits and epochs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, newest, read_batches, values

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.batch import iter_headers

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
UNKNOWN_TOPIC_ID = 100
LONG_MS = 15_000
"""A wait long enough for a test to notice."""


@pytest.fixture
def filled(client: RawClient, topic: str) -> str:
    """Produce ten batches of one record of a thousand bytes each."""
    client.create_topic(topic, 2)
    for number in range(10):
        client.produce(topic, [(None, b"%d" % number + bytes(999), (), number)])
    return topic


def sizes(records: Any) -> list[int]:
    return [header.size for header in iter_headers(bytes(records))]


def offsets(records: Any) -> list[int]:
    return [record.offset for record in read_batches(records)]


# ------------------------------------------------------------------------------------- limits


def test_every_offset_can_be_read_from(client: RawClient, filled: str) -> None:
    for offset in range(10):
        assert offsets(client.fetch(filled, offset).records) == list(range(offset, 10))
    answer = client.fetch(filled, 10)
    assert (answer.error_code, bytes(answer.records), answer.high_watermark) == (0, b"", 10)


@pytest.mark.parametrize("offset", [-1, -7, 11, 2**62])
def test_offsets_outside_the_log_are_out_of_range(
    client: RawClient, filled: str, offset: int
) -> None:
    started = time.monotonic()
    answer = client.fetch(filled, offset, max_wait_ms=LONG_MS)
    assert answer.error_code == OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset) == (-1, -1)
    assert answer.log_start_offset == -1
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_partitions_limit_holds(client: RawClient, filled: str) -> None:
    for limit, expected in ((3500, 3), (1200, 1), (100_000, 10)):
        found = client.fetch(filled, partition_max_bytes=limit).records
        assert len(offsets(found)) == expected


def test_the_requests_limit_holds(client: RawClient, filled: str) -> None:
    assert len(offsets(client.fetch(filled, max_bytes=3500).records)) == 3


def test_the_first_batch_comes_even_if_it_is_larger_than_every_limit(
    client: RawClient, filled: str
) -> None:
    for limit in (0, 1, 500):
        found = client.fetch(filled, 4, max_bytes=limit, partition_max_bytes=limit)
        assert offsets(found.records) == [4]


def test_one_large_batch_fills_the_answer(client: RawClient, topic: str) -> None:
    """The first partition with data gets at least one batch; the others have to wait."""
    client.create_topic(topic, 3)
    for partition in range(3):
        client.produce(topic, [(None, bytes(5000), (), 1)], partition)
    answer = fetch_all(client, topic, [0, 1, 2], max_bytes=1000)
    assert [len(sizes(each.records)) for each in answer] == [1, 0, 0]
    assert [each.high_watermark for each in answer] == [1, 1, 1]
    answer = fetch_all(client, topic, [2, 0, 1], max_bytes=6000)
    assert [each.partition_index for each in answer] == [2, 0, 1]
    assert [len(sizes(each.records)) for each in answer] == [1, 0, 0]


def fetch_all(client: RawClient, topic: str, partitions: list[int], **body: Any) -> list[Any]:
    asked = [
        {
            "partition": each,
            "fetch_offset": 0,
            "partition_max_bytes": 1 << 20,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
        }
        for each in partitions
    ]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **body}
    topics = [{"topic": topic, "partitions": asked}]
    answer = client.call(Api.FETCH, 12, **limits, session_epoch=-1, topics=topics)
    found: list[Any] = answer.responses[0].partitions
    return found


# -------------------------------------------------------------------------------------- waiting


def test_an_empty_fetch_waits_as_long_as_requested(client: RawClient, filled: str) -> None:
    started = time.monotonic()
    answer = client.fetch(filled, 10, max_wait_ms=300)
    assert 0.25 < time.monotonic() - started < 5
    assert (answer.error_code, bytes(answer.records)) == (0, b"")


def test_min_bytes_are_waited_for(client: RawClient, filled: str) -> None:
    started = time.monotonic()
    found = client.fetch(filled, 8, max_wait_ms=300, min_bytes=5000).records
    assert 0.25 < time.monotonic() - started < 5
    assert offsets(found) == [8, 9]


def test_what_is_there_is_answered_at_once(client: RawClient, filled: str) -> None:
    started = time.monotonic()
    client.fetch(filled, 0, max_wait_ms=LONG_MS, min_bytes=5000)
    client.fetch(filled, 10, max_wait_ms=0)
    client.fetch(filled, 10, max_wait_ms=LONG_MS, min_bytes=0)
    assert time.monotonic() - started < LONG_MS / 2000


def test_min_bytes_above_max_bytes_are_not_waited_for(client: RawClient, filled: str) -> None:
    started = time.monotonic()
    found = client.fetch(filled, max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=3500).records
    assert time.monotonic() - started < LONG_MS / 2000
    assert len(offsets(found)) == 3


def test_an_append_wakes_a_waiting_fetch(
    broker: BrokerProcess, client: RawClient, filled: str
) -> None:
    with RawClient(broker.port) as other:
        started = time.monotonic()
        waiting = send_fetch(other, filled, 10, min_bytes=1)
        client.assert_is_silent()
        client.produce(filled, [(None, b"new", (), 1)])
        (answer,) = other.receive(Api.FETCH, 12, waiting).responses[0].partitions
        assert time.monotonic() - started < LONG_MS / 2000
    assert (values(read_batches(answer.records)), answer.high_watermark) == ([b"new"], 11)


def test_appends_add_up_to_min_bytes(broker: BrokerProcess, client: RawClient, filled: str) -> None:
    with RawClient(broker.port) as other:
        waiting = send_fetch(other, filled, 10, min_bytes=3000)
        for number in range(3):
            client.produce(filled, [(None, b"%d" % number + bytes(1000), (), 1)])
        (answer,) = other.receive(Api.FETCH, 12, waiting).responses[0].partitions
    assert offsets(answer.records) == [10, 11, 12]


def test_a_delayed_fetch_fails_when_its_topic_is_deleted(
    broker: BrokerProcess, client: RawClient, filled: str
) -> None:
    with RawClient(broker.port) as other:
        waiting = send_fetch(other, filled, 10, min_bytes=1)
        client.assert_is_silent()
        assert client.delete_topic(filled) == 0
        (answer,) = other.receive(Api.FETCH, 12, waiting).responses[0].partitions
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_many_fetches_that_wait_are_all_woken(
    broker: BrokerProcess, client: RawClient, filled: str
) -> None:
    found: list[list[int]] = []

    def wait() -> None:
        with RawClient(broker.port) as other:
            answer = other.fetch(filled, 10, max_wait_ms=LONG_MS)
            found.append(offsets(answer.records))

    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    client.produce(filled, [(None, b"new", (), 1)])
    for thread in threads:
        thread.join(LONG_MS / 2000)
    assert found == [[10]] * 20


def send_fetch(client: RawClient, topic: str, offset: int, *, min_bytes: int) -> int:
    asked = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    return client.send(
        Api.FETCH,
        12,
        max_wait_ms=LONG_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
    )


# ---------------------------------------------------------------------------- errors and epochs


def test_unknown_topics_and_partitions_are_reported(client: RawClient, filled: str) -> None:
    assert client.fetch("nobody", max_wait_ms=LONG_MS).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch(filled, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    answer = client.call(
        Api.FETCH,
        session_epoch=-1,
        max_bytes=1000,
        topics=[{"topic_id": bytes(range(16)), "partitions": [asked]}],
    )
    assert answer.error_code == 0
    (topic,) = answer.responses
    assert topic.topic_id == bytes(range(16))
    assert topic.partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_leader_epochs_are_checked(client: RawClient, filled: str) -> None:
    assert client.fetch(filled, current_leader_epoch=0).error_code == 0
    assert client.fetch(filled, current_leader_epoch=1).error_code == UNKNOWN_LEADER_EPOCH
    found = client.list_offset(filled, -1, current_leader_epoch=1)
    assert (found.error_code, found.offset, found.timestamp) == (UNKNOWN_LEADER_EPOCH, -1, -1)
    assert client.list_offset(filled, -1, current_leader_epoch=0).error_code == 0


def test_a_follower_that_agrees_is_served(client: RawClient, filled: str) -> None:
    found = client.fetch(filled, 4, last_fetched_epoch=0)
    assert (found.error_code, offsets(found.records)) == (0, [4, 5, 6, 7, 8, 9])
    assert found.diverging_epoch.epoch == -1


def test_a_follower_of_an_epoch_that_never_was_is_out_of_range(
    client: RawClient, filled: str
) -> None:
    assert client.fetch(filled, 4, last_fetched_epoch=5).error_code == OFFSET_OUT_OF_RANGE


def test_a_follower_beyond_the_end_learns_where_it_diverges(client: RawClient, filled: str) -> None:
    found = client.fetch(filled, 12, last_fetched_epoch=0, max_wait_ms=LONG_MS)
    assert (found.error_code, bytes(found.records)) == (0, b"")
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 10)


def test_a_follower_of_an_empty_log_agrees(client: RawClient, filled: str) -> None:
    found = client.fetch(filled, 0, 1, last_fetched_epoch=0)
    assert (found.error_code, found.diverging_epoch.epoch) == (0, -1)


@pytest.mark.parametrize("version", [4, 9, 10, newest(Api.FETCH) - 6])
def test_a_topic_of_zstd_cannot_be_read_before_version_10(
    client: RawClient, topic: str, version: int
) -> None:
    client.create_topic(topic, compression_type="zstd")
    client.produce(topic, [(None, b"v", (), 1)])
    answer = client.fetch(topic, version=version)
    assert answer.error_code == (0 if version >= 10 else UNSUPPORTED_COMPRESSION_TYPE)
    assert len(offsets(answer.records)) == (1 if version >= 10 else 0)


def test_the_same_partition_twice_is_answered(client: RawClient, filled: str) -> None:
    assert len(fetch_all(client, filled, [0, 0])) >= 1


def test_a_fetch_of_nothing_is_answered(client: RawClient) -> None:
    answer = client.call(Api.FETCH, 12, max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=[])
    assert (answer.error_code, list(answer.responses)) == (0, [])
