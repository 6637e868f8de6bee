"""Decoding of fetched records to Arrow.

    offset          int64
    timestamp       int64, ms since the epoch: the producer's, or the broker's (LogAppendTime)
    timestamp_type  int32, 0 CreateTime, 1 LogAppendTime
    key, value      binary, nullable
    headers         list<struct<key: string, value: binary>>, empty if a record has none

Only requested columns are created, and headers are not parsed unless requested. All batches of a
fetch response are decoded in one kernel call, because the fixed cost of a call is that of 500
records. Responses without special cases take the fast path (scan.py).

Invariants: a part has at most `max_part_size` bytes of records, or a single batch, so memory stays
bounded whatever a response decompresses to. Batches before a damaged one are returned before the
error is raised. The columns share no memory with the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.wire.records.columnar import decode_kernels as k
from ottla.wire.records.columnar.constants import int32_column, null_column, zeros
from ottla.wire.records.columnar.parts import MAX_BYTES, FetchPart, failure_of, iter_parts
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.columnar.scan import scan_fetch
from ottla.wire.records.compression import MAX_DECOMPRESSED
from ottla.wire.records.crc import Buffer
from ottla.wire.records.fetched import MAX_OFFSET, AbortedTransaction, iter_fetched

MAX_PART_SIZE = 64 * 1024 * 1024
HEADER_TYPE = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), False),
        pa.field("timestamp", pa.int64(), False),
        pa.field("timestamp_type", pa.int32(), False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("item", HEADER_TYPE, False)), False),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
_BITS = dict(
    zip(COLUMNS, (k.OFFSET, k.TIMESTAMP, k.TIMESTAMP_TYPE, k.KEY, k.VALUE, k.HEADERS), strict=True)
)


class DecodedRecords(NamedTuple):
    """Records of a fetch response, and the position that was reached."""

    batch: Any
    """A `pyarrow.RecordBatch` with the requested columns, in the requested order."""
    next_offset: int
    """Offset to fetch next. It may lie after the last record if later batches were filtered out."""
    size: int
    """Size of the fetch response up to here."""


def decode_fetch(
    records: Buffer,
    columns: Sequence[str] = COLUMNS,
    *,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    aborted: Iterable[AbortedTransaction] | None = None,
    max_size: int = MAX_DECOMPRESSED,
    max_part_size: int = MAX_PART_SIZE,
) -> Iterator[DecodedRecords]:
    """Decode the records of one partition in a fetch response.

    Args:
        records: The `records` field of the response.
        columns: Names of the columns to create.
        first_offset: Records before this offset are left out.
        end_offset: Records from this offset on are left out.
        aborted: Aborted transactions, whose records are left out. With None, the records of all
            transactions are decoded (read_uncommitted).
        max_size: Maximum decompressed size of one batch.
        max_part_size: Maximum size of the records of one result.

    Yields:
        The records in as few parts as possible: nearly always one, none if there is no complete
        batch. Control batches are left out.

    Raises:
        BatchError: A batch is damaged or has an old format. The records before it have been
            yielded.
        ValueError: A column is unknown or requested twice, or none is requested.
    """
    mask = _mask(columns)
    if not aborted and len(records) <= min(max_part_size, MAX_BYTES):
        plain = scan_fetch(records, first_offset, end_offset)
        if plain is not None:
            reader = _Reader(plain, mask)
            if reader.read(first_offset, end_offset) is None:
                if plain.size:
                    next_offset = min(max(first_offset, plain.next_offset), end_offset)
                    yield DecodedRecords(reader.record_batch(columns), next_offset, plain.size)
                return
    batches = iter_fetched(records, first_offset, end_offset, aborted)
    for part in iter_parts(records, batches, max_size, max_part_size):
        reader = _Reader(part, mask)
        failed = reader.read(first_offset, end_offset)
        size, next_offset = part.size, part.next_offset
        if failed is not None:
            size, next_offset = part.up_to(failed[0])
        if size:
            next_offset = min(max(first_offset, next_offset), end_offset)
            yield DecodedRecords(reader.record_batch(columns), next_offset, size)
        if failed is not None:
            raise failure_of(part, *failed)


def _mask(columns: Sequence[str]) -> int:
    mask = 0
    for name in columns:
        bit = _BITS.get(name)
        if bit is None:
            raise ValueError(f"records have no column {name!r}; they have {', '.join(COLUMNS)}")
        if mask & bit:
            raise ValueError(f"the column {name!r} is requested twice")
        mask |= bit
    if not mask:
        raise ValueError(f"request at least one column of {', '.join(COLUMNS)}")
    return mask


class _Reader:
    """The Arrow buffers for one part, with the maximum size that its records can need."""

    def __init__(self, part: FetchPart, mask: int) -> None:
        self._data, self._table = part.data, part.table
        self._only_type = _only_type(part.table)
        if self._only_type is not None:
            mask &= ~k.TIMESTAMP_TYPE
        self._mask = mask
        count, size = part.record_count, part.record_bytes
        self._offsets = _Output(count if mask & k.OFFSET else 0, np.int64)
        self._timestamps = _Output(count if mask & k.TIMESTAMP else 0, np.int64)
        self._types = _Output(count if mask & k.TIMESTAMP_TYPE else 0, np.int32)
        self._keys = _Contents(count, size) if mask & k.KEY else _NO_CONTENTS
        self._values = _Contents(count, size) if mask & k.VALUE else _NO_CONTENTS
        self._headers_at = _Output(count if mask & k.HEADERS else 0, np.int64)
        self._result = np.zeros(k.RESULT_FIELDS, np.int64)

    def read(self, first_offset: int, end_offset: int) -> tuple[int, int] | None:
        """Decode up to the first batch that does not parse.

        Returns:
            The row of that batch in the table, and the position in its records, or None.
        """
        result, keys, values = self._result, self._keys, self._values
        k.decode_records(
            self._data, self._table, first_offset, end_offset, self._mask,
            self._offsets.array, self._timestamps.array, self._types.array,
            keys.ends.array[1:], keys.data.array, keys.valid.array,
            values.ends.array[1:], values.data.array, values.valid.array,
            self._headers_at.array, result,
        )  # fmt: skip
        failed = int(result[k.FAILED_BATCH])
        return None if failed < 0 else (failed, int(result[k.FAILED_AT]))

    def record_batch(self, columns: Sequence[str]) -> Any:
        """Return the decoded records as an Arrow record batch."""
        result: list[int] = self._result.tolist()
        rows = result[k.ROWS]
        made: dict[str, Any] = {}
        for name, numbers in (
            ("offset", self._offsets),
            ("timestamp", self._timestamps),
            ("timestamp_type", self._types),
        ):
            if self._mask & _BITS[name]:
                kind = SCHEMA.field(name).type
                made[name] = pa.Array.from_buffers(kind, rows, [None, numbers.kept(rows)])
        if self._only_type is not None:
            made["timestamp_type"] = int32_column(self._only_type, rows)
        if self._mask & k.KEY:
            made["key"] = self._keys.arrow(rows, result[k.KEY_BYTES], result[k.KEY_NULLS])
        if self._mask & k.VALUE:
            made["value"] = self._values.arrow(rows, result[k.VALUE_BYTES], result[k.VALUE_NULLS])
        if self._mask & k.HEADERS:
            made["headers"] = self._headers(rows, result)
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([made[name] for name in columns], schema=schema)

    def _headers(self, rows: int, result: list[int]) -> Any:
        count = result[k.HEADER_COUNT]
        kind = SCHEMA.field("headers").type
        if not count:
            buffers = [None, zeros(4 * (rows + 1))]
            return pa.Array.from_buffers(kind, rows, buffers, null_count=0, children=[_NO_PAIRS])
        first = result[k.HEADERS_FROM]
        list_ends = _Output(rows + 1, np.int32)
        list_ends.array[: first + 1] = 0
        names = _Contents(count, result[k.NAME_BYTES])
        values = _Contents(count, result[k.HEADER_VALUE_BYTES])
        found = np.zeros(2, np.int64)
        headers_at = self._headers_at.array[first:rows]
        headers_at.setflags(write=False)
        k.decode_headers(
            self._data, headers_at, list_ends.array[first + 1 :],
            names.ends.array[1:], names.data.array,
            values.ends.array[1:], values.data.array, values.valid.array, found,
        )  # fmt: skip
        keys = names.arrow(count, result[k.NAME_BYTES], 0)
        if found[k.HAS_UPPER_BYTES]:
            keys = _as_text(keys)
        keys = keys.view(pa.string())
        contents = values.arrow(count, result[k.HEADER_VALUE_BYTES], int(found[k.HEADER_NULLS]))
        pairs = pa.StructArray.from_arrays([keys, contents], fields=list(HEADER_TYPE))
        buffers = [None, list_ends.kept(rows + 1)]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=0, children=[pairs])


class _Output:
    """A buffer that a kernel fills and Arrow keeps.

    It comes from Arrow's memory pool, which retains freed pages. On some machines, the kernel's
    zeroing of new pages takes longer than decoding into them.
    """

    def __init__(self, length: int, kind: Any) -> None:
        self._item_size = np.dtype(kind).itemsize
        self._buffer = pa.allocate_buffer(length * self._item_size, resizable=True)
        self.array = np.frombuffer(self._buffer, kind)

    def kept(self, length: int) -> Any:
        """Return the first `length` items as a buffer, and release the unused memory."""
        del self.array
        self._buffer.resize(length * self._item_size, shrink_to_fit=True)
        return self._buffer


class _Contents:
    """The buffers of a binary column that is being decoded."""

    def __init__(self, count: int, size: int) -> None:
        self.ends = _Output(count + 1, np.int32)
        self.ends.array[0] = 0
        self.data = _Output(size, np.uint8)
        self.valid = _Output((count + 7) // 8, np.uint8)
        self.valid.array[:] = 0xFF

    def arrow(self, rows: int, size: int, nulls: int) -> Any:
        if nulls == rows:
            return null_column(rows)
        valid = self.valid.kept((rows + 7) // 8) if nulls else None
        buffers = [valid, self.ends.kept(rows + 1), self.data.kept(size)]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=nulls)


_NO_CONTENTS = _Contents(0, 0)
_NO_PAIRS = pa.nulls(0, HEADER_TYPE)  # pa.array would import pandas


def _only_type(table: Any) -> int | None:
    """Return the timestamp type of the batches if it is the same for all of them, else None."""
    kinds = table[:, k.IS_APPEND_TIME]
    if not len(kinds):
        return 0
    first = int(kinds[0])
    return first if (kinds == first).all() else None


def _as_text(names: Any) -> Any:
    """Replace bytes in names that are not valid UTF-8, as Java and record.py do."""
    try:
        names.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        texts = [name.as_py().decode("utf-8", "replace") for name in names]
        return pa.array(texts, pa.string()).view(pa.binary())
    return names
