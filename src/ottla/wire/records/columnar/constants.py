"""Columns that are the same in every row, made without work per row.

Arrow's arrays are never written to, so one buffer can serve many: of zeros (the offsets and bits of
a column that is null or empty everywhere), or of one number. What is kept is bounded by `MAX_KEPT`
and `_KEPT_NUMBERS`; larger ones are made when they are asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ottla.wire.records.columnar.needs import numpy as np
from ottla.wire.records.columnar.needs import pyarrow as pa

MAX_KEPT = 512 * 1024
"""Bytes of a buffer that is kept."""
_KEPT_NUMBERS = 32
_SMALLEST = 4096

_zeros = pa.py_buffer(bytes(MAX_KEPT))


def zeros(size: int) -> Any:
    """A buffer of so many bytes, all 0."""
    return _zeros.slice(0, size) if size <= MAX_KEPT else pa.py_buffer(bytes(size))


def int32_column(number: int, rows: int) -> Any:
    """An int32 array of one number."""
    size = rows * 4
    if not number:
        buffer = zeros(size)
    elif size <= MAX_KEPT:
        # By powers of two, or every length would be another one to keep.
        buffer = _repeated(number, max(1 << (size - 1).bit_length(), _SMALLEST)).slice(0, size)
    else:
        buffer = pa.py_buffer(np.full(rows, number, np.int32))
    return pa.Array.from_buffers(pa.int32(), rows, [None, buffer], null_count=0)


def null_column(rows: int) -> Any:
    """A binary array without a value."""
    buffers = [zeros((rows + 7) // 8), zeros(4 * (rows + 1)), zeros(0)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=rows)


@lru_cache(_KEPT_NUMBERS)
def _repeated(number: int, size: int) -> Any:
    return pa.py_buffer(np.full(size // 4, number, np.int32))
