"""Helpers for group members in tests: listeners, reading, polling in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.integration.groups.consumers import ConsumerProcess
from tests.raw_client import RawClient

from ottla import Consumer, RebalanceListener, Record, TopicPartition

TIMEOUT_S = 20.0


def produce(client: RawClient, topic: str, partitions: int = 6) -> None:
    """Produce one record to each partition."""
    now = int(time.time() * 1000)  # a broker may delete old records
    for partition in range(partitions):
        assert client.produce(topic, [(None, b"v", (), now)], partition).error_code == 0


def received(*consumers: ConsumerProcess) -> list[tuple[int, int]]:
    return sorted(record[:2] for consumer in consumers for record in consumer.records)


class Heard(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    def hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        self.events.append((what, [tp.partition for tp in partitions]))

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.hear("assigned", partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.hear("revoked", partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.hear("lost", partitions)


@contextmanager
def polling(consumer: Consumer) -> Iterator[list[Record]]:
    """Poll in a background thread while the block runs, and yield the list of records."""
    records: list[Record] = []
    failures: list[BaseException] = []
    stopping = threading.Event()

    def run() -> None:
        try:
            while not stopping.is_set():
                records.extend(consumer.poll(0.05))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield records
    finally:
        stopping.set()
        thread.join(TIMEOUT_S)
    assert not failures, failures


def poll_until(consumer: Consumer, condition: Callable[[], object]) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        found += consumer.poll(0.02)
    return found
