"""MirrorSource: copies topics of another cluster, like MirrorMaker (exactly once).

Copies have the same partitions, keys, values, headers and timestamps as the originals. Their topics
are created with the number of partitions of the source topic and with those of its configs that are
not excluded; later changes to either are applied as well. The source offset of
`{"cluster": …, "topic": …, "partition": …}` is `{"offset": last copied offset}`. Only committed
records are copied, unless `source.cluster.isolation.level` is set otherwise.

After each batch is committed in the target, the task writes an offset sync that relates the offsets
of both clusters (`mirror_records`). MirrorCheckpoint uses it to translate the offsets of groups.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast
from ottla.base.errors import ErrorCode, KafkaError, UserError
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
from ottla.connect.connectors.mirror_records import OffsetSync
from ottla.connect.data import BYTES, OPTIONAL_BYTES, ConnectRecord, Header
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

RAW = dict.fromkeys(("key.converter", "value.converter", "header.converter"), "ByteArrayConverter")
CONSUMER_DEFAULTS = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "max.poll.records": "2000",
}
_LIST, _INT, _BOOLEAN = ConfigType.LIST, ConfigType.INT, ConfigType.BOOLEAN


class MirrorSource(SourceConnector):
    converters = RAW
    definition = Definition(
        [
            *CLUSTER_KEYS,
            key("topics", _LIST, [".*"], "Topics to replicate, as names or regular expressions.",
                None, Importance.HIGH),
            key("topics.exclude", _LIST, [r".*[\-\.]internal", r".*\.replica", "__.*"],
                "Topics not to replicate, as names or regular expressions."),
            key("refresh.topics.interval.seconds", _INT, 60,
                "Interval between checks for new topics, partitions and configs.", AtLeast(1)),
            key("replication.factor", _INT, -1,
                "Replication factor of created topics; -1 for the brokers' default."),
            key("sync.topic.configs.enabled", _BOOLEAN, True,
                "Whether to replicate the configs of topics."),
            key("config.properties.exclude", _LIST,
                [r"follower\.replication\.throttled\.replicas",
                 r"leader\.replication\.throttled\.replicas",
                 r"message\.timestamp\..*\.max\.ms", r"unclean\.leader\.election\.enable",
                 r"min\.insync\.replicas"],
                "Configs not to replicate, as names or regular expressions."),
            key("emit.offset-syncs.enabled", _BOOLEAN, True,
                "Whether to write offset syncs, which translate offsets between the clusters."),
            key("offset-syncs.topic.replication.factor", _INT, -1,
                "Replication factor of the offset-syncs topic."),
        ],
        required=CLUSTER_REQUIRED,
        prefixes=CLUSTER_PREFIXES,
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        Naming(settings)
        Patterns("topics", settings["topics"], settings["topics.exclude"])
        Patterns("config.properties.exclude", [], settings["config.properties.exclude"])

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """Return the settings of each task.

        Tasks divide the partitions by number, so that no cluster has to be queried.
        """
        return [{**self.settings, "task": task, "tasks": max_tasks} for task in range(max_tasks)]

    def make_task(self, settings: Settings) -> SourceTask:
        return MirrorTask(settings)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        if partition.keys() != {"cluster", "topic", "partition"}:
            raise ValueError(
                "a source partition of this connector must have the fields cluster, topic and "
                "partition"
            )
        if not isinstance(offset.get("offset"), int):
            raise ValueError(
                'the source offset must have the form {"offset": …}, with the offset of the last '
                "replicated record"
            )


class MirrorTask(SourceTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._naming = Naming(settings)
        self._task, self._tasks = settings.get("task", 0), settings.get("tasks", 1)
        self._topics = Patterns("topics", settings["topics"], settings["topics.exclude"])
        self._excluded = Patterns("", settings["config.properties.exclude"], [])
        self._next: dict[TopicPartition, int] = {}
        self._consumer: Any = None
        self._refresh_at = 0.0
        self._syncs: SyncWriter | None = None

    def start(self, offsets: Offsets) -> None:
        from ottla.client.consumer.consumer import Consumer

        for partition, offset in offsets:
            if partition.get("cluster") == self._naming.source:
                tp = TopicPartition(partition["topic"], partition["partition"])
                self._next[tp] = offset["offset"] + 1
        profile = CONSUMER_DEFAULTS | client_of(self._settings, "source")
        self._consumer = Consumer(profile=profile)
        if self._settings["emit.offset-syncs.enabled"]:
            self._syncs = SyncWriter(self._settings, self._naming)

    def stop(self) -> None:
        if self._consumer is not None:
            self._consumer.close(0)
        if self._syncs is not None:
            self._syncs.close()

    def poll(self, wait_s: float) -> Polled:
        try:
            if time.monotonic() >= self._refresh_at:
                self._refresh()
            if not self._consumer.assignment():
                time.sleep(wait_s)
                return Polled()
            found = self._consumer.poll(wait_s)
        except KafkaError as error:
            raise RetriableError(f"cluster {self._naming.source}: {error}") from error
        last = {TopicPartition(each.topic, each.partition): each.offset for each in found}
        self._next |= {tp: offset + 1 for tp, offset in last.items()}
        return Polled(
            [self._copy(each) for each in found],
            [(self._partition(tp), {"offset": offset}) for tp, offset in last.items()],
        )

    def commit(self, offsets: Offsets) -> None:
        if self._syncs is not None:
            self._syncs.write({
                TopicPartition(partition["topic"], partition["partition"]): offset["offset"] + 1
                for partition, offset in offsets
            })  # fmt: skip

    def _partition(self, tp: TopicPartition) -> dict[str, Any]:
        return {
            "cluster": self._naming.source, "topic": tp.topic, "partition": tp.partition,
        }  # fmt: skip

    def _copy(self, record: Any) -> ConnectRecord:
        return ConnectRecord(
            self._naming.remote(record.topic),
            record.value,
            OPTIONAL_BYTES,
            record.key,
            OPTIONAL_BYTES,
            record.partition,
            None,
            record.timestamp,
            tuple(Header(name, BYTES, value) for name, value in record.headers),
        )

    # --------------------------------------------------------------------------------- topics

    def _refresh(self) -> None:
        """Find new topics and partitions in the source, and create them in the target."""
        from ottla.client.admin import Admin

        with Admin(profile=client_of(self._settings, "source")) as admin:
            wanted = [
                name
                for name in admin.list_topics(include_internal=True)
                if name in self._topics and not self._naming.is_from_target(name)
            ]
            counts = {
                name: len(data.partitions) for name, data in admin.describe_topics(*wanted).items()
            }
            configs = self._configs(admin, wanted)
        self._make_remote(counts, configs)
        mine = sorted(
            TopicPartition(topic, number)
            for topic, count in counts.items()
            for number in range(count)
            if (zlib.crc32(topic.encode()) + number) % self._tasks == self._task
        )
        if set(mine) != self._consumer.assignment():
            self._consumer.assign(mine)
            for tp in mine:
                if tp in self._next:
                    self._consumer.seek(tp, self._next[tp])
        self._refresh_at = time.monotonic() + self._settings["refresh.topics.interval.seconds"]

    def _configs(self, admin: Any, topics: list[str]) -> dict[str, dict[str, str]]:
        from ottla.client.admin import ConfigResource, ConfigSource, ResourceType

        if not topics or not self._settings["sync.topic.configs.enabled"]:
            return {}
        found = admin.describe_configs(
            *(ConfigResource(ResourceType.TOPIC, topic) for topic in topics)
        )
        return {
            resource.name: {
                name: entry.value
                for name, entry in entries.items()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
                and entry.value is not None
                and name not in self._excluded
            }
            for resource, entries in found.items()
        }

    def _make_remote(
        self, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        from ottla.client.admin import Admin, ConfigResource, NewTopic, ResourceType

        with Admin(profile=client_of(self._settings, "target")) as admin:
            there = set(admin.list_topics(include_internal=True))
            for topic, count in sorted(counts.items()):
                name, wanted = self._naming.remote(topic), configs.get(topic, {})
                try:
                    if name not in there:
                        factor = self._settings["replication.factor"]
                        admin.create_topics(NewTopic(name, count, factor, wanted))
                        continue
                    if len(admin.describe_topics(name)[name].partitions) < count:
                        admin.create_partitions({name: count})
                    if wanted:
                        resource = ConfigResource(ResourceType.TOPIC, name)
                        admin.alter_configs({resource: dict(wanted)})
                except KafkaError as error:
                    # Another task may have created it in the meantime.
                    if error.code not in (
                        ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS,
                    ):  # fmt: skip
                        raise UserError(
                            f"Topic {name} of cluster {self._naming.target} cannot be created or "
                            f"changed to match {topic}: {error}"
                        ) from error


class SyncWriter:
    """Writer of offset syncs to MirrorMaker's topic."""

    def __init__(self, settings: Settings, naming: Naming) -> None:
        from ottla.client.consumer.consumer import Consumer
        from ottla.client.producer.producer import Producer

        location = settings["offset-syncs.topic.location"]
        self._naming = naming
        self._topic = naming.offset_syncs(location)
        client = client_of(settings, location)
        factor = settings["offset-syncs.topic.replication.factor"]
        make_compacted(client, self._topic, factor)
        # The high watermark, not the last stable offset: the next record follows open transactions.
        target = client_of(settings, "target") | {"isolation.level": "read_uncommitted"}
        self._target = Consumer(profile=target)
        try:
            self._producer = Producer(profile=client)
        except BaseException:
            self._target.close(0)
            raise

    def write(self, upstream: Mapping[TopicPartition, int]) -> None:
        """Write offset syncs; the target has exactly the records before these source offsets."""
        remote = {
            TopicPartition(self._naming.remote(tp.topic), tp.partition): (tp, offset)
            for tp, offset in upstream.items()
        }
        try:
            ends = self._target.end_offsets(*remote)
            for there, (tp, offset) in remote.items():
                key_, value = OffsetSync(tp.topic, tp.partition, offset, ends[there]).encode()
                self._producer.send(self._topic, value, key=key_, partition=0)
        except KafkaError as error:
            raise RetriableError(
                f"offset syncs could not be written to {self._topic}: {error}"
            ) from error

    def close(self) -> None:
        self._producer.close()
        self._target.close(0)


def make_compacted(client: Mapping[str, str], topic: str, replication_factor: int) -> None:
    from ottla.client.admin import Admin, NewTopic

    with Admin(profile=dict(client)) as admin:
        try:
            admin.create_topics(
                NewTopic(topic, 1, replication_factor, {"cleanup.policy": "compact"})
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise UserError(f"Topic {topic} cannot be created: {error}") from error
