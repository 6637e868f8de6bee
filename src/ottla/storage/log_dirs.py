"""A data directory: what one of `log.dirs` holds.

    meta.properties                    whose directory this is: cluster id, node id, directory id
    .kafka_cleanshutdown               present after a clean shutdown, until the next start
    <topic>-<partition>/               a log (segment.py), with
        partition.metadata             the topic's id
    <topic>-<partition>.<id>-delete/   a deleted log, on its way out
    <topic>-<partition>.<id>-stray/    a log that no topic claims; kept, never served
    recovery-point-offset-checkpoint   how far each log is known to be on disk
    log-start-offset-checkpoint        where each log begins, if not at its first segment
    replication-offset-checkpoint      each log's high watermark, in a cluster
    cleaner-offset-checkpoint          how far each log is compacted
    .ottla_boot                        in which boot of the machine it was written to last

All but the last in Apache Kafka's names and formats: a directory that one wrote opens in the
other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.base.errors import UserError
from ottla.base.ports import FileSystem, write_atomically, write_unsynced
from ottla.base.types import TopicPartition, format_uuid, new_uuid, parse_uuid
from ottla.storage import checkpoint
from ottla.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
)
from ottla.storage.log import Log
from ottla.storage.write_failure import PROBE_FILE, WriteFailure

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT = ".ottla_boot"
PARTITION_METADATA = "partition.metadata"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
KRAFT_METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class DirectoryOwner:
    cluster_id: str
    node_id: int
    directory_id: str


@dataclass(frozen=True, slots=True)
class FoundLog:
    partition: TopicPartition
    topic_id: bytes | None
    """None where the directory does not say (it is older than topic ids)."""
    path: str


class LogDirectory:
    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path.rstrip("/")
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.lost_nothing = False
        """Whether all that the last run wrote is there: its shutdown was clean, or only its process
        ended, and what it wrote was in the hands of the kernel."""
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.write_failure: WriteFailure | None = None
        """Why the directory refuses writes; None while it takes them. `broker/disk_watch.py` sets
        and clears it; DescribeLogDirs and metrics read it."""

    # ------------------------------------------------------------------------------- ownership

    def owner(self) -> DirectoryOwner | None:
        """None in a new directory."""
        try:
            text = self.fs.read_bytes(f"{self.path}/{META_PROPERTIES}").decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
        properties = {key.strip(): value.strip() for key, _, value in lines}
        node_id = properties.get("node.id", properties.get("broker.id", ""))
        if "cluster.id" not in properties or not node_id.lstrip("-").isdigit():
            raise UserError(
                f"{self.path}/{META_PROPERTIES} names no cluster.id and node.id; restore it, or "
                "start with another data directory."
            )
        return DirectoryOwner(
            properties["cluster.id"], int(node_id), properties.get("directory.id", "")
        )

    def checked_owner(self, cluster_id: str, node_id: int) -> DirectoryOwner | None:
        """Return the owner, or None in a new directory.

        Raises:
            UserError: The directory belongs to another broker.
        """
        owner = self.owner()
        if owner is None:
            return None
        if owner.cluster_id != cluster_id:
            raise UserError(
                f"{self.path} belongs to cluster {owner.cluster_id}, not {cluster_id}; "
                "start with another data directory."
            )
        if owner.node_id != node_id:
            raise UserError(
                f"{self.path} belongs to node.id {owner.node_id}, not {node_id}; set node.id to "
                f"{owner.node_id} or start with another data directory."
            )
        return owner

    def claim(self, cluster_id: str, node_id: int) -> DirectoryOwner:
        """Check that the directory is this broker's, and write down its owner if it is new."""
        owner = self.checked_owner(cluster_id, node_id)
        if owner is None or not owner.directory_id:
            owner = DirectoryOwner(cluster_id, node_id, format_uuid(new_uuid()))
            self._write_owner(owner)
        return owner

    def _write_owner(self, owner: DirectoryOwner) -> None:
        lines = [
            f"cluster.id={owner.cluster_id}",
            f"directory.id={owner.directory_id}",
            f"node.id={owner.node_id}",
            "version=1",
            "",
        ]
        write_atomically(self.fs, f"{self.path}/{META_PROPERTIES}", "\n".join(lines).encode())

    # ------------------------------------------------------------------------- start and shutdown

    def begin(self) -> list[str]:
        """Read what the last run left. From here on a crash counts as a crash."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self.fs.exists(marker)
        if self.was_clean:
            self.fs.remove(marker)
            self.fs.sync_directory(self.path)
        self.lost_nothing = self.was_clean or self._is_same_boot()
        self.fs.remove(f"{self.path}/{PROBE_FILE}")
        problems = []
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
            try:
                offsets = checkpoint.read_offsets(self.fs, f"{self.path}/{name}")
            except MalformedCheckpoint as error:
                problems.append(f"{error}; every log of {self.path} is checked from its start")
                self.was_clean, offsets = False, {}
                self.lost_nothing = False
            if name == RECOVERY_POINTS:
                self.recovery_points = offsets
            else:
                self.log_start_offsets = offsets
        try:
            path = f"{self.path}/{HIGH_WATERMARKS}"
            self.high_watermarks = checkpoint.read_offsets(self.fs, path)
        except MalformedCheckpoint as error:
            problems.append(f"{error}; high watermarks are learned again")
        return problems

    def _is_same_boot(self) -> bool:
        try:
            known = self.fs.read_bytes(f"{self.path}/{BOOT}").decode("utf-8", "replace")
        except OSError:
            return False
        return known != "" and known == self.fs.boot_id()

    def note_boot(self) -> None:
        """From here on nothing is lost when only the process ends. Not synced: where the machine
        goes down, it is another boot anyway."""
        write_unsynced(self.fs, f"{self.path}/{BOOT}", self.fs.boot_id().encode())

    def end(self) -> None:
        """Every log is closed and on disk."""
        data = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
        write_atomically(self.fs, f"{self.path}/{CLEAN_SHUTDOWN}", data)

    def write_checkpoints(
        self, recovery_points: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> None:
        """May be called in any thread, by one at a time."""
        checkpoint.write_offsets(self.fs, f"{self.path}/{RECOVERY_POINTS}", recovery_points)
        checkpoint.write_offsets(self.fs, f"{self.path}/{LOG_START_OFFSETS}", starts)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoint.write_offsets(self.fs, f"{self.path}/{HIGH_WATERMARKS}", offsets)

    # ------------------------------------------------------------------------------------- logs

    def find_logs(self) -> list[FoundLog]:
        found = []
        for name in self.fs.list(self.path):
            partition = parse_directory_name(name)
            if partition is None or partition.topic == KRAFT_METADATA_TOPIC:
                continue
            path = f"{self.path}/{name}"
            found.append(FoundLog(partition, self._topic_id(path), path))
        return found

    def _topic_id(self, path: str) -> bytes | None:
        try:
            text = self.fs.read_bytes(f"{path}/{PARTITION_METADATA}").decode("ascii", "replace")
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "topic_id":
                try:
                    return parse_uuid(value.strip())
                except ValueError:
                    return None
        return None

    def create_log_directory(self, partition: TopicPartition, topic_id: bytes) -> str:
        """A name that survives a power cut once `sync` of this directory has returned."""
        path = f"{self.path}/{partition}"
        self.fs.make_directories(path)
        file = self.fs.open(f"{path}/{PARTITION_METADATA}", create=True)
        try:
            file.truncate(0)
            file.write(0, [f"version: 0\ntopic_id: {format_uuid(topic_id)}\n".encode()])
        finally:
            file.close()
        return path

    def set_aside(self, path: str, suffix: str) -> str:
        """Rename a log's directory so that it is no log any more. Returns the new path."""
        name = path.rpartition("/")[2]
        unique = format_uuid(new_uuid())
        # Kafka's tools expect names of at most 255 bytes.
        target = f"{self.path}/{name[: 255 - len(unique) - len(suffix) - 1]}.{unique}{suffix}"
        self.fs.rename(path, target)
        return target

    def leftovers(self) -> list[str]:
        """Deleted logs that an earlier run had no time to remove."""
        return [
            f"{self.path}/{name}"
            for name in self.fs.list(self.path)
            if name.endswith(DELETE_SUFFIX) and self.fs.is_directory(f"{self.path}/{name}")
        ]

    def sync(self) -> None:
        self.fs.sync_directory(self.path)


def parse_directory_name(name: str) -> TopicPartition | None:
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))


def checkpoint_offsets(
    logs: Iterable[Log],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """(recovery points, log start offsets that the segments alone do not tell)."""
    recovery_points, starts = {}, {}
    for log in logs:
        recovery_points[log.partition] = log.recovery_point
        if log.log_start_offset > log.segments[0].base_offset:
            starts[log.partition] = log.log_start_offset
    return recovery_points, starts


def doubt_log(log: Log) -> None:
    """A sync of it failed: the kernel may have dropped what it could not write, so that nobody can
    say any more that only a machine that goes down loses something."""
    log.fs.remove(f"{log.directory.rpartition('/')[0]}/{BOOT}")
