"""A consumer that drains higher priorities first."""

from __future__ import annotations

import pytest
from tests.raw_client import RawClient

from ottla import ClientError, Consumer, Producer, TopicPartition
from ottla.client.priority import priority_of, priority_ranges
from ottla.testing.broker import BrokerProcess

TIMEOUT_S = 20.0
LEVELS = 3
PARTITIONS = 6
FAST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "priority_levels": LEVELS}


def fill(client: RawClient, topic: str, priority: int, count: int = 20) -> None:
    for partition in priority_ranges(PARTITIONS, LEVELS)[priority]:
        client.produce(topic, [(None, b"x" * 100, (), 1)] * count, partition)


def level(partition: int) -> int:
    return priority_of(partition, priority_ranges(PARTITIONS, LEVELS))


def drain(consumer: Consumer, count: int, at_a_time: int = 7) -> list[int]:
    """Return the priorities of the next records."""
    found: list[int] = []
    while len(found) < count:
        records = consumer.poll(TIMEOUT_S, max_records=min(at_a_time, count - len(found)))
        assert records
        found += [level(record.partition) for record in records]
    return found


def test_higher_priorities_are_drained_first(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, PARTITIONS, retention_ms="-1")
    for priority in (2, 1, 0):
        fill(client, topic, priority)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, number) for number in reversed(range(PARTITIONS))])
        assert drain(consumer, 60) == [0] * 40 + [1] * 20
        fill(client, topic, 0, 1)
        seen = drain(consumer, 62)
        assert sorted(seen) == [0] * 2 + [1] * 20 + [2] * 40
        rest = [each for each in seen if each]
        assert rest == sorted(rest)


def test_what_comes_later_overtakes_what_waits(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    """This holds even if fetches are so small that most waiting records are still at the broker."""
    client.create_topic(topic, PARTITIONS, retention_ms="-1")
    fill(client, topic, 2, 50)
    options = {**FAST, "max_partition_fetch_bytes": 500}
    with Consumer(broker.bootstrap, **options) as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        assert drain(consumer, 10) == [2] * 10
        fill(client, topic, 1, 5)
        fill(client, topic, 0, 5)
        high = TopicPartition(topic, 0)
        while consumer.lag(high):  # until the consumer knows of them, at most one fetch later
            drain(consumer, 1)
        seen = drain(consumer, 20)
        assert 2 not in seen[seen.index(1) :][: seen.count(1)], "priority 1 before 2"
        assert consumer.lag(TopicPartition(topic, 2)) == 0


def test_paused_partitions_do_not_delay_others(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, PARTITIONS, retention_ms="-1")
    fill(client, topic, 0)
    fill(client, topic, 2)
    high = [TopicPartition(topic, number) for number in priority_ranges(PARTITIONS, LEVELS)[0]]
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        consumer.pause(*high)
        assert drain(consumer, 40) == [2] * 40
        consumer.resume(*high)
        assert drain(consumer, 40) == [0] * 40


def test_our_producer_and_consumer_agree_on_priorities(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    from ottla import PriorityPartitioner

    client.create_topic(topic, PARTITIONS, retention_ms="-1")
    with Producer(broker.bootstrap, partitioner=PriorityPartitioner(LEVELS)) as producer:
        for number in range(30):
            producer.send(topic, b"%d" % (number % LEVELS), priority=number % LEVELS)
        producer.flush()
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, number) for number in range(PARTITIONS)])
        seen: list[int] = []
        while len(seen) < 30:
            seen += [int(record.value) for record in consumer.poll(TIMEOUT_S)]
    assert seen == [0] * 10 + [1] * 10 + [2] * 10


def test_a_topic_with_too_few_partitions_is_an_error(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, 2, retention_ms="-1")
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(ClientError, match="at least 3 partitions") as caught:
            consumer.poll(TIMEOUT_S)
        assert caught.value.topic == topic
