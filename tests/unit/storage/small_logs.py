"""Logs in a temporary directory, written and read record by record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log
from ottla.storage.recovery import KnownLogState, open_log
from ottla.wire.records.batch import BatchHeader, iter_headers, read_header
from ottla.wire.records.builder import build_batch, end_txn_marker
from ottla.wire.records.record import BatchRecord, iter_records

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000

KeyValue = tuple[bytes | None, bytes | None]


def open_test_log(
    directory: str,
    config: TopicConfig,
    *,
    fs: FileSystem | None = None,
    is_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    reports: list[str] | None = None,
) -> Log:
    known = KnownLogState(
        directory=directory,
        partition=PARTITION,
        topic_id=TOPIC_ID,
        config=config,
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=START_MS,
    )
    report = reports.append if reports is not None else lambda _: None
    return open_log(fs or OsFileSystem(), known, report)


def reopen(log: Log, reports: list[str] | None = None) -> Log:
    """Reopen the log after a clean shutdown."""
    log.close(START_MS)
    return open_test_log(
        log.directory, log.config, recovery_point=log.recovery_point, reports=reports
    )


def put(
    log: Log,
    records: Sequence[KeyValue],
    *,
    timestamp: int = START_MS,
    compression: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> int:
    """Append one batch and return its base offset; `producer` is (ID, epoch, base sequence)."""
    producer_id, epoch, sequence = producer
    batch = build_batch(
        [(key, value, (), timestamp) for key, value in records],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append(batch, read_header(batch), 0, timestamp).base_offset


def end_transaction(
    log: Log, producer_id: int, epoch: int, *, commit: bool, timestamp: int = START_MS
) -> int:
    batch = end_txn_marker(producer_id, epoch, commit, 0, timestamp)
    return log.append(batch, read_header(batch), 0, timestamp).base_offset


def batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Return all batches, reading from the log start offset as a consumer does."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data, next_offset = log.read(
            offset, 1 << 20, log.log_end_offset, at_least_one=True, wait=True
        )
        if next_offset == offset:
            break
        raw = bytes(data)
        found += [
            (header._replace(position=0), raw[header.position : header.end])
            for header in iter_headers(raw)
        ]
        offset = next_offset
    return found


def data_records(log: Log) -> list[BatchRecord]:
    return [
        record
        for header, batch in batches(log)
        if not header.is_control
        for record in iter_records(batch, header)
    ]


def latest_values(records: Iterable[BatchRecord]) -> dict[bytes | None, bytes]:
    """Return the table that a consumer of all records ends up with, without deleted keys."""
    table: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
