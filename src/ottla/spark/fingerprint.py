"""Checksum of a task's rows, in order, which tells whether a retry produces the same rows.

For columns of bytes, strings and numbers, it does not depend on how rows are split into batches."""

from __future__ import annotations

import zlib
from typing import Any


class Fingerprint:
    def __init__(self) -> None:
        self.rows = 0
        self._sums: dict[str, int] = {}

    def add(self, name: str, column: Any) -> None:
        """Add a column of the next rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            lengths = pc.fill_null(pc.binary_length(column), -1)
            self._update(f"{name}#", lengths.to_numpy(zero_copy_only=False).tobytes())
            self._update(name, _contents(column))
        elif pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
            numbers = pc.fill_null(column.cast(pa.int64(), safe=False), -1)
            self._update(name, numbers.to_numpy(zero_copy_only=False).tobytes())
        else:
            self._update(name, pa.record_batch([column], [name]).serialize())

    def _update(self, name: str, data: Any) -> None:
        self._sums[name] = zlib.crc32(data, self._sums.get(name, 0))

    def text(self) -> str:
        return " ".join(f"{name}={value:08x}" for name, value in sorted(self._sums.items()))


def _contents(column: Any) -> Any:
    """Return the concatenated bytes of all items, without copying."""
    import numpy as np

    _, ends, data = column.buffers()
    if data is None or not len(column):
        return b""
    bounds = np.frombuffer(ends, np.int32)
    first, last = int(bounds[column.offset]), int(bounds[column.offset + len(column)])
    return memoryview(data)[first:last]
