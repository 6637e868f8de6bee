"""Idempotent producers: retries, sequence numbers out of order, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, eventually, produce_body, values

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.builder import build_batch

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_REQUEST = 42
MAX_SEQUENCE = 2**31 - 1


class Producer:
    """A producer that sends single batches of numbered records."""

    def __init__(self, client: RawClient, topic: str, producer_id: int | None = None) -> None:
        self.client = client
        self.topic = topic
        self.id = client.new_producer() if producer_id is None else producer_id

    def send(self, sequence: int, count: int = 1, *, epoch: int = 0) -> Any:
        records = [(b"k", b"%d" % (sequence + number), (), 1000) for number in range(count)]
        return self.client.produce(
            self.topic, records, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence
        )

    def accepted(self, sequence: int, count: int = 1, *, epoch: int = 0) -> int:
        answer = self.send(sequence, count, epoch=epoch)
        assert answer.error_code == 0, answer
        base_offset: int = answer.base_offset
        return base_offset


@pytest.fixture
def producer(client: RawClient, topic: str) -> Producer:
    client.create_topic(topic)
    return Producer(client, topic)


def test_a_retry_of_one_of_the_last_five_batches_is_answered_as_the_first_time(
    producer: Producer,
) -> None:
    offsets = [producer.accepted(number * 3, 3) for number in range(5)]
    for number in (4, 0, 2, 3, 1):
        assert producer.accepted(number * 3, 3) == offsets[number]
    assert producer.client.offsets(producer.topic) == (0, 15)


def test_an_older_retry_is_reported_as_a_duplicate(producer: Producer) -> None:
    for number in range(6):
        producer.accepted(number)
    answer = producer.send(0)
    assert answer.error_code == DUPLICATE_SEQUENCE_NUMBER
    assert producer.client.offsets(producer.topic) == (0, 6)


def test_a_gap_is_out_of_order(producer: Producer) -> None:
    producer.accepted(0, 2)
    assert producer.send(3).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.accepted(2) == 2
    assert producer.accepted(3) == 3


def test_a_retry_with_other_bounds_is_no_retry(producer: Producer) -> None:
    producer.accepted(0, 4)
    for sequence, count in ((0, 3), (1, 3), (2, 4)):
        answer = producer.send(sequence, count)
        assert answer.error_code in (OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER)
    assert producer.client.offsets(producer.topic) == (0, 4)


def test_sequences_continue_from_zero_after_the_largest(producer: Producer) -> None:
    producer.accepted(MAX_SEQUENCE - 1)
    producer.accepted(MAX_SEQUENCE)
    producer.accepted(0)
    assert producer.send(0).base_offset == 2
    assert producer.client.offsets(producer.topic) == (0, 3)


def test_a_batch_may_lie_across_the_largest_sequence(producer: Producer) -> None:
    producer.accepted(MAX_SEQUENCE - 1, 3)
    producer.accepted(1)
    assert producer.accepted(MAX_SEQUENCE - 1, 3) == 0


def test_an_older_epoch_is_fenced_by_a_newer_one(producer: Producer) -> None:
    producer.accepted(0)
    producer.accepted(0, epoch=1)
    assert producer.send(1, epoch=0).error_code == INVALID_PRODUCER_EPOCH
    assert producer.send(0, epoch=0).error_code == INVALID_PRODUCER_EPOCH
    producer.accepted(1, epoch=1)


def test_a_new_epoch_begins_with_sequence_zero(producer: Producer) -> None:
    producer.accepted(0)
    assert producer.send(1, epoch=1).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.accepted(0, epoch=1)


def test_a_producer_that_the_partition_does_not_know_may_begin_anywhere(
    producer: Producer,
) -> None:
    """Retention may have removed the producer's earlier records."""
    assert producer.accepted(17) == 0


def test_partitions_and_producers_do_not_touch_each_other(client: RawClient, topic: str) -> None:
    client.create_topic(topic, 2)
    one, other = Producer(client, topic), Producer(client, topic)
    assert one.id != other.id
    one.accepted(0)
    other.accepted(0)
    one.accepted(1)
    answer = client.produce(
        topic, [(b"k", b"v", (), 1)], 1, producer_id=one.id, producer_epoch=0, base_sequence=0
    )
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_retry_in_the_same_flight_is_recognised(client: RawClient, topic: str) -> None:

    client.create_topic(topic)
    batch = build_batch(
        [(b"k", b"v", (), 1)], producer_id=client.new_producer(), producer_epoch=0, base_sequence=0
    )
    sent = [client.send(Api.PRODUCE, 9, **produce_body({topic: {0: batch}})) for _ in range(3)]
    answers = [client.receive(Api.PRODUCE, 9, each) for each in sent]
    found = [each.responses[0].partition_responses[0] for each in answers]
    assert [(each.error_code, each.base_offset) for each in found] == [(0, 0)] * 3
    assert client.offsets(topic) == (0, 1)


def test_half_an_identity_is_an_invalid_request(client: RawClient) -> None:
    for producer_id, epoch in ((5, -1), (-1, 5)):
        answer = client.call(
            Api.INIT_PRODUCER_ID,
            transactional_id=None,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert answer.error_code == INVALID_REQUEST
    assert client.call(Api.INIT_PRODUCER_ID, transactional_id="").error_code == INVALID_REQUEST


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True) as process:
        yield process


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
def test_producers_are_known_after_a_restart(
    own_broker: BrokerProcess, topic: str, kill: bool
) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic(topic)
        first = Producer(client, topic)
        fenced = Producer(client, topic)
        for number in range(4):
            first.accepted(number * 2, 2)
        fenced.accepted(0, epoch=3)
    own_broker.restart(kill=kill)
    with RawClient(own_broker.port) as client:
        first = Producer(client, topic, first.id)
        assert first.accepted(6, 2) == 6  # the last batch is recognised as a retry
        assert first.send(9).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert first.accepted(8) == 9
        fenced = Producer(client, topic, fenced.id)
        assert fenced.send(0, epoch=2).error_code == INVALID_PRODUCER_EPOCH
        assert client.new_producer() > fenced.id
        numbers = [b"%d" % number for number in range(8)]
        assert values(client.records(topic)) == [*numbers, b"0", b"8"]


def test_silent_producers_are_forgotten() -> None:
    overrides = {
        "producer.id.expiration.ms": "100",
        "producer.id.expiration.check.interval.ms": "50",
    }
    with BrokerProcess(overrides=overrides) as process, RawClient(process.port) as client:
        client.create_topic("t")
        producer = Producer(client, "t")
        producer.accepted(0)
        topics = [{"name": "t", "partition_indexes": [0]}]

        def known() -> list[Any]:
            answer = client.call(Api.DESCRIBE_PRODUCERS, topics=topics)
            found: list[Any] = answer.topics[0].partitions[0].active_producers
            return found

        eventually(known, lambda found: not found)
        producer.accepted(5)
