"""Repeated kill -9 under load: no acknowledged record is lost, duplicated or out of order.

An idempotent librdkafka producer writes numbered records throughout. It notices the kills only as
broken connections, and retries. The broker is killed at a random moment, restarted on the same data
directory and port, and killed again. In the end the log is compared with the acknowledgements:

- every acknowledged record is at the offset that its acknowledgement named;
- the numbers in each partition grow by one, so nothing is missing, duplicated or out of order, even
  among records whose acknowledgement was lost with a connection."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.broker import BrokerProcess

PARTITIONS = 4
TOPIC = "numbers"
DEADLINE_S = 60.0
SMALL_SEGMENTS = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "512"}


class NumberedLoad:
    """Producer of 0, 1, 2 … in each partition, which keeps the acknowledgements."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """Acknowledged numbers by partition and offset."""
        self.failures: list[str] = []
        self.written = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 5_000,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                try:
                    self._producer.produce(
                        TOPIC, b"%d" % number + b"." * 200, partition=partition, callback=self._done
                    )
                    self.written += 1
                except BufferError:
                    # Retry at once: the next number must not overtake this one in the partition.
                    self._retry(partition, number)
            number += 1
            self._producer.poll(0)

    def _retry(self, partition: int, number: int) -> None:
        while True:
            self._producer.poll(0.01)
            try:
                self._producer.produce(
                    TOPIC, b"%d" % number + b"." * 200, partition=partition, callback=self._done
                )
            except BufferError:
                if self._stopping.is_set():
                    continue
            else:
                self.written += 1
                return

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, number = place_and_number(message)
        self.acknowledged[partition][offset] = number

    @property
    def count(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.values())

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        assert self._producer.flush(DEADLINE_S) == 0, "the producer could not finish"


def place_and_number(message: Message) -> tuple[int, int, int]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, int(value.split(b".")[0])


def read_all(bootstrap: str) -> dict[int, dict[int, int]]:
    """Return all numbers in the topic by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False}
    )
    ends = {}
    for partition in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)
        ends[partition] = end
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    found: dict[int, dict[int, int]] = {partition: {} for partition in ends}
    deadline = time.monotonic() + DEADLINE_S
    while any(end - 1 not in found[partition] for partition, end in ends.items() if end):
        assert time.monotonic() < deadline, "the log could not be read to its end"
        for message in consumer.consume(5_000, 0.5):
            error = message.error()
            assert error is None, error
            partition, offset, number = place_and_number(message)
            found[partition][offset] = number
    consumer.close()
    return found


def check(load: NumberedLoad, found: dict[int, dict[int, int]]) -> None:
    assert load.failures == []
    for partition, acknowledged in load.acknowledged.items():
        for offset, number in acknowledged.items():
            assert found[partition].get(offset) == number, (partition, offset, number)
    for partition, records in found.items():
        numbers = [records[offset] for offset in sorted(records)]
        assert sorted(records) == list(range(len(records))), f"partition {partition} has gaps"
        assert numbers == list(range(len(numbers))), f"partition {partition} is out of order"


def kill_rounds(rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    with BrokerProcess(overrides=SMALL_SEGMENTS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result(10)
        load = NumberedLoad(broker.bootstrap)
        for _ in range(rounds):
            before = load.count
            deadline = time.monotonic() + DEADLINE_S
            while load.count == before:
                assert time.monotonic() < deadline, "nothing is acknowledged any more"
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.3))
            broker.restart(kill=True)
        load.finish()
        assert load.count == load.written
        check(load, read_all(broker.bootstrap))


def test_records_acknowledged_before_a_kill_are_there_after_it() -> None:
    kill_rounds(4, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_kills_under_load_lose_nothing(seed: int) -> None:
    kill_rounds(20, seed)
