"""Batches of a fetch response that are decoded together.

A part consists of the records of some batches and a table of their positions. The records lie in
the fetch response itself or, if any of them was compressed, one after another in new memory.

Invariants: a part holds at most `max_part_size` bytes of records, or a single batch, and never more
than 32-bit offsets can address. The bytes of a batch can hold as many records as its header claims.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.wire.records.batch import HEADER_SIZE, BatchHeader
from ottla.wire.records.columnar.decode_kernels import (
    BASE_OFFSET,
    BATCH_FIELDS,
    SMALLEST_RECORD,
)
from ottla.wire.records.columnar.jit import as_input
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import BatchError, CorruptBatch
from ottla.wire.records.record import read_records

MAX_BYTES = 0x7FFFFFFF
"""Maximum size that 32-bit offsets can address."""


class FetchPart(NamedTuple):
    """Batches that are decoded by one call of the kernel."""

    data: Any
    """Input of the kernel: a read-only array of bytes."""
    table: Any
    """Batches with wanted records, one row of `BATCH_FIELDS` each."""
    record_count: int
    record_bytes: int
    """Decompressed size of all records."""
    size: int
    """Size of the fetch response up to the end of this part."""
    next_offset: int
    positions: Sequence[int] = ()
    """Positions in the fetch response of the batches in `table`."""

    def up_to(self, index: int) -> tuple[int, int]:
        """Return the position in the fetch response and the base offset of a batch."""
        return self.positions[index], int(self.table[index, BASE_OFFSET])


def iter_parts(
    records: Buffer,
    batches: Iterator[tuple[BatchHeader, bool]],
    max_size: int,
    max_part_size: int,
) -> Iterator[FetchPart]:
    """Group the batches from `iter_fetched` into parts.

    Raises:
        BatchError: A batch is damaged. The batches before it have been yielded.
    """
    failure: BatchError | None = None
    max_part_size = min(max_part_size, MAX_BYTES)
    gathered = _Gathered(records)
    try:
        for header, is_wanted in batches:
            if not is_wanted:
                gathered.skip(header)
                continue
            section = _section(records, header, min(max_size, MAX_BYTES))
            if header.record_count * SMALLEST_RECORD > len(section):
                raise malformed(header.base_offset, 0)
            if gathered.record_bytes and gathered.record_bytes + len(section) > max_part_size:
                yield gathered.part()
                gathered = _Gathered(records)
            gathered.add(header, section)
    except BatchError as error:
        failure = error
    if gathered.size:
        yield gathered.part()
    if failure is not None:
        raise failure


def failure_of(part: FetchPart, index: int, position: int) -> CorruptBatch:
    """Return the error for a batch of a part that does not parse."""
    return malformed(int(part.table[index, BASE_OFFSET]), position)


def malformed(base_offset: int, position: int) -> CorruptBatch:
    return CorruptBatch(
        f"the batch at offset {base_offset} is malformed from byte {position} of its records",
        ErrorCode.INVALID_RECORD,
    )


def _section(records: Buffer, header: BatchHeader, max_size: int) -> Buffer:
    """Return the decompressed records of a batch, or a view if they are not compressed."""
    if header.compression:
        return read_records(records, header, max_size)
    return memoryview(records)[header.position + HEADER_SIZE : header.end]


class _Gathered:
    """Batches collected for the next part."""

    def __init__(self, records: Buffer) -> None:
        self._records = records
        self._headers: list[BatchHeader] = []
        self._sections: list[Buffer] = []
        self.record_bytes = 0
        self.size = 0
        self.next_offset = 0

    def skip(self, header: BatchHeader) -> None:
        self.size = header.end
        self.next_offset = max(self.next_offset, header.next_offset)

    def add(self, header: BatchHeader, section: Buffer) -> None:
        self._headers.append(header)
        self._sections.append(section)
        self.record_bytes += len(section)
        self.skip(header)

    def part(self) -> FetchPart:
        data: Any = self._records
        if any(header.compression for header in self._headers):
            data, ends = _joined(self._sections)
            starts = [0, *ends[:-1]]
        else:
            starts = [header.position + HEADER_SIZE for header in self._headers]
            ends = [header.end for header in self._headers]
        fields, count = array("q"), 0
        for start, end, header in zip(starts, ends, self._headers, strict=True):
            count += header.record_count
            fields.extend((
                start, end, header.record_count, header.base_offset, header.last_offset_delta,
                header.base_timestamp, header.timestamp_type, header.max_timestamp,
            ))  # fmt: skip
        table = np.array(fields, np.int64).reshape(-1, BATCH_FIELDS)
        table.setflags(write=False)
        positions = [header.position for header in self._headers]
        reached = self.size, self.next_offset
        return FetchPart(as_input(data), table, count, self.record_bytes, *reached, positions)


def _joined(sections: Sequence[Buffer]) -> tuple[Any, list[int]]:
    """Concatenate sections, and return the buffer and the end of each section."""
    ends = list(accumulate(map(len, sections)))
    joined = pa.allocate_buffer(ends[-1])
    with memoryview(joined).cast("B") as view:
        for section, end in zip(sections, ends, strict=True):
            view[end - len(section) : end] = section
    return joined, ends
