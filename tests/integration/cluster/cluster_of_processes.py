"""A ZooKeeper member and three brokers as processes, with short leases to keep tests fast."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.raw_client import Api, RawClient

from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.testing.broker import BrokerProcess

LEASE_MS = 1_000
QUICK = {
    "broker.lease.ms": str(LEASE_MS),
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "1",
}
TIMEOUT_S = 40.0
POLL_S = 0.05
STORY_LINES = 40


class PartitionView(NamedTuple):
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def start_zookeeper(directory: Path) -> EnsembleMember:
    member = EnsembleMember(directory, 1, local_addresses(1, free_ports(3)))
    member.start()
    member.wait_until_serving()
    return member


class ClusterOfProcesses:
    def __init__(self, directory: Path, zookeeper: str, count: int = 3, **overrides: str) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self._overrides = {
            **QUICK,
            **{key.replace("_", "."): value for key, value in overrides.items()},
        }
        self.client_settings: dict[str, Any] = {}
        """librdkafka's settings for connections to the cluster."""
        self.brokers: dict[int, BrokerProcess] = {}
        for id in range(1, count + 1):
            self.add(id)
        self._admin: AdminClient | None = None

    def add(self, id: int, **overrides: str) -> BrokerProcess:
        """Add a broker without starting it."""
        config = {**self._overrides, "zookeeper.connect": self.zookeeper, "node.id": str(id)}
        config |= {key.replace("_", "."): value for key, value in overrides.items()}
        self.brokers[id] = BrokerProcess(self.directory / f"broker-{id}", overrides=config)
        return self.brokers[id]

    def start(self) -> None:
        """Start the brokers that are not running."""
        stopped = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in stopped:
            broker.start(wait=False)
        for broker in stopped:
            broker.wait_until_ready()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
            broker.close()

    # --------------------------------------------------------------------------- inspecting

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values() if each.port)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            # A short timeout, so that a paused broker does not delay calls that others could
            # answer.
            settings = {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 3_000}
            self._admin = AdminClient({**settings, "log_level": 0, **self.client_settings})
        return self._admin

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        reported = self.admin.list_topics(topic, timeout=10).topics[topic]
        return {
            index: PartitionView(each.leader, tuple(each.replicas), tuple(each.isrs))
            for index, each in sorted(reported.partitions.items())
        }

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=10).controller_id)

    def leader(self, topic: str, partition: int = 0) -> int:
        return wait_for(lambda: _positive(self.partitions(topic).get(partition)), "a leader").leader

    def leads(self, topic: str, partition: int, broker: int) -> bool:
        return self.partitions(topic)[partition].leader == broker

    def is_healthy(self) -> bool:
        """Return whether all brokers run and know each other, and every replica is in sync."""
        if not all(self._knows_all(broker) for broker in self.brokers.values()):
            return False
        reported = self.admin.list_topics(timeout=10)
        if (
            sorted(reported.brokers) != sorted(self.brokers)
            or reported.controller_id not in self.brokers
        ):
            return False
        return all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for topic in reported.topics.values()
            for partition in topic.partitions.values()
        )

    def _knows_all(self, broker: BrokerProcess) -> bool:
        """Return whether this broker knows all the others.

        Brokers, the controller included, learn of changes at different times."""
        host, _, port = broker.bootstrap.rpartition(":")
        return sorted(self._known_to(host, int(port))) == sorted(self.brokers)

    def _known_to(self, host: str, port: int) -> list[int]:
        """Return the IDs of the brokers that the broker with this address knows."""
        with RawClient(port, host) as client:
            reported = client.call(Api.METADATA, topics=[])
        return [each.node_id for each in reported.brokers]

    def heal(self) -> None:
        self.start()
        try:
            wait_for(self.is_healthy, "every replica in sync")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def story(self) -> str:
        """Describe what is unhealthy, with the last log lines of all brokers."""
        reported = self.admin.list_topics(timeout=10)
        lines = [f"controller {reported.controller_id}, brokers {sorted(reported.brokers)}"]
        lines += [
            f"{topic.topic}-{index}: leader {each.leader}, replicas {each.replicas}, "
            f"in sync {each.isrs}"
            for topic in reported.topics.values()
            for index, each in topic.partitions.items()
            if each.leader < 0 or len(each.isrs) < len(each.replicas)
        ]
        for id, broker in self.brokers.items():
            lines += [f"--- broker {id}:", *broker.log().splitlines()[-STORY_LINES:]]
        return "\n".join(lines)

    # ------------------------------------------------------------------------------ changing

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, **config: str
    ) -> None:
        configs = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, replicas, config=configs)
        # Not `admin`, whose short timeout would expire on a slow disk.
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        patient = AdminClient({**settings, **self.client_settings})
        made = patient.create_topics([new], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
        for future in made.values():
            future.result(TIMEOUT_S)

    def read_all(self, topic: str, expected: int = 0) -> dict[int, list[bytes]]:
        """Return the values by partition, in offset order, up to the ends of the logs."""
        with consumer_of(self.bootstrap, **self.client_settings) as consumer:
            ends = {
                index: _end_offset(consumer, TopicPartition(topic, index))
                for index in self.partitions(topic)
            }
            consumer.assign([TopicPartition(topic, index, 0) for index in ends])
            values: dict[int, list[bytes]] = {index: [] for index in ends}
            reached = {index for index, end in ends.items() if end == 0}
            deadline = time.monotonic() + TIMEOUT_S
            while len(reached) < len(ends):
                assert time.monotonic() < deadline, f"{topic} could not be read to {ends}"
                for message in consumer.consume(1000, 0.2):
                    if message.error():
                        continue
                    values[message.partition()].append(message.value())
                positions = consumer.position([TopicPartition(topic, index) for index in ends])
                reached |= {
                    each.partition for each in positions if each.offset >= ends[each.partition]
                }
            return values


@contextmanager
def consumer_of(bootstrap: str, **properties: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            # With `rebootstrap` librdkafka forgets brokers that are down. Once (2.16.1) it stopped
            # fetching after that, in a stable group that was behind; the cause is unknown.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in properties.items()},
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def wait_for(look: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Call `look` until it returns a true value, and return that."""
    deadline = time.monotonic() + timeout_s
    failure: Exception | None = None
    while True:
        try:
            seen = look()
        except Exception as error:
            seen, failure = None, error
        if seen:
            return seen
        assert time.monotonic() < deadline, f"no {what} after {timeout_s:g} s ({failure})"
        time.sleep(POLL_S)


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end offset, with retries: leaders may be moving, and librdkafka asks only once."""
    offsets = wait_for(
        lambda: consumer.get_watermark_offsets(partition, timeout=10), "answer of a leader"
    )
    return int(offsets[1])


def _positive(view: PartitionView | None) -> PartitionView | None:
    return view if view is not None and view.leader >= 0 else None
