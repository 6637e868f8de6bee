"""MirrorCheckpoint and MirrorHeartbeat, like MirrorMaker's connectors.

Every `emit.checkpoints.interval.seconds` MirrorCheckpoint translates the committed offsets of the
source's groups, using the offset syncs that MirrorSource writes (`mirror_records`). It writes those
that changed to ALIAS.checkpoints.internal in MirrorMaker's format, which `RemoteClusterUtils`
reads. With `sync.group.offsets.enabled` it also commits them in the target, for groups without
members there and never backwards, so that a consumer that moves to the target continues where it
was.

MirrorHeartbeat writes the time to the topic `heartbeats` in the target, to show that the mirror is
alive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.connect.api import Offsets, Polled, RetriableError, SourceConnector, SourceTask
from ottla.connect.connectors.mirror_policy import (
    CLUSTER_KEYS,
    CLUSTER_PREFIXES,
    CLUSTER_REQUIRED,
    Naming,
    Patterns,
    client_of,
)
from ottla.connect.connectors.mirror_records import Checkpoint, Heartbeat, OffsetSync, Syncs
from ottla.connect.connectors.mirror_source import RAW, make_compacted
from ottla.connect.data import BYTES, ConnectRecord
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

FREE = ("Empty", "Dead", "")
"""States of groups whose offsets may be committed."""
READ_S = 0.2
PATIENCE_S = 60.0
_LIST, _INT, _BOOLEAN = ConfigType.LIST, ConfigType.INT, ConfigType.BOOLEAN


class MirrorCheckpoint(SourceConnector):
    converters = RAW
    definition = Definition(
        [
            *CLUSTER_KEYS,
            key("groups", _LIST, [".*"],
                "Consumer groups to replicate, as names or regular expressions.", None,
                Importance.HIGH),
            key("groups.exclude", _LIST, ["console-consumer-.*", "connect-.*", "__.*"],
                "Consumer groups not to replicate, as names or regular expressions."),
            key("emit.checkpoints.interval.seconds", _INT, 60,
                "Interval between checkpoints, in seconds.", AtLeast(1)),
            key("sync.group.offsets.enabled", _BOOLEAN, False,
                "Whether to commit translated offsets in the target cluster."),
            key("checkpoints.topic.replication.factor", _INT, -1,
                "Replication factor of the checkpoints topic."),
            key("offset-syncs.topic.replication.factor", _INT, -1,
                "Replication factor of the offset-syncs topic."),
        ],
        required=CLUSTER_REQUIRED,
        prefixes=CLUSTER_PREFIXES,
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        Naming(settings)
        Patterns("groups", settings["groups"], settings["groups.exclude"])

    def make_task(self, settings: Settings) -> SourceTask:
        return CheckpointTask(settings)


class CheckpointTask(SourceTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._naming = Naming(settings)
        self._groups = Patterns("groups", settings["groups"], settings["groups.exclude"])
        self._syncs: dict[TopicPartition, Syncs] = {}
        self._emitted: dict[tuple[str, str, int], int] = {}
        """Last written downstream offset of each group and partition."""
        self._consumer: Any = None
        self._due = 0.0

    def start(self, offsets: Offsets) -> None:
        from ottla.client.consumer.consumer import Consumer

        for partition, offset in offsets:
            if "group" in partition and "downstream" in offset:
                place = (partition["group"], partition["topic"], partition["partition"])
                self._emitted[place] = offset["downstream"]
        location = self._settings["offset-syncs.topic.location"]
        topic, client = self._naming.offset_syncs(location), client_of(self._settings, location)
        make_compacted(client, topic, self._settings["offset-syncs.topic.replication.factor"])
        factor = self._settings["checkpoints.topic.replication.factor"]
        make_compacted(client_of(self._settings, "target"), self._naming.checkpoints, factor)
        self._consumer = Consumer(
            profile=client | {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        )
        self._consumer.assign([TopicPartition(topic, 0)])

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close(0)

    def poll(self, wait_s: float) -> Polled:
        if time.monotonic() < self._due:
            time.sleep(min(wait_s, self._due - time.monotonic()))
            return Polled()
        try:
            self._read_syncs()
            found = self._checkpoints()
            if self._settings["sync.group.offsets.enabled"]:
                self._commit_there(found)
        except KafkaError as error:
            raise RetriableError(f"groups of {self._naming.source}: {error}") from error
        self._due = time.monotonic() + self._settings["emit.checkpoints.interval.seconds"]
        moved = [each for each in found if self._emitted.get(_place(each)) != each.downstream]
        self._emitted |= {_place(each): each.downstream for each in moved}
        return Polled(
            [_record(self._naming.checkpoints, *each.encode()) for each in moved],
            [
                (
                    {"group": each.group, "topic": each.topic, "partition": each.partition},
                    {"downstream": each.downstream},
                )
                for each in moved
            ],
        )

    def _read_syncs(self) -> None:
        """Read the topic up to its current end."""
        (tp,) = self._consumer.assignment()
        end = self._consumer.end_offsets(tp)[tp]
        until = time.monotonic() + PATIENCE_S
        while self._consumer.position(tp) < end:
            if time.monotonic() >= until:
                raise RetriableError(f"{tp} cannot be read up to its end at offset {end}")
            for record in self._consumer.poll(READ_S):
                try:
                    sync = OffsetSync.decode(record.key or b"", record.value or b"")
                except (ValueError, UnicodeDecodeError) as error:
                    logger.warning("skipping %s@%d: %s", tp, record.offset, error)
                    continue
                known = self._syncs.setdefault(TopicPartition(sync.topic, sync.partition), Syncs())
                known.add(sync.upstream, sync.downstream)

    def _checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints of all groups whose offsets can be translated."""
        from ottla.client.admin import Admin

        with Admin(profile=client_of(self._settings, "source")) as admin:
            groups = [each for each in admin.list_groups() if each in self._groups]
            committed = admin.list_group_offsets(*groups) if groups else {}
        found = []
        for group, offsets in sorted(committed.items()):
            for tp, data in sorted(offsets.items()):
                syncs = self._syncs.get(tp)
                downstream = syncs.translate(data.offset) if syncs is not None else None
                if downstream is not None:
                    remote = self._naming.remote(tp.topic)
                    found.append(Checkpoint(group, remote, tp.partition, data.offset, downstream))
        return found

    def _commit_there(self, checkpoints: Sequence[Checkpoint]) -> None:
        from ottla.client.admin import Admin

        wanted: dict[str, dict[TopicPartition, int]] = {}
        for each in checkpoints:
            tp = TopicPartition(each.topic, each.partition)
            wanted.setdefault(each.group, {})[tp] = each.downstream
        if not wanted:
            return
        with Admin(profile=client_of(self._settings, "target")) as admin:
            there = admin.list_groups()
            for group, offsets in wanted.items():
                if group in there and there[group].state not in FREE:
                    continue
                known = admin.list_group_offsets(group)[group] if group in there else {}
                ahead = _ahead(offsets, {tp: data.offset for tp, data in known.items()})
                if ahead:
                    admin.alter_group_offsets(group, ahead)


def _ahead(
    wanted: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in wanted.items() if offset > known.get(tp, -1)}


def _place(checkpoint: Checkpoint) -> tuple[str, str, int]:
    return checkpoint.group, checkpoint.topic, checkpoint.partition


def _record(topic: str, key_: bytes, value: bytes) -> ConnectRecord:
    return ConnectRecord(topic, value, BYTES, key_, BYTES, partition=0)


class MirrorHeartbeat(SourceConnector):
    converters = RAW
    definition = Definition(
        [
            key(
                "source.cluster.alias",
                ConfigType.STRING,
                None,
                "Alias of the source cluster.",
                NonEmpty(),
            ),
            key(
                "target.cluster.alias",
                ConfigType.STRING,
                None,
                "Alias of the target cluster.",
                NonEmpty(),
            ),
            key(
                "emit.heartbeats.interval.seconds",
                _INT,
                1,
                "Interval between heartbeats, in seconds.",
                AtLeast(1),
            ),
        ],
        required=["source.cluster.alias", "target.cluster.alias"],
    )

    def make_task(self, settings: Settings) -> SourceTask:
        return HeartbeatTask(settings)


class HeartbeatTask(SourceTask):
    TOPIC = "heartbeats"

    def __init__(self, settings: Settings) -> None:
        self._names = (settings["source.cluster.alias"], settings["target.cluster.alias"])
        self._interval_s = settings["emit.heartbeats.interval.seconds"]
        self._due = 0.0

    def start(self, offsets: Offsets) -> None:
        return

    def poll(self, wait_s: float) -> Polled:
        now = time.monotonic()
        if now < self._due:
            time.sleep(min(wait_s, self._due - now))
            return Polled()
        self._due = now + self._interval_s
        time_ms = time.time_ns() // 1_000_000
        source, target = self._names
        partition = {"sourceClusterAlias": source, "targetClusterAlias": target}
        record = _record(self.TOPIC, *Heartbeat(source, target, time_ms).encode())
        return Polled([record], [(partition, {"offset": 0})])
