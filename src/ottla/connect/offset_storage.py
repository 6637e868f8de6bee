"""Offset storage: records in `offset.storage.topic`, in Kafka Connect's format.

    key      ["local-file-source",{"filename":"test.txt"}]     [namespace, source partition]
    value    {"position":1234}                                 source offset; a tombstone deletes it

A source's records and the source offsets after them are written in one transaction. The topic
offsets of a sink are those of its consumer group. Kafka has no format for a sink task's current
batch, so it is stored in the same topic:

    key      ["local-file-sink",{"sink.task":0}]
    value    {"batch":7,"epoch":3,"worker":"…","start":{"t-0":5},"end":{"t-0":9}}

The worker writes this record before it passes the batch to the task, in one transaction with the
batch's first offsets as the group's offsets. It writes it again when the batch is done, without
`start` and `end`, together with the offsets after the batch. A worker that takes over the task
therefore knows exactly which records an interrupted batch contained.

Before reading, a worker initializes its transactional ID, which fences any previous owner. It then
reads the topic up to the current end, and waits for transactions that other workers have open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.types import TopicPartition
from ottla.connect.api import Json, Offsets
from ottla.connect.topics import make_topics

TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Topic configs. Segments are small because every start reads what is not yet compacted."""
POLL_S = 0.2
SINK_TASK = "sink.task"


def encode(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def offset_key(namespace: str, partition: Mapping[str, Any]) -> bytes:
    return encode([namespace, dict(partition)])


def read_key(key: bytes | None) -> tuple[str, Json] | None:
    """Parse a record key; None if it is not in our format, as any client may write to the topic."""
    try:
        document = json.loads(key or b"")
    except ValueError:
        return None
    if isinstance(document, list) and len(document) == 2 and isinstance(document[1], dict):
        return str(document[0]), document[1]
    return None


@dataclass(frozen=True)
class SinkPosition:
    """Position of a sink task: its current batch or, if `end` is empty, its last completed one."""

    batch: int = -1
    epoch: int = 0
    """Number of times the task was started; an instance with a lower one is a zombie."""
    worker: str = ""
    start: Mapping[TopicPartition, int] = field(default_factory=dict)
    end: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> Json:
        document: Json = {"batch": self.batch, "epoch": self.epoch, "worker": self.worker}
        if self.end:
            document |= {"start": _offsets(self.start), "end": _offsets(self.end)}
        return document

    @classmethod
    def from_json(cls, document: Json) -> SinkPosition:
        return cls(
            int(document.get("batch", -1)),
            int(document.get("epoch", 0)),
            str(document.get("worker", "")),
            _partitions(document.get("start") or {}),
            _partitions(document.get("end") or {}),
        )

    def is_interrupted(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Return whether the batch must be delivered again.

        It must not if the group's offsets no longer match `start`: an administrator has reset them.
        """
        return bool(self.end) and all(committed.get(tp) == at for tp, at in self.start.items())


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {f"{tp.topic}-{tp.partition}": offset for tp, offset in sorted(offsets.items())}


def _partitions(document: Mapping[str, int]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in document.items():
        topic, _, partition = name.rpartition("-")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


@dataclass(frozen=True)
class TopicOffsetStorage:
    """Offset storage topic of a worker."""

    topic: str
    partitions: int = 1
    replication: int = -1

    def create_topic(self, admin: Mapping[str, str]) -> None:
        make_topics(admin, [self.topic], self.partitions, self.replication, TOPIC_CONFIGS)

    def offsets(self, client: Mapping[str, str], namespace: str) -> Offsets:
        """Return the source offsets of a connector."""
        found: dict[bytes, tuple[Json, Json]] = {}
        for partition, offset in self._read(client, namespace):
            key = offset_key(namespace, partition)
            if offset is None:
                found.pop(key, None)
            elif SINK_TASK not in partition:
                found[key] = partition, offset
        return list(found.values())

    def sink_positions(self, client: Mapping[str, str], namespace: str) -> dict[int, SinkPosition]:
        """Return the positions of a sink's tasks, by task."""
        found = {}
        for partition, offset in self._read(client, namespace):
            if SINK_TASK in partition and offset is not None:
                found[int(partition[SINK_TASK])] = SinkPosition.from_json(offset)
        return found

    def _read(
        self, client: Mapping[str, str], namespace: str
    ) -> Iterator[tuple[Json, Json | None]]:
        for record in read_to_end(client, self.topic):
            key = read_key(record.key)
            if key is not None and key[0] == namespace:
                yield key[1], json.loads(record.value) if record.value else None


def read_to_end(client: Mapping[str, str], topic: str) -> Iterator[Any]:
    """Yield the committed records that are in the topic now, one partition after the other."""
    from ottla.client.admin import Admin, OffsetSpec
    from ottla.client.consumer.consumer import Consumer

    with Consumer(
        profile=dict(client),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=5_000,
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        with Admin(profile=dict(client)) as admin:
            # The ends include open transactions, so that their records count if they commit.
            ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        begins = consumer.beginning_offsets(*partitions)
        left = {tp: ends[tp].offset or 0 for tp in partitions}
        left = {tp: end for tp, end in left.items() if end > begins[tp]}
        consumer.assign(left)
        while left:
            yield from consumer.poll(POLL_S)
            left = {tp: end for tp, end in left.items() if consumer.position(tp) < end}
