"""Selection of the batches in a fetch response that a consumer should see.

A fetch response contains complete batches, except that the last one may be cut off, and the first
one may begin before the requested offset. A consumer wants intact batches with records at its
offsets, never control batches, and, with read_committed, no batches of aborted transactions. The
response lists those as (producer ID, first offset): from that offset on, the transactional batches
of the producer are aborted, up to its abort marker, which is a control batch in the log. A producer
may abort several transactions within one response, and commit others in between.

Every batch that is returned has been checked by `validate`. The result depends only on the
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ottla.wire.records.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    iter_headers,
    validate,
)
from ottla.wire.records.builder import ControlType, control_type
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import CorruptBatch, UnsupportedMagic

MAX_OFFSET = 0x7FFFFFFFFFFFFFFF

AbortedTransaction: TypeAlias = tuple[int, int]
"""Producer ID and first offset of an aborted transaction."""


def iter_fetched(
    records: Buffer,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Iterable[AbortedTransaction] | None = None,
) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield each complete batch before `end_offset`, and whether its records are wanted.

    A batch that is not wanted still advances the consumer to its `next_offset`.

    Args:
        records: The `records` field of a fetch response.
        first_offset: Requested offset; batches that end before it are not wanted.
        end_offset: Batches from this offset on are not returned.
        aborted: Aborted transactions in the response. With None, batches of all transactions are
            wanted, whether complete or not.

    Raises:
        BatchError: A batch is damaged. All batches before it have been returned.
    """
    void = AbortedProducers(aborted) if aborted is not None else None
    end = 0
    for header in iter_headers(records):
        if header.base_offset >= end_offset:
            return
        end = header.end
        validate(records, header.position, header)
        check_offsets(header)
        is_void = void is not None and void.covers(records, header)
        is_below = header.last_offset < first_offset
        yield header, not (is_below or is_void or header.is_control)
    _refuse_old_tail(records, end)


def check_offsets(header: BatchHeader) -> None:
    """Raise CorruptBatch for offsets that no batch in a log can have."""
    last_delta = header.last_offset_delta
    if last_delta < 0 or not 0 <= header.base_offset <= MAX_OFFSET - last_delta - 1:
        raise CorruptBatch(f"the batch at byte {header.position} has invalid offsets")


class AbortedProducers:
    """The producers with an aborted transaction at the current batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._current: set[int] = set()

    def covers(self, records: Buffer, header: BatchHeader) -> bool:
        """Return whether a batch is part of an aborted transaction.

        Must be called for every batch, in log order.
        """
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._current.add(self._coming.pop()[0])
        if header.producer_id not in self._current:
            return False
        if header.is_control:
            if control_type(records, header) is ControlType.ABORT:
                self._current.discard(header.producer_id)
            return False
        return header.is_transactional


def _refuse_old_tail(records: Buffer, position: int) -> None:
    """Reject a message of an old format, which may be shorter than the header of a batch.

    Otherwise it would look like an incomplete batch.
    """
    available = len(records) - position
    if MAGIC_AT < available < HEADER_SIZE and records[position + MAGIC_AT] < MAGIC:
        raise UnsupportedMagic(f"message format {records[position + MAGIC_AT]} is not supported")
