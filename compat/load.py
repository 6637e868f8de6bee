"""Load for a broker whose files are then checked: all features of the log format."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30.0
GROUP, COMMITTED_OFFSET = "a-group", 5
MEMBERS_GROUP = "a-group-with-members"
CONSUMER_GROUP = "a-consumer-group"
USER, USER_ITERATIONS = "a user/ü", 8192
FIRST_TIMESTAMP = 1_700_000_000_000
COMPACTED_KEYS = 20
COMPACTED_RECORDS = 3_000
POLL_S = 0.1
COMPACTION_TIMEOUT_S = 30.0
GROUP, COMMITTED_OFFSET = "a-group", 5
MEMBERS_GROUP = "a-group-with-members"

TOPICS: Mapping[str, tuple[int, dict[str, str]]] = {
    "codecs": (3, {}),
    "segments": (1, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "append-time": (2, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"}),
    "transactions": (2, {"retention.bytes": "1000000000"}),
    "compacted": (
        1,
        {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "100",
        },
    ),
    "expiring": (1, {"segment.bytes": "1048576", "retention.bytes": "1500000"}),
    "trimmed": (1, {}),
    "recreated": (1, {"retention.ms": "1000000"}),
    "gone": (1, {}),
    "empty": (2, {"cleanup.policy": "compact,delete"}),
}
"""Partitions and configs by name. Timestamps are years old: a broker that lost the configs of a
topic and applied its defaults would delete the records."""


class Load:
    """Load for a broker, with the same bytes every time except for IDs and append times."""

    def __init__(self, bootstrap: str, *, transactions: bool, groups: bool) -> None:
        """Create a load.

        Args:
            bootstrap: Address of the broker.
            transactions: Whether the broker supports transactions.
            groups: Whether the broker supports groups.
        """
        self._bootstrap = bootstrap
        self._has_transactions = transactions
        self._has_groups = groups
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._random = random.Random(20_260_101)

    def fill(self) -> None:
        self._create(TOPICS)
        self._set_configs()
        self._add_user()
        for codec in CODECS:
            self._produce_with(codec)
        self._fill_segments("segments", 4_000)
        self._fill_segments("expiring", 3_000)
        if self._has_transactions:
            self._commit_and_abort()
        self._trim()
        self._recreate()
        if self._has_groups:
            self._commit_offsets()
            self._join_group()
            self._join_group(CONSUMER_GROUP, "consumer")
        self._compact()
        _wait_for(lambda: self._start_of("expiring") > 0)

    def write_until_gone(self) -> None:
        """Write as fast as possible until the broker is gone."""
        producer = self._producer(message_timeout_ms=1_000, compression_type="lz4")
        failures: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        while not failures:
            try:
                producer.produce("codecs", self._bytes(200), on_delivery=delivered)
            except BufferError:
                producer.poll(POLL_S)
            producer.poll(0)
        producer.purge()

    def write_more(self) -> None:
        """Write a few more records, to append to recovered logs."""
        for codec in CODECS:
            self._produce_with(codec, 20)

    def leave_transaction_open(self) -> None:
        """Begin a transaction, write to it, and leave it open."""
        producer = self._transactional("left-open")
        producer.begin_transaction()
        for index in range(20):
            producer.produce("transactions", self._bytes(50), f"open-{index}", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        self._abandoned = producer  # kept alive: closing it would abort the transaction

    def _add_user(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, USER_ITERATIONS)
        new = UserScramCredentialUpsertion(USER, info, b"secret")
        for future in self._admin.alter_user_scram_credentials([new]).values():
            future.result(TIMEOUT_S)

    # ------------------------------------------------------------------------------- topics

    def _create(self, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        new = [
            # Retention of old records is what this checks, so it is never left to the default.
            NewTopic(name, count, 1, config={"retention.ms": "-1", **configs})
            for name, (count, configs) in topics.items()
        ]
        for future in self._admin.create_topics(new).values():
            future.result(TIMEOUT_S)

    def _set_configs(self) -> None:
        """Change configs of an existing topic and of the broker.

        The metadata log then has a creation, a change and a removal.
        """
        operations = (
            ("flush.messages", AlterConfigOpType.SET, "12345"),
            ("segment.ms", AlterConfigOpType.SET, "600000000"),
            ("segment.ms", AlterConfigOpType.DELETE, None),
        )
        for name, operation, value in operations:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            topic = ConfigResource(
                ConfigResource.Type.TOPIC, "append-time", incremental_configs=[entry]
            )
            self._admin.incremental_alter_configs([topic])[topic].result(TIMEOUT_S)
        entry = ConfigEntry(
            "log.retention.ms", "987654321", incremental_operation=AlterConfigOpType.SET
        )
        (node_id,) = self._admin.list_topics(timeout=TIMEOUT_S).brokers
        broker = ConfigResource(
            ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry]
        )
        self._admin.incremental_alter_configs([broker])[broker].result(TIMEOUT_S)

    def _recreate(self) -> None:
        """Create a topic again with another ID, configs and partition count, and delete one."""
        for future in self._admin.delete_topics(["recreated", "gone"]).values():
            future.result(TIMEOUT_S)
        _wait_for(lambda: "recreated" not in self._admin.list_topics(timeout=TIMEOUT_S).topics)
        self._create({"recreated": (1, {"retention.ms": "2000000", "cleanup.policy": "compact"})})
        for future in self._admin.create_partitions([NewPartitions("recreated", 3)]).values():
            future.result(TIMEOUT_S)
        producer = self._producer(compression_type="zstd")
        for index in range(30):
            producer.produce("recreated", b"again", f"key-{index}", partition=index % 3)
        assert producer.flush(TIMEOUT_S) == 0

    def _trim(self) -> None:
        producer = self._producer()
        for index in range(200):
            producer.produce("trimmed", self._bytes(100), f"key-{index}")
        assert producer.flush(TIMEOUT_S) == 0
        until = TopicPartition("trimmed", 0, 77)
        for future in self._admin.delete_records([until]).values():
            future.result(TIMEOUT_S)

    # ------------------------------------------------------------------------------ records

    def _produce_with(self, codec: str, count: int = 400) -> None:
        for idempotent in (True, False):
            producer = self._producer(compression_type=codec, enable_idempotence=idempotent)
            for index in range(count):
                for topic in ("codecs", "append-time"):
                    producer.produce(
                        topic,
                        self._bytes(self._random.randrange(300)),
                        f"key-{self._random.randrange(50)}",
                        headers=[("codec", codec.encode()), ("empty", b""), ("null", None)],
                        timestamp=FIRST_TIMESTAMP + index * 10 - self._random.randrange(1000),
                    )
                producer.poll(0)
            assert producer.flush(TIMEOUT_S) == 0

    def _fill_segments(self, topic: str, count: int) -> None:
        producer = self._producer(batch_num_messages=20)
        for index in range(count):
            producer.produce(
                topic, self._bytes(1_000), f"key-{index}", timestamp=FIRST_TIMESTAMP + index
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    def _commit_and_abort(self) -> None:
        producers = [self._transactional(f"writer-{index}") for index in range(2)]
        for transaction in range(6):
            for number, producer in enumerate(producers):
                producer.begin_transaction()
                for index in range(10):
                    text = (
                        f"{'abort' if transaction % 2 else 'commit'}-{transaction}-{number}-{index}"
                    )
                    producer.produce("transactions", text, f"key-{index}", partition=index % 2)
                assert producer.flush(TIMEOUT_S) == 0
            for producer in producers:
                if transaction % 2:
                    producer.abort_transaction(TIMEOUT_S)
                else:
                    producer.commit_transaction(TIMEOUT_S)

    def _compact(self) -> None:
        producer = self._producer(batch_num_messages=20, enable_idempotence=True)
        for index in range(COMPACTED_RECORDS):
            key = f"key-{index % COMPACTED_KEYS}"
            is_tombstone = index % COMPACTED_KEYS == 7
            producer.produce("compacted", None if is_tombstone else self._bytes(1_000), key)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        _wait_for(lambda: self._count("compacted") < COMPACTED_RECORDS // 2)

    def _count(self, topic: str) -> int:
        from compat.contents import read_records

        return len(read_records(self._bootstrap, [(topic, 0)], "read_uncommitted")[topic, 0])

    def _start_of(self, topic: str) -> int:
        from compat.contents import watermarks

        return watermarks(self._bootstrap, [(topic, 0)])[topic, 0][0]

    def _commit_offsets(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
            }
        )
        committed = TopicPartition("codecs", 0, COMMITTED_OFFSET)
        consumer.commit(offsets=[committed], asynchronous=False)
        consumer.close()

    def _join_group(self, group: str = MEMBERS_GROUP, protocol: str = "classic") -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["trimmed"])
        messages = consumer.consume(10, TIMEOUT_S)
        assert len(messages) == 10, len(messages)
        consumer.commit(message=messages[-1], asynchronous=False)
        consumer.close()

    def _producer(self, **settings: str | int | bool) -> Producer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 5,
                "log_level": 2,
                **dotted,
            }
        )

    def _transactional(self, name: str) -> Producer:
        producer = self._producer(transactional_id=name)
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + COMPACTION_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(POLL_S)
