"""Which batches of a fetched partition a reader is given.

A fetch answers with whole batches, the first of which may begin before the offset that was asked
for, and the last of which may be cut off. Of these a reader wants those that hold records at its
offsets, unharmed; never control batches; and, if it reads committed records only, none of an
aborted transaction. The answer names these as (producer id, first offset): from there on the
producer's transactional batches are void until its abort marker, which lies in the log as a control
batch. A producer may abort many times in one fetch, and commit in between.

Each batch that is given was checked by `validate`. Pure: the bytes and the bounds decide."""

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
"""A producer's id, and the first offset of the transaction that it aborted."""


def iter_fetched(
    records: Buffer,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Iterable[AbortedTransaction] | None = None,
) -> Iterator[tuple[BatchHeader, bool]]:
    """Every whole batch that begins before `end_offset`, and whether its records are wanted.

    Without `aborted` all transactions are read, finished or not. One that is not wanted still moves
    the reader on, to its `next_offset`. Raises `BatchError` at the first batch that is damaged."""
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
    """Raises CorruptBatch for offsets that no batch of a log can have."""
    last_delta = header.last_offset_delta
    if last_delta < 0 or not 0 <= header.base_offset <= MAX_OFFSET - last_delta - 1:
        raise CorruptBatch(f"the batch at byte {header.position} has impossible offsets")


class AbortedProducers:
    """The producers whose transactions are void at the batch that is looked at."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._current: set[int] = set()

    def covers(self, records: Buffer, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction. Ask for each, in their order."""
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
    """Messages of the old formats can be shorter than a batch's header: not a batch cut off."""
    available = len(records) - position
    if MAGIC_AT < available < HEADER_SIZE and records[position + MAGIC_AT] < MAGIC:
        raise UnsupportedMagic(f"message format {records[position + MAGIC_AT]} is not supported")
