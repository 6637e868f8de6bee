"""Where connectors are: records of `offset.storage.topic`, in the form of Kafka's own.

    key      ["local-file-source",{"filename":"test.txt"}]     [namespace, source partition]
    value    {"position":1234}                                 the source offset; none: forgotten

A source's records and the offsets after them are one transaction. A sink's topic offsets are its
group's; what Kafka has no form for is which batch a task is at, and that is kept here as well:

    key      ["local-file-sink",{"sink.task":0}]
    value    {"batch":7,"epoch":3,"worker":"…","start":{"t-0":5},"end":{"t-0":9}}

written before the batch is given to the task, in one transaction with its first offsets as those of
the group; and again when it is done, without `start` and `end`, with the offsets after it. So a
batch that was interrupted is known to whoever takes over, record by record.

To read: the transactional id is taken over first, so nothing more comes of whoever had it; then all
that was in the topic at that moment is read, waiting for transactions that others have open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.types import TopicPartition
from ottla.connect.api import Json, Offsets
from ottla.connect.topics import make_topics

TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Small segments: what is not compacted yet is read at every start."""
POLL_S = 0.2
SINK_TASK = "sink.task"


def encode(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def offset_key(namespace: str, partition: Mapping[str, Any]) -> bytes:
    return encode([namespace, dict(partition)])


def read_key(key: bytes | None) -> tuple[str, Json] | None:
    """None for what is no key of ours; topics are open to everyone."""
    try:
        told = json.loads(key or b"")
    except ValueError:
        return None
    if isinstance(told, list) and len(told) == 2 and isinstance(told[1], dict):
        return str(told[0]), told[1]
    return None


@dataclass(frozen=True)
class SinkPosition:
    """Of a sink's task: the batch it is at, or (`end` empty) the last one it has done."""

    batch: int = -1
    epoch: int = 0
    """How often the task was started; whoever has an older one is a zombie."""
    worker: str = ""
    start: Mapping[TopicPartition, int] = field(default_factory=dict)
    end: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> Json:
        told: Json = {"batch": self.batch, "epoch": self.epoch, "worker": self.worker}
        if self.end:
            told |= {"start": _offsets(self.start), "end": _offsets(self.end)}
        return told

    @classmethod
    def from_json(cls, told: Json) -> SinkPosition:
        return cls(
            int(told.get("batch", -1)),
            int(told.get("epoch", 0)),
            str(told.get("worker", "")),
            _partitions(told.get("start") or {}),
            _partitions(told.get("end") or {}),
        )

    def is_interrupted(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Whether the batch must come again. If the group is elsewhere by now, somebody has reset
        its offsets, and means it."""
        return bool(self.end) and all(committed.get(tp) == at for tp, at in self.start.items())


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {f"{tp.topic}-{tp.partition}": offset for tp, offset in sorted(offsets.items())}


def _partitions(told: Mapping[str, int]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in told.items():
        topic, _, partition = name.rpartition("-")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


@dataclass(frozen=True)
class Ledger:
    """The topic, as seen by the connectors of one worker."""

    topic: str
    partitions: int = 1
    replication: int = -1

    def make(self, admin: Mapping[str, str]) -> None:
        make_topics(admin, [self.topic], self.partitions, self.replication, TOPIC_CONFIGS)

    def offsets(self, client: Mapping[str, str], namespace: str) -> Offsets:
        """A source's."""
        found: dict[bytes, tuple[Json, Json]] = {}
        for partition, offset in self._read(client, namespace):
            key = offset_key(namespace, partition)
            if offset is None:
                found.pop(key, None)
            elif SINK_TASK not in partition:
                found[key] = partition, offset
        return list(found.values())

    def sink_positions(self, client: Mapping[str, str], namespace: str) -> dict[int, SinkPosition]:
        """By task."""
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
    """The committed records that are in a topic now, one partition after the other."""
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
            # Of everything, open transactions included: those that are committed count.
            ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        begins = consumer.beginning_offsets(*partitions)
        left = {tp: ends[tp].offset or 0 for tp in partitions}
        left = {tp: end for tp, end in left.items() if end > begins[tp]}
        consumer.assign(left)
        while left:
            yield from consumer.poll(POLL_S)
            left = {tp: end for tp, end in left.items() if consumer.position(tp) < end}
