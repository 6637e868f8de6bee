"""Logs and batches for the storage tests."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.storage.recovery import KnownLogState, open_log
from ottla.testing.simulation.disk import SimulatedDisk
from ottla.wire.records.batch import BatchHeader, iter_headers, read_header
from ottla.wire.records.builder import build_batch, end_txn_marker
from ottla.wire.records.record import iter_records

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "/data/orders-0"
NOW = 1_700_000_000_000
FOREVER = 2**62
SMALL = TopicConfig(segment_bytes=400, index_interval_bytes=100)
"""Configuration with about three small batches per segment, every other one indexed."""


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directories(DIRECTORY)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    return disk


def open_at(
    fs: FileSystem,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    start: int = 0,
    config: TopicConfig = SMALL,
    directory: str = DIRECTORY,
    said: list[str] | None = None,
) -> Log:
    known = KnownLogState(
        directory, PARTITION, bytes(16), config, clean, recovery_point, start, NOW
    )
    return open_log(fs, known, [].append if said is None else said.append)


def batch_of(*values: bytes, timestamp: int = NOW, **options: Any) -> bytes:
    """Build a batch as a producer sends it; all records have the same timestamp."""
    return build_batch([(None, value, (), timestamp) for value in values], **options)


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    is_duplicate: bool


def append(log: Log, *values: bytes, epoch: int = 0, now_ms: int = NOW, **options: Any) -> Appended:
    return append_batch(log, batch_of(*values, **options), epoch=epoch, now_ms=now_ms)


def append_batch(log: Log, batch: bytes, *, epoch: int = 0, now_ms: int = NOW) -> Appended:
    result = log.append(batch, read_header(batch), epoch, now_ms)
    return Appended(result.base_offset, result.last_offset, result.is_duplicate)


def follow(log: Log, batch: bytes) -> None:
    log.append_as_follower(batch, read_header(batch), NOW)


def end_txn(log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0) -> Appended:
    return append_batch(log, end_txn_marker(producer_id, producer_epoch, commit, 0, NOW))


def read(log: Log, offset: int, max_bytes: int = 2**30, max_offset: int = FOREVER) -> bytes:
    return bytes(log.read(offset, max_bytes, max_offset, at_least_one=True, wait=True).records)


def stored(log: Log, start: int | None = None) -> bytes:
    """Return all batches from `start` on, read by successive fetches."""
    offset, found = log.log_start_offset if start is None else start, b""
    while offset < log.log_end_offset:
        records, next_offset = log.read(offset, 300, FOREVER, at_least_one=True, wait=True)
        if not records:
            break
        found += bytes(records)
        offset = next_offset
    return found


def headers_of(data: bytes) -> list[BatchHeader]:
    return list(iter_headers(data))


def records_of(data: bytes) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for header in headers_of(data) for r in iter_records(data, header)]


def values(log: Log) -> list[bytes | None]:
    return [value for offset, value in records_of(stored(log)) if offset >= log.log_start_offset]
