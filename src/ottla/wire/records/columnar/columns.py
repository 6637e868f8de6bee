"""Arrow columns as the buffers that kernels read.

    key, value   binary or string, also large, view, fixed-size and dictionary types, or null
    headers      list<struct<key, value>> of such columns, or a map; null means no headers
    timestamp    int64 (ms since the epoch) or timestamp; null means the default

The buffers are extracted once, for any number of batches. Slices are read in place. A chunked
column with several chunks is copied into one (use `to_batches()` of a table to avoid that). Types
that are not stored as one run of bytes with offsets are cast. Arrow is trusted: the kernels do not
check hand-made columns whose buffers contradict each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.records.columnar.jit import as_input
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa

NO_TIMESTAMP = -1
_TIME_LIMIT = 1 << 62
_NO_NUMBERS = np.empty(0, np.int64)
_NO_NUMBERS.setflags(write=False)


class ItemColumn(NamedTuple):
    """A column of items of variable length: bytes, or headers, whose data is elsewhere."""

    data: Any
    ends: Any
    width: int
    """Size of an element of `ends`; 0 for an absent column, which is null everywhere."""
    valid: Any
    first_bit: int

    @property
    def layout(self) -> tuple[int, int, int]:
        return self.width, int(len(self.valid) > 0), self.first_bit


_ABSENT = ItemColumn(as_input(None), as_input(None), 0, as_input(None), 0)


class RecordColumns:
    """The columns of records that have no offsets yet."""

    def __init__(
        self,
        *,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        timestamp: Any = None,
        default_timestamp_ms: int = NO_TIMESTAMP,
    ) -> None:
        """Extract the buffers of the columns.

        Args:
            key: Keys, as a pyarrow Array or ChunkedArray of the same length as the others, or None.
            value: Values.
            headers: Headers.
            timestamp: Timestamps.
            default_timestamp_ms: Timestamp of rows without one.

        Raises:
            ValueError: The lengths differ, or a timestamp is out of range.
            TypeError: A column has an unsupported type.
        """
        columns = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"columns of one length are needed, not {lengths or 'none at all'}")
        self.row_count = next(iter(lengths.values()))
        self.key = _ABSENT if key is None else _bytes_column("key", key)
        self.value = _ABSENT if value is None else _bytes_column("value", value)
        self.headers, self.names, self.header_values = _header_columns(headers)
        self.default_timestamp_ms = _checked_time(default_timestamp_ms)
        self.timestamps = _timestamps(timestamp, default_timestamp_ms)
        self.layout = np.array(
            [
                column.layout
                for column in (self.key, self.value, self.headers, self.names, self.header_values)
            ],
            np.int64,
        )
        self.layout.setflags(write=False)


def as_key_column(column: Any) -> ItemColumn:
    """Return the buffers of a key column, for partitioning."""
    return _bytes_column("key", column)


def _bytes_column(name: str, column: Any) -> ItemColumn:
    array = _one_array(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_null(kind):
        return _ABSENT
    if any(is_kind(kind) for is_kind in _SCATTERED_BYTES):
        array = array.cast(pa.large_binary())
    elif not _is_run_of_bytes(kind):
        raise TypeError(f"the {name} column is {kind}; it must be binary or string: cast it first")
    valid, ends, data = array.buffers()
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return _item_column(array, valid, ends, data, 8 if is_large else 4)


_RUNS_OF_BYTES = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)


def _is_run_of_bytes(kind: Any) -> bool:
    return any(is_kind(kind) for is_kind in _RUNS_OF_BYTES)


_SCATTERED_BYTES = (
    pa.types.is_binary_view,
    pa.types.is_string_view,
    pa.types.is_fixed_size_binary,
)


def _item_column(array: Any, valid: Any, ends: Any, data: Any, width: int) -> ItemColumn:
    if not len(array):
        return _ABSENT
    first = array.offset
    bits = as_input(valid if array.null_count else None)
    return ItemColumn(as_input(data), as_input(ends)[first * width :], width, bits, first)


def _header_columns(column: Any) -> tuple[ItemColumn, ItemColumn, ItemColumn]:
    if column is None:
        return _ABSENT, _ABSENT, _ABSENT
    array = _one_array(column)
    kind = array.type
    if pa.types.is_null(kind):
        return _ABSENT, _ABSENT, _ABSENT
    if pa.types.is_map(kind):
        names, values = array.keys, array.items
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        names, values = _pair_columns(array)
    else:
        raise _wrong_headers(kind)
    width = 8 if pa.types.is_large_list(kind) else 4
    valid, ends = array.buffers()[:2]
    lists = _item_column(array, valid, ends, None, width)
    return lists, _bytes_column("header key", names), _bytes_column("header value", values)


def _pair_columns(array: Any) -> tuple[Any, Any]:
    pairs = array.values
    if not pa.types.is_struct(pairs.type):
        raise _wrong_headers(array.type)
    fields = {field.name: index for index, field in enumerate(pairs.type)}
    if fields.keys() != {"key", "value"}:
        raise _wrong_headers(array.type)
    columns = pairs.flatten()  # turns a null pair into a null key, which is rejected later
    return columns[fields["key"]], columns[fields["value"]]


def _wrong_headers(kind: Any) -> TypeError:
    return TypeError(
        f"the headers column is {kind}; headers are list<struct<key: string, value: binary>>"
    )


def _timestamps(column: Any, default_ms: int) -> Any:
    if column is None or not len(column):
        return _NO_NUMBERS
    array = _one_array(column)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
    elif pa.types.is_null(array.type):
        return _NO_NUMBERS
    elif not pa.types.is_int64(array.type):
        raise TypeError(f"the timestamp column is {array.type}; it must be int64 (ms) or timestamp")
    if array.null_count:
        array = array.fill_null(default_ms)
    numbers = array.to_numpy(zero_copy_only=True)
    _checked_time(int(numbers.min()))
    _checked_time(int(numbers.max()))
    numbers = np.ascontiguousarray(numbers)
    numbers.setflags(write=False)
    return numbers


def _checked_time(timestamp_ms: int) -> int:
    if not -_TIME_LIMIT < timestamp_ms < _TIME_LIMIT:
        raise ValueError(f"{timestamp_ms} is not a valid record timestamp")
    return timestamp_ms


def _one_array(column: Any) -> Any:
    if isinstance(column, pa.Array):
        return column
    if not isinstance(column, pa.ChunkedArray):
        raise TypeError(f"a column is a pyarrow Array or ChunkedArray, not {type(column).__name__}")
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        joined = column.combine_chunks()
    except pa.ArrowInvalid as error:  # larger than 32-bit offsets can address
        if not _is_run_of_bytes(column.type):
            raise ValueError(f"a column is too large; take slices of the table: {error}") from None
        joined = column.cast(pa.large_binary()).combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
