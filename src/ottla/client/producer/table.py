"""Encoding of Arrow tables as record batches, without a Python object per record.

Columns map to the parts of a record as follows:

    key         name of a column, names of several, or None
    value       the same; None means an object of all columns that have no other role
    headers     name of a column of type list<struct<key, value>> or map
    timestamp   name of a column (int64 in ms, or timestamp), or one number for all rows
    partition   name of an integer column, or one number; by default the key determines the
                partition as for single records, and rows without a key rotate among partitions

A single column that `key` or `value` names is used unchanged if it holds bytes or strings, and is
encoded as JSON otherwise (`client/table_json.py`). Several columns become a JSON object. With
`value=None`, even a single remaining column becomes a JSON object, so that `read_table` with
`value="json"` returns the same columns; only a column of bytes, which JSON cannot represent, is
used unchanged.

A table is processed in chunks of `PIECE_ROWS` rows. Encoding runs in the calling thread; each
encoded batch waits for its share of `buffer.memory`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.base.errors import ErrorCode, UserError
from ottla.client.errors import RecordTooLarge, SerializationFailed, UnknownTopic
from ottla.client.metadata import TopicMetadata
from ottla.client.producer.batch import EncodedBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.row_encoder import RowEncoder
from ottla.client.table_json import json_column
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.partition import group_rows, partition_by_key
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.errors import BatchError

PIECE_ROWS = 131_072

Columns = str | Sequence[str] | None


class TableEncoder:
    """Iterable over the encoded batches of one table, in order."""

    def __init__(
        self,
        config: ProducerConfig,
        topic: TopicMetadata,
        table: Any,
        *,
        key: Columns,
        value: Columns,
        headers: str | None,
        timestamp: str | int | None,
        partition: str | int | None,
        first_round_robin_index: int,
    ) -> None:
        self._config = config
        self._topic = topic
        self._table = _as_table(table)
        self._key = _names(key)
        self._headers = headers
        self._timestamp = timestamp
        self._partition = partition
        taken = {*self._key, headers, timestamp, partition}
        self._is_value_named = value is not None
        self._value = (
            _names(value)
            if value is not None
            else [name for name in self._table.column_names if name not in taken]
        )
        self._round_robin_index = first_round_robin_index
        self._rows = RowEncoder(config)
        self._check()

    def _check(self) -> None:
        named = [*self._key, *self._value]
        named += [each for each in (self._headers, self._timestamp, self._partition)
                  if isinstance(each, str)]  # fmt: skip
        for name in named:
            if name not in self._table.column_names:
                there = ", ".join(self._table.column_names)
                raise UserError(f"The table has no column {name!r}; it has {there}.")
        if not self._value and not self._key:
            raise UserError("The table has no column left for the value.")
        if isinstance(self._partition, int) and not (
            0 <= self._partition < self._topic.partition_count
        ):
            raise UnknownTopic(
                f"topic {self._topic.name!r} has no partition {self._partition}; "
                f"it has {self._topic.partition_count} partitions",
                topic=self._topic.name,
                partition=self._partition,
            )

    def __iter__(self) -> Iterator[EncodedBatch]:
        for piece in self._table.to_batches(max_chunksize=PIECE_ROWS):
            if not piece.num_rows:
                continue
            try:
                yield from self._encode(piece)
            except BatchError as error:
                kind = RecordTooLarge if error.code == ErrorCode.MESSAGE_TOO_LARGE else None
                raise (kind or SerializationFailed)(
                    f"a row of the table cannot be sent to topic {self._topic.name!r}: {error}",
                    code=error.code,
                    topic=self._topic.name,
                ) from error
            except (TypeError, ValueError, pa.ArrowException) as error:
                raise SerializationFailed(
                    f"the table cannot be sent to topic {self._topic.name!r}: {error}",
                    code=ErrorCode.INVALID_RECORD,
                    topic=self._topic.name,
                ) from error

    def _encode(self, piece: Any) -> Iterator[EncodedBatch]:
        key = self._field(piece, self._key)
        now_ms = int(time.time() * 1000)
        default_ms = self._timestamp if isinstance(self._timestamp, int) else now_ms
        columns = RecordColumns(
            key=key,
            value=self._field(piece, self._value, is_object=not self._is_value_named),
            headers=None if self._headers is None else piece.column(self._headers),
            timestamp=piece.column(self._timestamp) if isinstance(self._timestamp, str) else None,
            default_timestamp_ms=default_ms,
        )
        for partition, rows in self._partitioned(piece, key):
            yield from self._rows.encode(self._topic.name, partition, columns, rows)

    def _field(self, piece: Any, names: list[str], *, is_object: bool = False) -> Any:
        if not names:
            return None
        is_one = len(names) == 1
        if is_one and _is_plain(piece.schema.field(names[0]).type, is_object=is_object):
            return piece.column(names[0])
        return json_column(piece, names, is_object=is_object or not is_one)

    def _partitioned(self, piece: Any, key: Any) -> Iterator[tuple[int, Any]]:
        """Yield each partition with its rows; None stands for all rows."""
        if isinstance(self._partition, int):
            yield self._partition, None
            return
        count = self._topic.partition_count
        if isinstance(self._partition, str):
            chosen = piece.column(self._partition).cast(pa.int32())
            if chosen.null_count:
                raise ValueError(f"the partition column {self._partition!r} contains nulls")
            partitions = chosen.to_numpy(zero_copy_only=False)
        elif key is None or self._config.partitioner_ignore_keys:
            yield self._next_round_robin(), None
            return
        else:
            partitions = partition_by_key(key, count, self._next_round_robin())
        groups = group_rows(np.asarray(partitions, np.int32), count)
        for partition in groups.partitions:
            yield partition, groups.rows(partition)

    def _next_round_robin(self) -> int:
        choices = self._topic.available or range(self._topic.partition_count)
        self._round_robin_index += 1
        return choices[self._round_robin_index % len(choices)]


def _as_table(rows: Any) -> Any:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    has_interface = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    # pandas implements the interface, too, but exports its index as column __index_level_0__.
    if has_interface and not _is_pandas(rows):
        return pa.table(rows)
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except (TypeError, AttributeError, ImportError, pa.ArrowException):
        raise UserError(
            f"Expected a pyarrow Table or an object that Arrow can convert, "
            f"not {type(rows).__name__}."
        ) from None


def _is_pandas(rows: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def _names(columns: Columns) -> list[str]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


_BYTES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)  # fmt: skip
_TEXTS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null,
)  # fmt: skip


def _is_plain(kind: Any, *, is_object: bool) -> bool:
    """Return whether a single column is used unchanged instead of encoded as JSON.

    Args:
        kind: Arrow type of the column.
        is_object: Whether the column would otherwise be the only field of a JSON object.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in (_BYTES if is_object else _BYTES + _TEXTS))
