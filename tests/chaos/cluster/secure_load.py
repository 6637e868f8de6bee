"""Clients of a secure cluster, each in a thread, which record what they did and each failure.

OttlaLoad    the load of `tests.integration.cluster.load`, with Ottla's producer
Copier       copies a topic in transactions, some of which it aborts on purpose
Member       a member of a consumer group, which keeps the values that it received
Strangers    clients that must be refused, again and again"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from tests.chaos.cluster.authorities import Authority, replace, trusting
from tests.chaos.cluster.secure_cluster import (
    HOST,
    MECHANISM,
    PATIENCE_S,
    SecureCluster,
    SecureZooKeeper,
)
from tests.integration.cluster.load import FLUSH_TIMEOUT_S, Load

from ottla import Consumer, Producer, TopicPartition
from ottla.net import sasl
from ottla.net.connection import Authenticate, Connection
from ottla.net.errors import AuthenticationFailed, ClientError, ConnectionLost
from ottla.wire import rpc

PAUSE_S = 0.01
POLL_S = 0.2
BATCH = 200
ABORT_EVERY = 5
"""The copiers abort one of so many transactions."""
MAX_UNACKNOWLEDGED = 2_000
PROBE_PAUSE_S = 0.5
PROBE_TIMEOUT_S = 10.0
SILENT = {"log_level": 0, "metadata.recovery.strategy": "none"}
"""See `consumer_of` for the reason of the second setting."""


class Complaints:
    """The errors that librdkafka reports to the application, without lost connections.

    A connection is lost, too, when a broker on a busy machine does not notice in time that the
    client authenticates again. librdkafka then names the step that was interrupted."""

    _EXPECTED = (
        ConfluentError._TRANSPORT,
        ConfluentError._ALL_BROKERS_DOWN,
        ConfluentError._TIMED_OUT,
    )
    _LOST = "Local: Broker transport failure"

    def __init__(self) -> None:
        self.found: list[str] = []

    def __call__(self, error: ConfluentError) -> None:
        if error.code() not in self._EXPECTED and self._LOST not in error.str():
            self.found.append(f"{time.strftime('%X')} {error.name()}: {error.str()}")


class ConfluentLoad(Load):
    """A load by a producer whose password may change."""

    pause_s = PAUSE_S

    def set_credentials(self, user: str, password: str) -> None:
        """Use other credentials from now on."""
        self._producer.set_sasl_credentials(user, password)


class OttlaLoad(Load):
    """A load by Ottla's producer."""

    pause_s = PAUSE_S

    def _connect(self, properties: dict[str, Any]) -> None:
        self._ours = Producer(properties)

    def _run(self) -> None:
        while not self._stop.is_set():
            pending = sum(self.sent.values()) - sum(map(len, self.acknowledged.values()))
            if pending - len(self.failures) < MAX_UNACKNOWLEDGED:
                for partition in range(self._partitions):
                    self._send(partition)
            self._stop.wait(self.pause_s)

    def _send(self, partition: int) -> None:
        number = self.sent[partition]
        future = self._ours.send(self._topic, b"%d" % number, partition=partition)
        self.sent[partition] += 1
        future.add_done_callback(lambda done: self._ended(partition, number, done.exception()))

    def _ended(self, partition: int, number: int, error: BaseException | None) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged_at[partition].append(time.monotonic())
        self.acknowledged[partition].append(number)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._ours.flush(FLUSH_TIMEOUT_S)
        self._ours.close()


class Worker:
    """A thread that repeats a step until it is stopped, or the step fails."""

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self.open()
            while not self._stopping.is_set():
                self.step()
            self.close()
        except BaseException as error:
            self.failure = error

    def open(self) -> None:
        """Connect."""

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Disconnect."""

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)

    def check(self) -> None:
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        self.check_failure()

    def check_failure(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"{self._thread.name} failed") from self.failure


# -------------------------------------------------------------------------------- transactions


class Copied(NamedTuple):
    """A value that a copier writes: the number of the transaction, and the value that it read."""

    transaction: int
    value: bytes

    def encode(self) -> bytes:
        return b"%d:%s" % (self.transaction, self.value)

    @classmethod
    def parse(cls, text: bytes) -> Copied:
        number, _, value = text.partition(b":")
        return cls(int(number), value)


class Source(NamedTuple):
    """A record that a copier reads."""

    partition: int
    offset: int
    value: bytes


class Copier(Worker):
    """Copy a topic to the same partitions of another one, in transactions.

    Each value that is written starts with the number of its transaction."""

    def __init__(self, cluster: SecureCluster, client: str, source: str, target: str) -> None:
        super().__init__(f"{client} copier")
        self.committed: Counter[int] = Counter()
        """Number of records by transaction."""
        self.aborted: set[int] = set()
        self.copied_to: dict[int, int] = {}
        """The offset after the last record that was copied, by partition."""
        self.complaints = Complaints()
        self._cluster = cluster
        self._source, self._target = source, target
        self._numbers = itertools.count(1)

    def step(self) -> None:
        records = self.read()
        if not records:
            return
        number = next(self._numbers)
        self.begin()
        for each in records:
            self.write(each.partition, Copied(number, each.value).encode())
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        for each in records:
            first.setdefault(each.partition, each.offset)
            after[each.partition] = each.offset + 1
        if number % ABORT_EVERY == 0:
            self.abort()
            self.aborted.add(number)
            self.seek(first)
            return
        self.commit(after)
        self.committed[number] = len(records)
        self.copied_to |= after

    def read(self) -> list[Source]:
        raise NotImplementedError

    def write(self, partition: int, value: bytes) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError

    def commit(self, positions: dict[int, int]) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def seek(self, positions: dict[int, int]) -> None:
        raise NotImplementedError

    def assert_all_copied(
        self, source: dict[int, list[bytes]], target: dict[int, list[bytes]]
    ) -> None:
        """Assert that the target has each record of the source once, by committed transactions."""
        seen: Counter[int] = Counter()
        for partition, values in target.items():
            records = [Copied.parse(each) for each in values]
            seen.update(each.transaction for each in records)
            assert [each.value for each in records] == source[partition], (
                f"partition {partition} of {self._target} differs from {self._source}"
            )
        assert not self.aborted & set(seen), "records of aborted transactions are visible"
        assert seen == self.committed, "transactions are visible in part"
        assert not self.complaints.found, self.complaints.found[:3]


class OttlaCopier(Copier):
    def open(self) -> None:
        profile = self._cluster.librdkafka("alice")
        bootstrap = self._cluster.bootstrap
        self._consumer = Consumer(
            bootstrap,
            profile=profile,
            group_id=self._target,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            topics=[self._source],
        )
        self._producer = Producer(bootstrap, profile=profile, transactional_id=self._target)

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    def read(self) -> list[Source]:
        found = self._consumer.poll(POLL_S, max_records=BATCH)
        return [Source(each.partition, each.offset, each.value or b"") for each in found]

    def write(self, partition: int, value: bytes) -> None:
        self._producer.send(self._target, value, partition=partition)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self, positions: dict[int, int]) -> None:
        offsets = {TopicPartition(self._source, each): at for each, at in positions.items()}
        self._producer.send_offsets(offsets, self._consumer.group_metadata())
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.flush()  # so that there are records to abort
        self._producer.abort_transaction()

    def seek(self, positions: dict[int, int]) -> None:
        for partition, offset in positions.items():
            self._consumer.seek(TopicPartition(self._source, partition), offset)


class ConfluentCopier(Copier):
    def open(self) -> None:
        common = {
            **self._cluster.librdkafka("alice"),
            **SILENT,
            "bootstrap.servers": self._cluster.bootstrap,
            "error_cb": self.complaints,
        }
        self._producer = ConfluentProducer(
            {**common, "transactional.id": self._target, "linger.ms": 2}
        )
        self._producer.init_transactions(PATIENCE_S)
        self._consumer = ConfluentConsumer(
            {
                **common,
                "group.id": self._target,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([self._source])

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> list[Source]:
        return [
            Source(each.partition(), each.offset(), each.value())
            for each in received(self._consumer, BATCH)
        ]

    def write(self, partition: int, value: bytes) -> None:
        self._producer.produce(self._target, value, partition=partition)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self, positions: dict[int, int]) -> None:
        offsets = [ConfluentPartition(self._source, each, at) for each, at in positions.items()]
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, group, PATIENCE_S)
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        # Without this, librdkafka (2.16.0) may abort before it has added a partition to the
        # transaction, because the previous one is still ending. Brokers answer INVALID_TXN_STATE,
        # which it takes for fatal (librdkafka issue 4849).
        self._producer.flush(PATIENCE_S)
        self._producer.abort_transaction(PATIENCE_S)

    def seek(self, positions: dict[int, int]) -> None:
        for partition, offset in positions.items():
            self._consumer.seek(ConfluentPartition(self._source, partition, offset))


def received(consumer: ConfluentConsumer, count: int) -> list[Any]:
    """Return the next messages.

    Raises:
        AssertionError: The consumer reports an error.
    """
    found = consumer.consume(count, POLL_S)
    for each in found:
        assert each.error() is None, each.error()
    return found


# --------------------------------------------------------------------------------------- group


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class Member(Worker):
    """A member of a consumer group of two different clients, which reads committed records."""

    GROUP = "readers"

    def __init__(self, cluster: SecureCluster, client: str, topics: Iterable[str]) -> None:
        super().__init__(f"{client} member")
        self.received: dict[Place, bytes] = {}
        self.complaints = Complaints()
        self._cluster = cluster
        self._topics = list(topics)

    def keep(self, place: Place, value: bytes) -> None:
        assert self.received.setdefault(place, value) == value, f"{place} has changed"

    def assert_stable(self, final: dict[str, dict[int, list[bytes]]]) -> None:
        """Assert that the member received, in order, only values that are in the final logs."""
        partitions: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for place, value in self.received.items():
            partitions.setdefault((place.topic, place.partition), []).append((place.offset, value))
        for (topic, partition), pairs in partitions.items():
            values = [value for _, value in sorted(pairs)]
            rest = iter(final[topic][partition])
            assert all(value in rest for value in values), f"{topic}-{partition} was read wrongly"
        assert not self.complaints.found, self.complaints.found[:3]


class OttlaMember(Member):
    def open(self) -> None:
        self._consumer = Consumer(
            self._cluster.bootstrap,
            profile=self._cluster.librdkafka("alice"),
            group_id=self.GROUP,
            group_protocol="classic",
            partition_assignment_strategy="range",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            topics=self._topics,
        )

    def close(self) -> None:
        self._consumer.close()

    def step(self) -> None:
        for each in self._consumer.poll(POLL_S):
            self.keep(Place(each.topic, each.partition, each.offset), each.value or b"")


class ConfluentMember(Member):
    def open(self) -> None:
        self._consumer = ConfluentConsumer(
            {
                **self._cluster.librdkafka("alice"),
                **SILENT,
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": self.GROUP,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "error_cb": self.complaints,
            }
        )
        self._consumer.subscribe(self._topics)

    def close(self) -> None:
        self._consumer.close()

    def step(self) -> None:
        for each in received(self._consumer, BATCH):
            self.keep(Place(each.topic(), each.partition(), each.offset()), each.value())


# ----------------------------------------------------------------------------------- strangers


class Strangers(Worker):
    """Clients without valid credentials, and clients that trust another authority.

    Each attempt must end with the expected refusal, unless the server is down."""

    def __init__(self, cluster: SecureCluster, zookeeper: SecureZooKeeper, home: Path) -> None:
        super().__init__("strangers")
        self.refused: Counter[str] = Counter()
        self.admitted: list[str] = []
        self._cluster = cluster
        self._zookeeper = zookeeper
        foreign = Authority("foreign authority")
        self._foreign = trusting(foreign.certificate)
        self._keystore = home / "stranger.pem"
        replace(self._keystore, foreign.sign("broker-1"))

    def step(self) -> None:
        for id in list(self._cluster.brokers):
            asyncio.run(self._try_broker(id))
        with suppress(OSError):
            if self._zookeeper.admits(self._keystore):
                self.admitted.append("ZooKeeper: foreign certificate")
            else:
                self.refused["ZooKeeper: foreign certificate"] += 1
        self._stopping.wait(PROBE_PAUSE_S)

    async def _try_broker(self, id: int) -> None:
        for listener in ("EXTERNAL", "INTERNAL"):
            port = self._cluster.port(id, listener)
            trusted = ssl.create_default_context(cafile=self._cluster.trusted_by_clients)
            await self._expect("no credentials", ConnectionLost, port, trusted, None)
            wrong = _login("alice", "guessed")
            await self._expect("wrong password", AuthenticationFailed, port, trusted, wrong)
            nobody = _login("nobody", "guessed")
            await self._expect("unknown user", AuthenticationFailed, port, trusted, nobody)
            await self._expect(
                "foreign authority", AuthenticationFailed, port, self._foreign, wrong
            )
            await self._expect("plain text", ConnectionLost, port, None, None)

    async def _expect(
        self,
        attempt: str,
        refusal: type[ClientError],
        port: int,
        tls: ssl.SSLContext | None,
        login: Authenticate | None,
    ) -> None:
        is_open = False
        try:
            connection = await Connection.open(
                HOST, port, timeout_s=PROBE_TIMEOUT_S, tls=tls, authenticate=login
            )
            is_open = True
            try:
                await connection.request(rpc.metadata(topics=None), PROBE_TIMEOUT_S)
            finally:
                connection.close()
            self.admitted.append(f"{attempt} at {port}")
        except ClientError as error:
            if isinstance(error, refusal) and (
                is_open or refusal is AuthenticationFailed or not tls
            ):
                self.refused[attempt] += 1

    def check(self) -> None:
        super().check()
        assert not self.admitted, self.admitted[:5]


def _login(user: str, password: str) -> Callable[[Connection], Awaitable[float]]:
    return sasl.authenticator(sasl.Scram(MECHANISM, user, password), PROBE_TIMEOUT_S)
