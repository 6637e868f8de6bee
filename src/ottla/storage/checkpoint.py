"""Kafka's small text checkpoints: a version, the number of entries, then one entry per line.

    0
    2
    orders 0 1500
    orders 1 1497

A file is always replaced as a whole (`write_atomically`), so a crash leaves the old version or the
new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.ports import FileSystem, write_atomically
from ottla.base.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
_VERSION = "0"


class MalformedCheckpoint(Exception):
    """A checkpoint file cannot be parsed."""


def encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def decode(data: bytes, path: str) -> list[list[str]]:
    """Return the entries of a checkpoint file, split into fields.

    Args:
        data: Contents of the file.
        path: Path of the file, for error messages.

    Raises:
        MalformedCheckpoint: The version is unknown, or the entries do not match the header.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    try:
        if lines[0].strip() != _VERSION:
            raise MalformedCheckpoint(f"{path} has the unknown version {lines[0]!r}")
        count = int(lines[1])
        entries = [line.split() for line in lines[2:] if line.strip()]
    except (IndexError, ValueError):
        raise MalformedCheckpoint(f"{path} is not a checkpoint") from None
    if len(entries) != count:
        raise MalformedCheckpoint(f"{path} has {len(entries)} of {count} entries")
    return entries


def write_offsets(fs: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    write_atomically(fs, path, encode(lines))


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return the offsets in a checkpoint file, or an empty dictionary if it does not exist.

    Raises:
        MalformedCheckpoint: The file cannot be parsed.
    """
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode(data, path)
        }
    except ValueError:
        raise MalformedCheckpoint(f"{path} is not a checkpoint") from None
