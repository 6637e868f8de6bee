"""Fetched partitions as Arrow tables, without a Python object per record. Needs the `arrow` extra.

    topic           dictionary of string
    partition       int32
    offset          int64
    timestamp       timestamp[ms, UTC]
    timestamp_type  int32, 0 CreateTime, 1 LogAppendTime
    key, value      binary, nullable
    headers         list<struct<key: string, value: binary>>

With `value="json"` or a schema, Arrow's reader parses the values, and the fields of the objects
replace the column `value`; they are null for a record without a value. Values that are not objects
(numbers, lists, strings) become a single column `value` of their type. A field whose name collides
with another column gets the prefix `value.`. Without a schema, types are inferred from the values
at hand and may differ from one table to the next.

Checksums are always verified here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.consumer.fetched import FetchedPartition
from ottla.client.consumer.json_values import parsed
from ottla.client.errors import DeserializationFailed
from ottla.wire.records.columnar.constants import int32_column
from ottla.wire.records.columnar.decode import SCHEMA as RECORD_SCHEMA
from ottla.wire.records.columnar.decode import decode_fetch
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.errors import BatchError

COLUMNS = (
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
)  # fmt: skip
TIMESTAMP = pa.timestamp("ms", tz="UTC")
TYPES = {
    "topic": pa.field("topic", pa.dictionary(pa.int32(), pa.string()), False),
    "partition": pa.field("partition", pa.int32(), False),
    "timestamp": pa.field("timestamp", TIMESTAMP, False),
    **{name: RECORD_SCHEMA.field(name) for name in RECORD_SCHEMA.names if name != "timestamp"},
}


class TableReader:
    """Converter from fetched data to record batches with the requested columns."""

    def __init__(
        self, columns: Sequence[str] | None = None, value: str | None = None, schema: Any = None
    ) -> None:
        """Raise ValueError for invalid columns or options."""
        self.columns = tuple(COLUMNS if columns is None else columns)
        for name in self.columns:
            if name not in TYPES:
                raise ValueError(
                    f"Column {name!r} does not exist. Use any of: {', '.join(COLUMNS)}."
                )
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError("columns must name at least one column, and each only once.")
        if value not in (None, "json"):
            raise ValueError(f"value must be 'json' or None, not {value!r}.")
        self._is_json = value == "json" or schema is not None
        self._json_schema = schema
        if self._is_json and "value" not in self.columns:
            raise ValueError("Parsing values requires the column value in columns.")
        self.schema = pa.schema([TYPES[name] for name in self.columns])
        wanted = [name for name in RECORD_SCHEMA.names if name in self.columns]
        self._decoded = wanted or ["offset"]

    def read(self, fetched: FetchedPartition, end_offset: int) -> tuple[list[Any], int]:
        """Return the records before an offset, and the position after them."""
        if fetched.end_offset <= fetched.next_offset:
            fetched.peek(1)  # there is no complete batch: this raises the reason
        batches: list[Any] = []
        position = fetched.next_offset
        try:
            for part in decode_fetch(
                fetched.records,
                self._decoded,
                first_offset=fetched.next_offset,
                end_offset=end_offset,
                aborted=fetched.aborted,
            ):
                position = part.next_offset
                if part.batch.num_rows:
                    batches.append(self._batch(part.batch, fetched.state.tp))
        except BatchError as error:
            if not batches:
                raise fetched.unreadable(error) from error
        return batches, position

    def _batch(self, decoded: Any, tp: TopicPartition) -> Any:
        rows = decoded.num_rows
        arrays = []
        for name in self.columns:
            if name == "topic":
                array = pa.DictionaryArray.from_arrays(
                    int32_column(0, rows), _dictionary(tp.topic), safe=False
                )
            elif name == "partition":
                array = int32_column(tp.partition, rows)
            elif name == "timestamp":
                array = decoded.column(name).view(TIMESTAMP)
            else:
                array = decoded.column(name)
            arrays.append(array)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._is_json:
            return self._with_parsed_values(batch, tp, decoded)
        return batch

    def table(self, batches: list[Any]) -> Any:
        """Combine batches into one table, unifying their schemas if necessary."""
        if not batches:
            return self._final_schema().empty_table()
        if not self._is_json or self._json_schema is not None:
            return pa.Table.from_batches(batches)
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        return pa.concat_tables(tables, promote_options="permissive")

    def _final_schema(self) -> Any:
        if not self._is_json:
            return self.schema
        parsed = list(self._json_schema) if self._json_schema is not None else []
        names = set(self.columns) - {"value"}
        fields: list[Any] = []
        for field in self.schema:
            if field.name == "value":
                fields += [each.with_name(_unique_name(each.name, names)) for each in parsed]
            else:
                fields.append(field)
        return pa.schema(fields)

    # ------------------------------------------------------------------------------------- JSON

    def _with_parsed_values(self, batch: Any, tp: TopicPartition, decoded: Any) -> Any:
        values = batch.column(self.columns.index("value"))
        try:
            parsed = self._parse(values)
        except pa.ArrowInvalid as error:
            raise _bad_json(values, tp, decoded, error) from error
        names = set(self.columns) - {"value"}
        arrays, fields = [], []
        for name, array in zip(self.columns, batch.columns, strict=True):
            if name != "value":
                arrays.append(array)
                fields.append(TYPES[name])
                continue
            for field, column in zip(parsed.schema, parsed.columns, strict=True):
                arrays.append(column)
                fields.append(field.with_name(_unique_name(field.name, names)))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _parse(self, values: Any) -> Any:
        schema = self._json_schema
        if schema is None:
            objects = parsed(values)
        else:
            objects = parsed(values, pa.struct(list(schema)), unexpected="ignore")
        if pa.types.is_null(objects.type):
            objects = objects.cast(pa.struct([]))
        if not pa.types.is_struct(objects.type):
            return pa.RecordBatch.from_arrays([objects], names=["value"])
        return pa.RecordBatch.from_struct_array(objects)


@lru_cache(256)
def _dictionary(topic: str) -> Any:
    return pa.array([topic])


def _unique_name(name: str, taken: set[str]) -> str:
    return f"value.{name}" if name in taken else name


def _bad_json(
    values: Any, tp: TopicPartition, decoded: Any, error: Exception
) -> DeserializationFailed:
    """Return an error that names the first record whose value is not a JSON object, if any."""
    index = 0
    for number, value in enumerate(values):
        text = value.as_py()
        try:
            is_good = text is None or isinstance(json.loads(text), dict)
        except ValueError:
            is_good = False
        if not is_good:
            index = number
            break
    has_offsets = "offset" in decoded.schema.names
    offset = decoded.column("offset")[index].as_py() if has_offsets else -1
    where = f"{tp} at offset {offset}" if has_offsets else f"{tp}"
    return DeserializationFailed(
        f"the values from {where} on cannot be parsed as JSON objects of one schema: {error}",
        topic=tp.topic, partition=tp.partition, offset=offset,
    )  # fmt: skip
