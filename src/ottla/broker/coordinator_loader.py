"""Loading of a shard: all records of its partition are applied, in order.

The log is read, verified and decoded in a thread, one buffer at a time. The records are applied on
the event loop, a few at a time, so that requests are served in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from ottla.base.ports import ReadableBuffer, RunBlocking
from ottla.broker.partition import Partition
from ottla.core.coordinator import NO_PRODUCER_ID, Shard
from ottla.storage.log import Log
from ottla.wire.records.batch import BatchHeader, iter_headers
from ottla.wire.records.builder import read_end_txn_marker
from ottla.wire.records.record import iter_records

logger = logging.getLogger(__name__)

RECORDS_PER_YIELD = 1_000


class StoredRecord(NamedTuple):
    """A coordinator record, or the marker of a transaction."""

    offset: int
    producer_id: int
    record: Any = None
    is_commit: bool | None = None
    """Set for a marker: whether it commits the transaction."""


class Chunk(NamedTuple):
    """The records decoded from one buffer."""

    stored: list[StoredRecord]
    next_offset: int
    unknown: int
    """Number of records of types that the shard does not know."""


async def load(
    partition: Partition,
    shard: Shard,
    buffer_bytes: int,
    run_blocking: RunBlocking,
    is_wanted: Callable[[], bool],
) -> int:
    """Apply all records of a partition to a shard.

    This reads to the log end offset, not to the high watermark: a new leader learns the high
    watermark late, and it will commit everything in its log while it leads.

    Args:
        partition: The partition to read.
        shard: The shard to load.
        buffer_bytes: Size of each read.
        run_blocking: Runs a read in a thread.
        is_wanted: Checked between steps; False stops the load.

    Returns:
        The number of records and markers read.

    Raises:
        KafkaError: The log is damaged.
    """
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    count = unknown = 0
    while offset < end and is_wanted():

        def read(start: int = offset) -> Chunk:
            return read_chunk(log, start, end, buffer_bytes, shard.decode)

        chunk: Chunk = await run_blocking(read)
        if chunk.next_offset <= offset:
            break
        count += len(chunk.stored)
        unknown += chunk.unknown
        for start in range(0, len(chunk.stored), RECORDS_PER_YIELD):
            if not is_wanted():
                return count
            _apply(shard, chunk.stored[start : start + RECORDS_PER_YIELD])
            await asyncio.sleep(0)
        offset = chunk.next_offset
    if unknown:
        logger.warning("%s: ignored %d records of unknown types", partition.key, unknown)
    return count


def _apply(shard: Shard, stored: list[StoredRecord]) -> None:
    for offset, producer_id, record, is_commit in stored:
        if is_commit is None:
            shard.apply(record, offset, producer_id)
        else:
            shard.end_transaction(producer_id, commit=is_commit)


def read_chunk(
    log: Log,
    offset: int,
    end: int,
    buffer_bytes: int,
    decode: Callable[[bytes, bytes | None], Any],
) -> Chunk:
    """Read and decode one buffer from `offset` on. Raises KafkaError if the log is damaged."""
    found = log.read(offset, buffer_bytes, end, at_least_one=True, wait=True)
    data, next_offset = cast("ReadableBuffer", found.records), found.next_offset
    stored: list[StoredRecord] = []
    unknown = 0
    for header in iter_headers(data):
        if header.is_control:
            stored += _marker(bytes(data[header.position : header.end]), header)
            continue
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in iter_records(data, header):
            if record.offset < offset:
                continue
            try:
                decoded = None if record.key is None else decode(record.key, record.value)
            except ValueError as error:
                logger.error(
                    "%s: skipped the record at offset %d: %s", log.partition, record.offset, error
                )
                continue
            if decoded is None:
                unknown += 1
            else:
                stored.append(StoredRecord(record.offset, producer_id, decoded))
    return Chunk(stored, next_offset, unknown)


def _marker(batch: bytes, header: BatchHeader) -> list[StoredRecord]:
    marker = read_end_txn_marker(batch)
    if marker is None:
        return []
    return [StoredRecord(header.base_offset, header.producer_id, is_commit=marker.commit)]
