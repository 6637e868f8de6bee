"""Transactions over partitions led by three brokers, with brokers killed in between.

A read_committed consumer sees each transaction completely and exactly once, or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any

import confluent_kafka
import pytest
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    consumer_of,
    wait_for,
)

import ottla
from ottla.core.group.hashing import partition_for
from ottla.testing.broker import BrokerProcess

PARTITIONS = 3
ROUNDS = 3
CHAOS_ROUNDS = 30
TIMEOUT_S = 60.0
SESSION_TIMEOUT_S = 45.0
"""Session timeout of librdkafka.

A group waits this long for a member that could not leave because its coordinator was down."""
Victim = Callable[[ClusterOfProcesses, str, str], int]


# ---------------------------------------------------------------------------------- the clients


class Confluent:
    """A client that uses version 1 of the protocol."""

    def __init__(self, bootstrap: str, id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": id,
                "transaction.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 200,
                "metadata.recovery.strategy": "none",  # see consumer_of
                "log_level": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0

    def send_offsets(self, consumer: confluent_kafka.Consumer) -> None:
        offsets = consumer.position(consumer.assignment())
        group = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def give_up(self, error: confluent_kafka.KafkaException) -> None:
        """Abort the transaction if the error requires it."""
        if not error.args[0].txn_requires_abort():
            raise error
        self.abort()

    def close(self) -> None:
        """Drop the producer, which ends with its last reference."""


class Ottla:
    """A client that uses version 2 of the protocol."""

    def __init__(self, bootstrap: str, id: str) -> None:
        self._producer = ottla.Producer(bootstrap, transactional_id=id)

    def begin(self) -> None:
        self._block = self._producer.transaction()
        self._block.__enter__()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush()

    def commit(self) -> None:
        self._block.__exit__(None, None, None)

    def abort(self) -> None:
        error = GivenUp()
        self._block.__exit__(GivenUp, error, None)

    def close(self) -> None:
        self._producer.close()


class GivenUp(Exception):
    """The reason to abort a transaction."""


CLIENTS = [Confluent, Ottla]
Client = Any


def coordinator_of(cluster: ClusterOfProcesses, id: str, topic: str) -> int:
    described = cluster.admin.list_topics("__transaction_state", timeout=10)
    partitions = described.topics["__transaction_state"].partitions
    index = partition_for(id, len(partitions))
    return int(partitions[index].leader)


def leader_of(cluster: ClusterOfProcesses, id: str, topic: str) -> int:
    """Return the leader of a partition in the transaction that is not also its coordinator."""
    coordinator = coordinator_of(cluster, id, topic)
    return next(
        view.leader for view in cluster.partitions(topic).values() if view.leader != coordinator
    )


def committed(cluster: ClusterOfProcesses, topic: str) -> list[set[bytes]]:
    """Return the values that a read_committed consumer sees, by partition, without duplicates."""
    found = cluster.read_all(topic)
    for partition, values in found.items():
        assert len(values) == len(set(values)), f"{topic}-{partition} has something twice"
    return [set(values) for _, values in sorted(found.items())]


# -------------------------------------------------------------------------------------- atomicity


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_over_all_brokers_is_committed_or_not(
    cluster: ClusterOfProcesses, topic: str, client: Client
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    wait_for(
        lambda: len({view.leader for view in cluster.partitions(topic).values()}) == 3,
        "partitions led by all brokers",
    )
    producer = client(cluster.bootstrap, f"id-{topic}")
    expected = set()
    for number in range(20):
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(topic, partition, b"%d" % number)
        if number % 3 == 2:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
            expected.add(b"%d" % number)
    producer.close()
    assert committed(cluster, topic) == [expected] * PARTITIONS


def transact_while_brokers_die(
    cluster: ClusterOfProcesses, topic: str, client: Client, victim: Victim, rounds: int
) -> None:
    cluster.create_topic(topic, partitions=PARTITIONS)
    id = f"id-{topic}"
    producer = client(cluster.bootstrap, id)
    numbers, expected = count(), set()
    for _ in range(rounds):
        killed: BrokerProcess | None = None
        while True:
            value = b"%d" % next(numbers)
            producer.begin()
            try:
                for partition in range(PARTITIONS):
                    producer.send(topic, partition, value)
                producer.flush()
                if killed is None:
                    killed = cluster.brokers[victim(cluster, id, topic)]
                    killed.kill()
                producer.commit()
            except ottla.TransactionAborted:
                continue
            except confluent_kafka.KafkaException as error:
                producer.give_up(error)
                continue
            expected.add(value)
            break
        cluster.heal()
    producer.close()
    assert committed(cluster, topic) == [expected] * PARTITIONS


VICTIMS = [coordinator_of, leader_of]


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_all_or_nothing_when_a_broker_dies_in_a_transaction(
    cluster: ClusterOfProcesses, topic: str, client: Client, victim: Victim
) -> None:
    transact_while_brokers_die(cluster, topic, client, victim, rounds=1)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_all_or_nothing_when_many_brokers_die(
    cluster: ClusterOfProcesses, topic: str, client: Client, victim: Victim
) -> None:
    transact_while_brokers_die(cluster, topic, client, victim, CHAOS_ROUNDS)


# ----------------------------------------------------------------- consume, transform, produce


def copy_while_brokers_die(cluster: ClusterOfProcesses, topic: str, rounds: int) -> None:
    """Copy records and commit their offsets in transactions while brokers die.

    Each record must be copied exactly once."""
    source, target = f"{topic}-source", f"{topic}-target"
    cluster.create_topic(source, partitions=PARTITIONS)
    cluster.create_topic(target, partitions=PARTITIONS)
    id, group, per_round = f"copier-{topic}", f"group-{topic}", 30
    writer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    total = 2 * rounds * per_round  # a round may copy more than its share
    for number in range(total):
        writer.produce(source, b"%d" % number, partition=number % PARTITIONS)
    assert writer.flush(TIMEOUT_S) == 0
    for round in range(rounds):
        with consumer_of(cluster.bootstrap, group_id=group) as consumer:
            consumer.subscribe([source])
            copied, victim = 0, None
            producer = Confluent(cluster.bootstrap, id)
            while copied < per_round:
                messages = wait_for(
                    lambda: some_of(consumer), f"records of {source}", SESSION_TIMEOUT_S + TIMEOUT_S
                )
                producer.begin()
                for message in messages:
                    producer.send(target, message.partition(), message.value())
                try:
                    producer.send_offsets(consumer)
                except confluent_kafka.KafkaException:
                    assert has_timed_out(cluster, id)
                    break  # librdkafka waited too long, see below; the next producer continues
                if victim is None and copied + len(messages) >= per_round // 2:
                    victim = VICTIMS[round % 2](cluster, id, target)
                    cluster.brokers[victim].kill()
                try:
                    producer.commit()
                except confluent_kafka.KafkaException as error:
                    producer.give_up(error)
                    break  # continue from the committed offsets
                copied += len(messages)
        cluster.heal()
    expected = {b"%d" % number for number in range(total)}
    finish_copy(cluster, source, target, id, group)
    assert set().union(*committed(cluster, target)) == expected


def has_timed_out(cluster: ClusterOfProcesses, id: str) -> bool:
    """Return whether a broker aborted a transaction because of transaction.timeout.ms."""
    line = re.compile(rf"Aborting the transaction of transactional id '{id}': .* its timeout")
    return any(line.search(broker.log()) for broker in cluster.brokers.values())


def some_of(consumer: confluent_kafka.Consumer) -> list[confluent_kafka.Message]:
    return [each for each in consumer.consume(10, 1.0) if each.error() is None]


def finish_copy(cluster: ClusterOfProcesses, source: str, target: str, id: str, group: str) -> None:
    """Copy the rest, until the group's offsets are at the end of the source."""
    producer = Confluent(cluster.bootstrap, id)
    with consumer_of(cluster.bootstrap, group_id=group, enable_partition_eof=True) as consumer:
        consumer.subscribe([source])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            batch = consumer.consume(100, 1.0)
            ended |= {each.partition() for each in batch if each.error() is not None}
            messages = [each for each in batch if each.error() is None]
            if messages:
                producer.begin()
                for message in messages:
                    producer.send(target, message.partition(), message.value())
                producer.send_offsets(consumer)
                producer.commit()


# Long runs only: librdkafka's send_offsets_to_transaction may hang despite its timeout when a
# coordinator dies (seen without any request of its own on a connection), until the transaction
# times out.
@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_records_are_copied_exactly_once_while_many_brokers_die(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    copy_while_brokers_die(cluster, topic, CHAOS_ROUNDS)
