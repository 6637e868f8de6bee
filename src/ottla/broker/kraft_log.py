"""A reader for Apache Kafka's metadata log in a data directory.

    __cluster_metadata-0/
        <end offset, 20 digits>-<epoch, 10 digits>.checkpoint   snapshot: the state before `end`
        <base offset, 20 digits>.log                            records; the oldest may be deleted

Both contain record batches. The newest complete snapshot is read, then the log from its end offset
on. `kafka-storage format` writes `bootstrap.checkpoint` beside the directory. At its first start,
Kafka copies the records from there into the empty log; until then they are read from there. A log
may end in the middle of a batch after a crash; any other damage makes the image uncertain, because
something may be missing from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.base.ports import FileSystem
from ottla.metadata.kraft import KraftImage
from ottla.storage.log_dirs import KRAFT_METADATA_TOPIC
from ottla.wire.records.batch import BatchHeader, iter_headers, verified_extent
from ottla.wire.records.errors import BatchError
from ottla.wire.records.record import iter_records

BOOTSTRAP = "bootstrap.checkpoint"

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LOG = re.compile(r"(\d{20})\.log")


class KraftMetadata(NamedTuple):
    """Kafka's metadata as read from disk."""

    image: KraftImage
    is_certain: bool
    """False if a part of the log could not be read."""


def read_kraft_metadata(fs: FileSystem, paths: Iterable[str]) -> KraftMetadata | None:
    """Read the metadata from the first directory that has any. Returns None if none has."""
    homes = [path.rstrip("/") for path in paths]
    image = KraftImage()
    is_certain = has_log = False
    end_offset = 0
    for home in homes:
        directory = f"{home}/{KRAFT_METADATA_TOPIC}-0"
        if fs.is_directory(directory):
            has_log = True
            end_offset, is_certain = _read(fs, directory, image)
            break
    bootstrap = [f"{home}/{BOOTSTRAP}" for home in homes if fs.exists(f"{home}/{BOOTSTRAP}")]
    if bootstrap and not end_offset:
        is_certain = _read_checkpoint(fs, bootstrap[0], image) and (is_certain or not has_log)
    elif not has_log:
        return None
    return KraftMetadata(image, is_certain and not image.broken_records)


def _read(fs: FileSystem, directory: str, image: KraftImage) -> tuple[int, bool]:
    """Return (offset at which the log ends, whether all of it could be read)."""
    names = fs.list(directory)
    start, is_certain = _read_snapshot(fs, directory, names, image)
    for name in sorted(filter(_LOG.fullmatch, names)):
        data = fs.read_bytes(f"{directory}/{name}")
        extent = verified_extent(data)
        for header in iter_headers(data, 0, extent.size):
            # A gap after the snapshot or the previous batch: something was lost.
            is_certain = is_certain and header.base_offset <= start
            _apply(image, data, header, start)
            start = max(start, header.next_offset)
        is_certain = is_certain and not extent.is_corrupt
    return start, is_certain


def _read_snapshot(
    fs: FileSystem, directory: str, names: Iterable[str], image: KraftImage
) -> tuple[int, bool]:
    """Return (offset from which to read the log, whether the newest snapshot was complete)."""
    is_newest = True
    for name, end_offset in _newest_first(names):
        if _read_checkpoint(fs, f"{directory}/{name}", image):
            return end_offset, is_newest
        is_newest = False
    return 0, is_newest


def _read_checkpoint(fs: FileSystem, path: str, image: KraftImage) -> bool:
    """Apply a snapshot if it is complete; return whether it is."""
    data = fs.read_bytes(path)
    if verified_extent(data).size != len(data):
        return False
    for header in iter_headers(data):
        _apply(image, data, header, 0)
    return True


def _newest_first(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    matches = [match for match in map(_SNAPSHOT.fullmatch, names) if match is not None]
    for match in sorted(matches, key=lambda each: each[0], reverse=True):
        yield match[0], int(match[1])


def _apply(image: KraftImage, data: bytes, header: BatchHeader, start: int) -> None:
    if header.is_control or header.last_offset < start:
        return
    try:
        for record in iter_records(data, header):
            if record.offset >= start and record.value is not None:
                image.apply(record.value)
    except BatchError:
        image.broken_records += 1
