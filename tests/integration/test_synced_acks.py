"""`log.flush.acks.all`: an acknowledged record is on disk, and no client reads one that is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.raw_client import Api, RawClient, eventually, produce_body, values

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.builder import build_batch


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides={"log.flush.acks.all": "true"}) as process:
        yield process


@pytest.mark.parametrize("acks", [-1, 1])
def test_records_are_acknowledged_and_readable(client: RawClient, topic: str, acks: int) -> None:
    client.create_topic(topic)
    for number in range(20):
        answer = client.produce(topic, [(None, b"%d" % number, (), 1)], acks=acks)
        assert (answer.error_code, answer.base_offset) == (0, number)
    eventually(lambda: client.offsets(topic)[1], lambda end: end == 20)
    assert values(client.records(topic)) == [b"%d" % number for number in range(20)]


def test_an_acknowledged_record_is_readable_at_once(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    for number in range(20):
        client.produce(topic, [(None, b"%d" % number, (), 1)])
        assert client.fetch(topic).high_watermark == number + 1


def test_many_in_flight_are_answered_in_order(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    batches = [build_batch([(None, b"%d" % number, (), 1)]) for number in range(100)]
    sent = [client.send(Api.PRODUCE, 9, **produce_body({topic: {0: batch}})) for batch in batches]
    answers = [client.receive(Api.PRODUCE, 9, each) for each in sent]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(100))


def test_a_waiting_fetch_is_woken_by_the_sync(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000}
    with RawClient(broker.port) as other:
        waiting = other.send(
            Api.FETCH, 11, max_wait_ms=15_000, min_bytes=1, max_bytes=10_000, session_epoch=-1,
            topics=[{"topic": topic, "partitions": [asked]}],
        )  # fmt: skip
        client.assert_is_silent()
        client.produce(topic, [(None, b"v", (), 1)])
        answer = other.receive(Api.FETCH, 11, waiting)
    assert answer.responses[0].partitions[0].high_watermark == 1


def test_a_retry_of_what_is_synced_is_answered(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    identity = {"producer_id": client.new_producer(), "producer_epoch": 0, "base_sequence": 0}
    for _ in range(3):
        answer = client.produce(topic, [(None, b"v", (), 1)], **identity)
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_acknowledged_records_survive_kill() -> None:
    with BrokerProcess(overrides={"log.flush.acks.all": "true"}) as own:
        with RawClient(own.port) as client:
            client.create_topic("t", 3)
            for number in range(30):
                client.produce("t", [(None, b"%d" % number, (), 1)], number % 3)
        own.restart(kill=True)
        with RawClient(own.port) as client:
            for partition in range(3):
                expected = [b"%d" % number for number in range(partition, 30, 3)]
                assert values(client.records("t", 0, partition)) == expected
