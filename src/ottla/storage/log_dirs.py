"""The contents of a data directory, one of `log.dirs`.

    meta.properties                    owner of the directory: cluster ID, node ID, directory ID
    .kafka_cleanshutdown               present after a clean shutdown, until the next start
    <topic>-<partition>/               a log (segment.py), with
        partition.metadata             the topic ID
    <topic>-<partition>.<id>-delete/   a deleted log whose files are being removed
    <topic>-<partition>.<id>-stray/    a log that belongs to no topic; kept, but never served
    recovery-point-offset-checkpoint   offset up to which each log is known to be on disk
    log-start-offset-checkpoint        log start offset of each log, if not its first base offset
    replication-offset-checkpoint      high watermark of each log, in a cluster
    cleaner-offset-checkpoint          offset up to which each log is compacted
    .ottla_boot                        boot ID of the machine when the broker last ran

All but the last have Apache Kafka's names and formats. Ottla can open a directory that Kafka wrote,
and Kafka one that Ottla wrote.
"""

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
    """None if the directory does not record it, because it predates topic IDs."""
    path: str


class LogDirectory:
    """One data directory of a broker."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path.rstrip("/")
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.has_all_writes = False
        """Whether everything that the last run wrote is present.

        This holds after a clean shutdown, and after a crash of the process alone, because the
        kernel still had all unsynced writes.
        """
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.write_failure: WriteFailure | None = None
        """Why the directory rejects writes, or None if it accepts them.

        Set and cleared by `broker/disk_watch.py`, read by DescribeLogDirs and the metrics.
        """

    # ------------------------------------------------------------------------------- ownership

    def owner(self) -> DirectoryOwner | None:
        """Return the owner, or None in a new directory.

        Raises:
            UserError: meta.properties is incomplete.
        """
        try:
            text = self.fs.read_bytes(f"{self.path}/{META_PROPERTIES}").decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
        properties = {key.strip(): value.strip() for key, _, value in lines}
        node_id = properties.get("node.id", properties.get("broker.id", ""))
        if "cluster.id" not in properties or not node_id.lstrip("-").isdigit():
            raise UserError(
                f"{self.path}/{META_PROPERTIES} does not contain cluster.id and node.id. Restore "
                "the file, or use another data directory."
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
        """Check that the directory belongs to this broker, and record the owner if it is new.

        Raises:
            UserError: The directory belongs to another broker.
        """
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
        """Read the state that the last run left, and remove the clean-shutdown marker.

        Returns:
            Messages about checkpoints that could not be read.
        """
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self.fs.exists(marker)
        if self.was_clean:
            self.fs.remove(marker)
            self.fs.sync_directory(self.path)
        self.has_all_writes = self.was_clean or self._is_same_boot()
        self.fs.remove(f"{self.path}/{PROBE_FILE}")
        problems = []
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
            try:
                offsets = checkpoint.read_offsets(self.fs, f"{self.path}/{name}")
            except MalformedCheckpoint as error:
                problems.append(f"{error}; recovering every log in {self.path} from its start")
                self.was_clean, offsets = False, {}
                self.has_all_writes = False
            if name == RECOVERY_POINTS:
                self.recovery_points = offsets
            else:
                self.log_start_offsets = offsets
        try:
            path = f"{self.path}/{HIGH_WATERMARKS}"
            self.high_watermarks = checkpoint.read_offsets(self.fs, path)
        except MalformedCheckpoint as error:
            problems.append(f"{error}; the replicas determine their high watermarks again")
        return problems

    def _is_same_boot(self) -> bool:
        try:
            known = self.fs.read_bytes(f"{self.path}/{BOOT}").decode("utf-8", "replace")
        except OSError:
            return False
        return known != "" and known == self.fs.boot_id()

    def write_boot_id(self) -> None:
        """Record the boot ID, so that a crash of the process alone is recognized at the next start.

        Not synced: if the machine goes down, the boot ID changes anyway.
        """
        write_unsynced(self.fs, f"{self.path}/{BOOT}", self.fs.boot_id().encode())

    def end(self) -> None:
        """Write the clean-shutdown marker. Every log must be closed and synced."""
        data = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
        write_atomically(self.fs, f"{self.path}/{CLEAN_SHUTDOWN}", data)

    def write_checkpoints(
        self, recovery_points: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Write the recovery points and log start offsets.

        May be called from any thread, but not concurrently.
        """
        checkpoint.write_offsets(self.fs, f"{self.path}/{RECOVERY_POINTS}", recovery_points)
        checkpoint.write_offsets(self.fs, f"{self.path}/{LOG_START_OFFSETS}", starts)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoint.write_offsets(self.fs, f"{self.path}/{HIGH_WATERMARKS}", offsets)

    # ------------------------------------------------------------------------------------- logs

    def find_logs(self) -> list[FoundLog]:
        """Return the logs in the directory, without KRaft's metadata log."""
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
        """Create the directory of a log and return its path. Call `sync` to make it durable."""
        path = f"{self.path}/{partition}"
        self.fs.make_directories(path)
        file = self.fs.open(f"{path}/{PARTITION_METADATA}", create=True)
        try:
            file.truncate(0)
            file.write(0, [f"version: 0\ntopic_id: {format_uuid(topic_id)}\n".encode()])
        finally:
            file.close()
        return path

    def rename_log_directory(self, path: str, suffix: str) -> str:
        """Rename the directory of a log so that it is no longer one, and return the new path.

        Args:
            path: Directory of the log.
            suffix: `DELETE_SUFFIX` or `STRAY_SUFFIX`.
        """
        name = path.rpartition("/")[2]
        unique = format_uuid(new_uuid())
        # Kafka's tools expect names of at most 255 bytes.
        target = f"{self.path}/{name[: 255 - len(unique) - len(suffix) - 1]}.{unique}{suffix}"
        self.fs.rename(path, target)
        return target

    def unfinished_deletions(self) -> list[str]:
        """Return the paths of deleted logs that an earlier run did not finish removing."""
        return [
            f"{self.path}/{name}"
            for name in self.fs.list(self.path)
            if name.endswith(DELETE_SUFFIX) and self.fs.is_directory(f"{self.path}/{name}")
        ]

    def sync(self) -> None:
        self.fs.sync_directory(self.path)


def parse_directory_name(name: str) -> TopicPartition | None:
    """Parse `<topic>-<partition>`. Return None for any other name."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return TopicPartition(topic, int(partition))


def checkpoint_offsets(
    logs: Iterable[Log],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the recovery points, and the log start offsets that differ from the first segment."""
    recovery_points, starts = {}, {}
    for log in logs:
        recovery_points[log.partition] = log.recovery_point
        if log.log_start_offset > log.segments[0].base_offset:
            starts[log.partition] = log.log_start_offset
    return recovery_points, starts


def forget_boot_id(log: Log) -> None:
    """Forget the boot ID of the data directory after a sync of `log` failed.

    The kernel may have dropped the pages it could not write, so data may be lost even if the
    machine stays up.
    """
    log.fs.remove(f"{log.directory.rpartition('/')[0]}/{BOOT}")
