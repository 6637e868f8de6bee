"""Topics of a broker under test, through confluent-kafka, an independent client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 120.0
POLL_S = 0.05
MOST_PROBED = 16
_numbers = count()
Address = tuple[str, int]


def create(bootstrap: str, name: str, partitions: int, replicas: int = 1) -> dict[int, Address]:
    """Create a topic, and return the address of the leader of each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    deadline = time.monotonic() + TIMEOUT_S
    for future in admin.create_topics(
        [NewTopic(name, partitions, replicas)], operation_timeout=60, request_timeout=90
    ).values():
        future.result(TIMEOUT_S)
    while True:
        found = leaders(bootstrap, name)
        if len(found) == partitions:
            _wait_until_led(bootstrap, name, min(partitions, MOST_PROBED))
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has leaders for {len(found)} of {partitions} partitions")
        time.sleep(POLL_S)


def _wait_until_led(bootstrap: str, name: str, partitions: int) -> None:
    """Wait until the leaders serve their partitions; metadata may name them before they do."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 2})
    deadline, partition = time.monotonic() + TIMEOUT_S, 0
    while partition < partitions:
        try:
            consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=60)
            partition += 1
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
    consumer.close()


def leaders(bootstrap: str, name: str) -> dict[int, Address]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    metadata = admin.list_topics(name, timeout=30)
    return {
        id: (metadata.brokers[each.leader].host, metadata.brokers[each.leader].port)
        for id, each in metadata.topics[name].partitions.items()
        if each.leader in metadata.brokers
    }


def leader_id(bootstrap: str, name: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    return int(admin.list_topics(name, timeout=30).topics[name].partitions[partition].leader)


def wait_until_in_sync(bootstrap: str, name: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            partitions = admin.list_topics(name, timeout=30).topics[name].partitions
            if all(len(each.isrs) == replicas for each in partitions.values()):
                return
        except KafkaException:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"replicas of {name} are not in sync")
        time.sleep(POLL_S)


def delete(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in admin.delete_topics(list(names)).values():
        future.result(TIMEOUT_S)


class Topic(NamedTuple):
    name: str
    leaders: dict[int, Address]


@contextmanager
def topic(bootstrap: str, kind: str, partitions: int, replicas: int = 1) -> Iterator[Topic]:
    """Provide a topic for one measurement.

    Names are unique, because deletion takes time.
    """
    name = f"{kind}-{next(_numbers)}"
    found = create(bootstrap, name, partitions, replicas)
    try:
        yield Topic(name, found)
    finally:
        delete(bootstrap, name)
