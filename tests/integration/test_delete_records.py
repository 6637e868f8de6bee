"""DeleteRecords, whose effect survives restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, eventually, read_batches, values

from ottla.testing.broker import BrokerProcess

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
POLICY_VIOLATION = 44


def delete(client: RawClient, topic: str, offset: int, partition: int = 0) -> Any:
    partitions = [{"partition_index": partition, "offset": offset}]
    topics = [{"name": topic, "partitions": partitions}]
    answer = client.call(Api.DELETE_RECORDS, topics=topics, timeout_ms=10_000)
    return answer.topics[0].partitions[0]


@pytest.fixture
def filled(client: RawClient, topic: str) -> str:
    client.create_topic(topic)
    fill(client, topic)
    return topic


def fill(client: RawClient, topic: str) -> None:
    for number in range(4):
        client.produce(topic, [(None, b"%d" % (number * 3 + each), (), 1) for each in range(3)])


def test_what_is_before_the_offset_is_gone(client: RawClient, filled: str) -> None:
    answer = delete(client, filled, 4)
    assert (answer.error_code, answer.low_watermark) == (0, 4)
    assert client.offsets(filled) == (4, 12)
    assert client.fetch(filled, 3).error_code == OFFSET_OUT_OF_RANGE
    found = client.fetch(filled, 4)
    assert found.log_start_offset == 4
    assert values(record for record in read_batches(found.records) if record.offset >= 4) == [
        b"%d" % number for number in range(4, 12)
    ]


def test_minus_one_is_everything(client: RawClient, filled: str) -> None:
    answer = delete(client, filled, -1)
    assert (answer.error_code, answer.low_watermark) == (0, 12)
    assert client.offsets(filled) == (12, 12)
    assert client.produce(filled, [(None, b"next", (), 1)]).base_offset == 12
    assert values(client.records(filled, 12)) == [b"next"]


def test_an_offset_before_the_start_changes_nothing(client: RawClient, filled: str) -> None:
    delete(client, filled, 6)
    answer = delete(client, filled, 2)
    assert (answer.error_code, answer.low_watermark) == (0, 6)


@pytest.mark.parametrize("offset", [13, -2, 2**62])
def test_offsets_outside_the_log_are_out_of_range(
    client: RawClient, filled: str, offset: int
) -> None:
    answer = delete(client, filled, offset)
    assert (answer.error_code, answer.low_watermark) == (OFFSET_OUT_OF_RANGE, -1)
    assert client.offsets(filled) == (0, 12)


def test_unknown_partitions_are_reported(client: RawClient, filled: str) -> None:
    assert delete(client, "nobody", 0).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert delete(client, filled, 0, 5).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_only_compacted_refuses(client: RawClient, topic: str) -> None:
    client.create_topic(topic, cleanup_policy="compact")
    client.produce(topic, [(b"k", b"v", (), 1)])
    assert delete(client, topic, 1).error_code == POLICY_VIOLATION
    client.alter_topic(topic, cleanup_policy="compact,delete")
    assert delete(client, topic, 1).error_code == 0


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True) as process:
        yield process


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
@pytest.mark.parametrize("offset", [5, -1])
def test_deleted_records_do_not_come_back(
    own_broker: BrokerProcess, kill: bool, offset: int
) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        fill(client, "t")
        start = delete(client, "t", offset).low_watermark
    own_broker.restart(kill=kill)
    with RawClient(own_broker.port) as client:
        assert client.offsets("t") == (start, 12)
        assert client.produce("t", [(None, b"next", (), 1)]).base_offset == 12
        expected = [*(b"%d" % number for number in range(start, 12)), b"next"]
        assert values(client.records("t", start)) == expected


def test_deleted_records_do_not_come_back_after_a_start_that_was_refused(
    own_broker: BrokerProcess,
) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        fill(client, "t")
        delete(client, "t", 5)
    own_broker.stop()
    other = BrokerProcess(own_broker.data_dir, overrides={"node.id": "7"})
    try:
        assert other.start(wait=False).wait() == 1, other.log()
    finally:
        other.close()
    own_broker.start()
    with RawClient(own_broker.port) as client:
        assert client.offsets("t") == (5, 12)


def test_segments_without_records_are_removed_from_the_disk() -> None:
    overrides = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        client.create_topic("t", segment_bytes="1048576", file_delete_delay_ms="0")
        now_ms = int(time.time() * 1000)
        for _ in range(6):
            client.produce("t", [(None, bytes(600_000), (), now_ms)])
        directory = broker.data_dir / "t-0"
        assert len(list(directory.glob("*.log"))) == 6
        delete(client, "t", 4)
        eventually(lambda: sorted(directory.glob("*.log*")), lambda files: len(files) == 2)
        assert client.offsets("t") == (4, 6)
