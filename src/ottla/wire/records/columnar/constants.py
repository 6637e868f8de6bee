"""Columns with the same value in every row, created without work per row.

Arrow arrays are immutable, so many can share one buffer: of zeros (the offsets and validity bits of
a column that is null or empty everywhere), or of one repeated number. Cached memory is bounded by
`MAX_KEPT` and `_KEPT_NUMBERS`; larger buffers are created on demand.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa

MAX_KEPT = 512 * 1024
"""Maximum size of a cached buffer."""
_KEPT_NUMBERS = 32
_SMALLEST = 4096

_zeros = pa.py_buffer(bytes(MAX_KEPT))


def zeros(size: int) -> Any:
    """Return a buffer of `size` zero bytes."""
    return _zeros.slice(0, size) if size <= MAX_KEPT else pa.py_buffer(bytes(size))


def int32_column(number: int, rows: int) -> Any:
    """Return an int32 array that repeats one number."""
    size = rows * 4
    if not number:
        buffer = zeros(size)
    elif size <= MAX_KEPT:
        # Rounded up to a power of two, or every length would need its own cache entry.
        buffer = _repeated(number, max(1 << (size - 1).bit_length(), _SMALLEST)).slice(0, size)
    else:
        buffer = pa.py_buffer(np.full(rows, number, np.int32))
    return pa.Array.from_buffers(pa.int32(), rows, [None, buffer], null_count=0)


def null_column(rows: int) -> Any:
    """Return a binary array that contains only nulls."""
    buffers = [zeros((rows + 7) // 8), zeros(4 * (rows + 1)), zeros(0)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=rows)


@lru_cache(_KEPT_NUMBERS)
def _repeated(number: int, size: int) -> Any:
    return pa.py_buffer(np.full(size // 4, number, np.int32))
