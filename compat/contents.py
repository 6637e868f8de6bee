"""Contents of a broker, read by an independent client.

They serve to compare two brokers, or a broker before and after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

TIMEOUT_S = 20.0
POLL_S = 0.05
BATCH = 1_000


class StoredRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]
    """Type of the timestamp, and milliseconds since the epoch."""


@dataclass(frozen=True)
class PartitionContents:
    start_offset: int
    end_offset: int
    records: list[StoredRecord]
    committed: list[StoredRecord]
    """Records that a consumer sees with read_committed."""


@dataclass(frozen=True)
class TopicContents:
    topic_id: str
    configs: dict[str, str]
    """Configs set on the topic itself."""
    partitions: dict[int, PartitionContents]


def read_contents(bootstrap: str) -> dict[str, TopicContents]:
    """Read all topics that are not internal."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    counts = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=TIMEOUT_S).topics.items()
        if not name.startswith("__")
    }
    ids = _topic_ids(admin, counts)
    keys = [(name, index) for name, count in counts.items() for index in range(count)]
    everything = read_records(bootstrap, keys, "read_uncommitted")
    committed = read_records(bootstrap, keys, "read_committed")
    bounds = watermarks(bootstrap, keys)
    return {
        name: TopicContents(
            ids[name],
            topic_configs(bootstrap, name),
            {
                index: PartitionContents(
                    *bounds[name, index], everything[name, index], committed[name, index]
                )
                for index in range(count)
            },
        )
        for name, count in counts.items()
    }


def topic_configs(bootstrap: str, topic: str) -> dict[str, str]:
    """Return the configs set on the topic itself."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return _configs(bootstrap, resource, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def broker_configs(bootstrap: str, node_id: int) -> dict[str, str]:
    """Return the configs set on the broker at runtime."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
    return _configs(bootstrap, resource, ConfigSource.DYNAMIC_BROKER_CONFIG)


def _configs(bootstrap: str, resource: ConfigResource, source: ConfigSource) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items() if entry.source == source.value}


def read_records(
    bootstrap: str, keys: Iterable[tuple[str, int]], isolation: str
) -> dict[tuple[str, int], list[StoredRecord]]:
    found: dict[tuple[str, int], list[StoredRecord]] = {key: [] for key in keys}
    consumer = _consumer(bootstrap, isolation)
    try:
        consumer.assign([TopicPartition(*key, OFFSET_BEGINNING) for key in found])
        reading = set(found)
        deadline = time.monotonic() + TIMEOUT_S
        while reading:
            messages = consumer.consume(BATCH, POLL_S)
            assert messages or time.monotonic() < deadline, (
                f"{bootstrap} returned no end offset of {reading}"
            )
            if messages:
                deadline = time.monotonic() + TIMEOUT_S
            for message in messages:
                key = (message.topic() or "", _not_none(message.partition()))
                error = message.error()
                if error is None:
                    found[key].append(_record(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, f"{key}: {error}"
                    reading.discard(key)
    finally:
        consumer.close()
    return found


def differences(expected: dict[str, TopicContents], actual: dict[str, TopicContents]) -> list[str]:
    """Return descriptions of the differences between two contents, for people."""
    found = []
    if expected.keys() != actual.keys():
        found.append(f"topics {sorted(expected)} became {sorted(actual)}")
    for name in sorted(expected.keys() & actual.keys()):
        before, after = expected[name], actual[name]
        if (before.topic_id, before.configs) != (after.topic_id, after.configs):
            found.append(f"{name}: {before.topic_id} {before.configs} became {after}"[:500])
        if before.partitions.keys() != after.partitions.keys():
            found.append(f"{name}: partitions {list(before.partitions)} {list(after.partitions)}")
            continue
        for index, partition in before.partitions.items():
            found += _partition_differences(f"{name}-{index}", partition, after.partitions[index])
    return found


def _partition_differences(
    name: str, before: PartitionContents, after: PartitionContents
) -> list[str]:
    bounds = [(each.start_offset, each.end_offset) for each in (before, after)]
    found = [] if bounds[0] == bounds[1] else [f"{name}: offsets {bounds[0]} became {bounds[1]}"]
    for what in ("records", "committed"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            first = next((pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]), None)
            found.append(f"{name}: {len(old)} {what} became {len(new)}; they differ at {first}")
    return found


def _record(message: Message) -> StoredRecord:
    headers: Any = message.headers() or ()
    return StoredRecord(
        _not_none(message.offset()),
        message.key(),
        message.value(),
        tuple(headers),
        message.timestamp(),
    )


def _not_none(number: int | None) -> int:
    """Return a number that the client's types declare as optional, but that is always set."""
    assert number is not None
    return number


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "compat-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 2,
        }
    )


def _topic_ids(admin: AdminClient, names: Iterable[str]) -> dict[str, str]:
    described = admin.describe_topics(TopicCollection(list(names)))
    return {name: str(future.result(TIMEOUT_S).topic_id) for name, future in described.items()}


def watermarks(
    bootstrap: str, keys: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    consumer = _consumer(bootstrap, "read_uncommitted")
    try:
        return {
            key: consumer.get_watermark_offsets(TopicPartition(*key), TIMEOUT_S) for key in keys
        }
    finally:
        consumer.close()
