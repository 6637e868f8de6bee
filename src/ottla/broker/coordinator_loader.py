"""Loading a shard: every record of its partition, in order, applied.

The log is read, checked and decoded in a thread, a buffer at a time; the records are applied on the
loop, a few at a time, so that requests are served in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from ottla.base.ports import ReadableBuffer
from ottla.broker.partition import Partition
from ottla.core.coordinator import NO_PRODUCER_ID, Shard
from ottla.storage.log import Log
from ottla.wire.records.batch import BatchHeader, iter_headers
from ottla.wire.records.builder import read_end_txn_marker
from ottla.wire.records.record import iter_records

logger = logging.getLogger(__name__)

APPLIED_PER_TURN = 1_000


class Stored(NamedTuple):
    """A record of a coordinator, or the end of a transaction."""

    offset: int
    producer_id: int
    record: Any = None
    is_commit: bool | None = None
    """Set for the end of a transaction."""


class Chunk(NamedTuple):
    stored: list[Stored]
    next_offset: int
    unknown: int
    """Records of kinds that the shard does not know."""


async def load(
    partition: Partition,
    shard: Shard,
    buffer_bytes: int,
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    is_wanted: Callable[[], bool],
) -> int:
    """Apply everything. Returns how many records that was; gives up between two steps once it is
    not wanted any more. Raises KafkaError if the log is damaged.

    A new leader hears late how far the high watermark was, so what was granted may be behind the
    one it knows; and all that it has will be committed, as long as it leads."""
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
        for start in range(0, len(chunk.stored), APPLIED_PER_TURN):
            if not is_wanted():
                return count
            _apply(shard, chunk.stored[start : start + APPLIED_PER_TURN])
            await asyncio.sleep(0)
        offset = chunk.next_offset
    if unknown:
        logger.warning("%s: %d records of unknown kinds are left alone", partition.key, unknown)
    return count


def _apply(shard: Shard, stored: list[Stored]) -> None:
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
    """Raises KafkaError if the log is damaged."""
    found = log.read(offset, buffer_bytes, end, at_least_one=True, wait=True)
    data, next_offset = cast("ReadableBuffer", found.records), found.next_offset
    stored: list[Stored] = []
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
                logger.error("%s: offset %d is skipped: %s", log.partition, record.offset, error)
                continue
            if decoded is None:
                unknown += 1
            else:
                stored.append(Stored(record.offset, producer_id, decoded))
    return Chunk(stored, next_offset, unknown)


def _marker(batch: bytes, header: BatchHeader) -> list[Stored]:
    marker = read_end_txn_marker(batch)
    if marker is None:
        return []
    return [Stored(header.base_offset, header.producer_id, is_commit=marker.commit)]
