"""Time from the deletion of ACLs until no broker of a cluster lets a streaming client do anything.

Three brokers and ZooKeeper run on this machine, and each broker leads one partition. Clients stream
through open connections: Ottla's producer and consumer, and confluent-kafka's. These stop at the
first refusal of any broker, so two more clients send the same requests to every broker until all of
them have refused. Each round gives the user of these clients its ACLs, waits until all of them have
sent to and received from each broker, and deletes the ACLs at one of the brokers.

The time begins before the request is sent. It ends when a client has received the last response
that accepts its record, or the last record that it may not read any more. All clients must be
refused.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.security.acl_broker import (
    PASSWORDS,
    acl,
    acl_properties,
    create_acls,
    delete_acls,
    described,
    fetch_request,
    log_in,
)
from tests.raw_client import Api, RawClient

from bench.measure import Figure
from ottla import Consumer, Producer, TopicPartition
from ottla.base.acl import AclBinding
from ottla.base.errors import ErrorCode
from ottla.client.errors import AuthorizationFailed
from ottla.client.producer.future import RecordFuture
from ottla.core.security.permissions import READ_TOPIC, WRITE_TOPIC

ROUNDS = 20
BUDGET_MS = 100.0
TOPIC = "shared"
PARTITIONS = 3
INTERVAL_S = 0.01
"""Time between two records of a producer to the same partition."""
QUIET_S = 0.3
"""Time for which a consumer that was refused must not receive anything."""
TIMEOUT_S = 30.0
RECORDS = [(b"k", b"v", (), 1_000)]
LISTENER = "SECURED"
USER = "alice"
_fork = multiprocessing.get_context("fork")


class Seen:
    """The last success, and the first refusal, of each partition."""

    def __init__(self, pipe: Connection) -> None:
        self.accepted: dict[int, float] = {}
        self.refused: dict[int, float] = {}
        self._pipe = pipe
        self._is_reported = False

    def accept(self, partition: int) -> None:
        self.accepted[partition] = time.monotonic()
        if not self._is_reported and len(self.accepted) == PARTITIONS:
            self._is_reported = True
            self._pipe.send("streaming")

    def refuse(self, partition: int) -> None:
        self.refused.setdefault(partition, time.monotonic())


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        zookeeper = start_zookeeper(Path(directory) / "zookeeper")
        cluster = ClusterOfProcesses(Path(directory) / "cluster", zookeeper.connect)
        for id in cluster.brokers:
            cluster.add(id, **acl_properties(LISTENER))
        try:
            cluster.start()
            yield from _figures(_measured(cluster))
        finally:
            cluster.close()
            zookeeper.kill()


def _figures(rounds: list[dict[str, float]]) -> Iterator[Figure]:
    for name in [*CLIENTS, "request"]:
        times = [each[name] for each in rounds]
        yield Figure(f"revocation: {name}, p50", median(times), "ms")
        budget = BUDGET_MS if name in CLIENTS else None
        yield Figure(f"revocation: {name}, max of {len(rounds)}", max(times), "ms", budget)
    late = [max(each[name] for name in CLIENTS) - each["request"] for each in rounds]
    yield Figure("revocation: any client after the response, p50", max(0.0, median(late)), "ms")
    yield Figure("revocation: any client after the response, max", max(0.0, *late), "ms")


def _measured(cluster: ClusterOfProcesses) -> list[dict[str, float]]:
    ports = [each.ports[LISTENER] for each in cluster.brokers.values()]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    admin = AdminClient(_settings(bootstrap, "admin"))
    configs = {"min.insync.replicas": "1"}
    layout = [[id] for id in cluster.brokers]
    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=layout, config=configs)
    wait_for(lambda: len(admin.list_topics(timeout=5).brokers) == len(ports), "brokers")
    for future in admin.create_topics([topic]).values():
        future.result(TIMEOUT_S)
    with _clients(bootstrap) as pipes:
        return [_round(pipes, ports, number) for number in range(ROUNDS)]


def _round(pipes: Mapping[str, Connection], ports: list[int], number: int) -> dict[str, float]:
    """Grant and revoke the permissions, and return the times in milliseconds."""
    bindings = [acl(each, TOPIC, principal=f"User:{USER}") for each in (READ_TOPIC, WRITE_TOPIC)]
    with log_in(ports[number % len(ports)], "admin") as admin:
        create_acls(admin, *bindings)
        for port in ports:
            wait_for(lambda at=port: _knows(at, bindings), "ACLs at every broker")
        for pipe in pipes.values():
            pipe.send("start")
        for name, pipe in pipes.items():
            assert _received(pipe, name) == "streaming"
        start = time.monotonic()
        delete_acls(admin, *bindings)
        times = {"request": (time.monotonic() - start) * 1000}
    for name, pipe in pipes.items():
        accepted: dict[int, float] = _received(pipe, name)
        times[name] = max(0.0, (max(accepted.values()) - start) * 1000)
    return times


def _knows(port: int, bindings: list[AclBinding]) -> bool:
    with log_in(port, "admin") as client:
        return set(bindings) <= described(client)


def _received(pipe: Connection, name: str) -> Any:
    assert pipe.poll(TIMEOUT_S), f"the {name} has not responded"
    return pipe.recv()


# ---------------------------------------------------------------------------------------- clients


@contextmanager
def _clients(bootstrap: str) -> Iterator[Mapping[str, Connection]]:
    """Start the clients in processes of their own, and one that writes what consumers read."""
    pipes: dict[str, Connection] = {}
    processes = [_fork.Process(target=_feed, args=(bootstrap,), daemon=True)]
    for name, work in CLIENTS.items():
        pipes[name], other = _fork.Pipe()
        processes.append(_fork.Process(target=_serve, args=(other, bootstrap, work), daemon=True))
    for each in processes:
        each.start()
    try:
        yield pipes
    finally:
        for each in processes:
            each.kill()
            each.join()


def _serve(pipe: Connection, bootstrap: str, work: Callable[[str, Seen], None]) -> None:
    while pipe.recv():
        seen = Seen(pipe)
        work(bootstrap, seen)
        pipe.send(seen.accepted)


def _settings(bootstrap: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def _feed(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {**_settings(bootstrap, "admin"), "acks": 1, "linger.ms": 0}
    )
    while True:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"fed", partition=partition)
        producer.poll(0)
        time.sleep(INTERVAL_S)


def _our_producer(bootstrap: str, seen: Seen) -> None:
    def done(partition: int, future: RecordFuture) -> None:
        error = future.exception()
        if error is None:
            seen.accept(partition)
        elif isinstance(error, AuthorizationFailed):
            seen.refuse(partition)

    with Producer(_settings(bootstrap, USER), acks=1, linger_ms=0) as producer:
        while len(seen.refused) < PARTITIONS:
            for partition in range(PARTITIONS):
                try:
                    future = producer.send(TOPIC, b"x", partition=partition)
                except AuthorizationFailed:  # it knows from the metadata
                    seen.refuse(partition)
                else:
                    future.add_done_callback(lambda each, index=partition: done(index, each))
            time.sleep(INTERVAL_S)


def _confluent_producer(bootstrap: str, seen: Seen) -> None:
    def done(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        partition = message.partition()
        assert partition is not None
        if error is None:
            seen.accept(partition)
        elif error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            seen.refuse(partition)

    settings = {**_settings(bootstrap, USER), "acks": 1, "linger.ms": 0, "log_level": 2}
    producer = confluent_kafka.Producer(settings)
    while len(seen.refused) < PARTITIONS:
        for partition in range(PARTITIONS):
            try:
                producer.produce(TOPIC, b"x", partition=partition, on_delivery=done)
            except confluent_kafka.KafkaException:  # it knows from the metadata
                seen.refuse(partition)
        producer.poll(0)
        time.sleep(INTERVAL_S)
    producer.purge()


def _our_consumer(bootstrap: str, seen: Seen) -> None:
    with Consumer(_settings(bootstrap, USER), auto_offset_reset="latest") as consumer:
        consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        while not _is_quiet(seen):
            try:
                for record in consumer.poll(0.05):
                    seen.accept(record.partition)
            except AuthorizationFailed:
                seen.refuse(0)


def _confluent_consumer(bootstrap: str, seen: Seen) -> None:
    settings = {**_settings(bootstrap, USER), "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "log_level": 2})
    end = confluent_kafka.OFFSET_END
    consumer.assign(
        [confluent_kafka.TopicPartition(TOPIC, index, end) for index in range(PARTITIONS)]
    )
    while not _is_quiet(seen):
        message = consumer.poll(0.05)
        if message is None:
            continue
        error, partition = message.error(), message.partition()
        if error is None and partition is not None:
            seen.accept(partition)
        elif error and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            seen.refuse(0)
    consumer.close()


def _produce_requests(bootstrap: str, seen: Seen) -> None:
    with _connections(bootstrap) as clients:
        while len(seen.refused) < PARTITIONS:
            for partition, client in enumerate(clients):
                code = client.produce(TOPIC, RECORDS, partition, acks=1).error_code
                _note(seen, partition, code)
            time.sleep(INTERVAL_S)


def _fetch_requests(bootstrap: str, seen: Seen) -> None:
    """Fetch in one session for each broker, always from the start of the partition."""
    with _connections(bootstrap) as clients:
        (topic,) = clients[0].call(Api.METADATA, topics=[{"name": TOPIC}]).topics
        sessions: dict[int, int] = {}
        epoch = 0
        while len(seen.refused) < PARTITIONS:
            for partition, client in enumerate(clients):
                session = sessions.get(partition, 0), epoch
                request = dict(fetch_request(topic.topic_id, session=session))
                wanted = {"partition": partition, "partition_max_bytes": 1_000}
                request["topics"][0]["partitions"][0].update(wanted)
                answer = client.call(Api.FETCH, **request)
                sessions[partition] = answer.session_id
                for response in answer.responses:
                    _note(seen, partition, response.partitions[0].error_code)
            epoch += 1
            time.sleep(INTERVAL_S)


def _note(seen: Seen, partition: int, code: int) -> None:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        seen.refuse(partition)
    elif code == ErrorCode.NONE:
        seen.accept(partition)


@contextmanager
def _connections(bootstrap: str) -> Iterator[list[RawClient]]:
    """Provide a connection to each broker, in the order of the partitions that they lead."""
    clients = [log_in(int(each.rpartition(":")[2]), USER) for each in bootstrap.split(",")]
    try:
        yield clients
    finally:
        for each in clients:
            each.close()


def _is_quiet(seen: Seen) -> bool:
    """Return whether a consumer was refused, and has received nothing for a while."""
    if not seen.refused:
        return False
    return time.monotonic() > max(*seen.refused.values(), *seen.accepted.values()) + QUIET_S


CLIENTS: Mapping[str, Callable[[str, Seen], None]] = {
    "Ottla's producer": _our_producer,
    "Ottla's consumer": _our_consumer,
    "confluent-kafka's producer": _confluent_producer,
    "confluent-kafka's consumer": _confluent_consumer,
    "Produce requests": _produce_requests,
    "Fetch requests": _fetch_requests,
}
