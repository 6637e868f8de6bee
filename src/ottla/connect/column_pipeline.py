"""Transforms and converters for a whole batch in columns; the columnar form of `pipeline`.

Each function raises NotInColumns, without side effects, for a batch that must be processed record
by record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.connect.columns import Column, Columns, NotInColumns, check_not_null, column_of
from ottla.connect.converters import Converter
from ottla.connect.data import ConnectRecord, Schema
from ottla.connect.pipeline import Chain, Conversion

LARGE_BYTES = 256 * 1024
"""Size from which a broker might reject a record, which must then be sent by itself."""


class TopicTable(NamedTuple):
    """Rows of a topic: key, value and, if present, timestamp."""

    topic: str
    table: Any


def can_transform(chain: Chain) -> bool:
    return all(
        step.transform.on_columns and (step.predicate is None or step.predicate.on_columns)
        for step in chain.steps
    )


def transformed(chain: Chain, columns: Columns) -> Columns | None:
    """Return the transformed columns, or None if the chain drops all records."""
    if not can_transform(chain):
        raise NotInColumns("a transform works on single records")
    record = columns.record
    for step in chain.steps:
        _check_nulls(record)
        try:
            if step.predicate is not None and step.predicate.test(record) == step.negate:
                continue
            done = step.transform.apply(record)
        except Exception as error:
            # The record-by-record path finds the failing record and applies the error policy.
            raise NotInColumns(str(error)) from error
        if done is None:
            return None
        record = done
    if record.headers:
        raise NotInColumns("records have headers")
    return Columns(record, columns.rows)


def _check_nulls(record: ConnectRecord) -> None:
    """Raise NotInColumns if a key or value is null: transforms skip nulls record by record."""
    for part in (record.key, record.value):
        if part is not None:
            check_not_null(part)


# ---------------------------------------------------------------------------------------- sources


def to_table(conversion: Conversion, columns: Columns) -> TopicTable:
    import pyarrow as pa
    import pyarrow.compute as pc

    record = columns.record
    if record.partition is not None:
        raise NotInColumns("records specify their partitions")
    made = {}
    if record.key is not None or record.key_schema is not None:
        made["key"] = _written(conversion.key, record.key_schema, record.key, columns)
    made["value"] = _written(conversion.value, record.value_schema, record.value, columns)
    for each in made.values():
        longest = pc.max(pc.binary_length(each)).as_py()
        if longest is not None and longest >= LARGE_BYTES:
            raise NotInColumns("a large record may exceed the maximum size")
    times: Any = record.timestamp_ms
    if isinstance(times, Column):
        times = times.array(None)
        if times.null_count:
            raise NotInColumns("some records have no timestamp")
        made["timestamp"] = times.cast(pa.timestamp("ms", tz="UTC"))
    return TopicTable(record.topic, pa.table(made))


def _written(converter: Converter, schema: Schema | None, value: Any, columns: Columns) -> Any:
    try:
        return converter.from_columns(schema, value, columns)
    except NotInColumns:
        raise
    except Exception as error:
        raise NotInColumns(str(error)) from error


# ------------------------------------------------------------------------------------------ sinks


def to_columns(conversion: Conversion, chain: Chain, topic: str, rows: Any) -> Columns:
    """Convert the rows of one topic, as the consumer returns them.

    Args:
        conversion: Converters of the key and the value.
        chain: Transforms that will be applied; without any, nested structs stay whole.
        topic: Topic of all rows.
        rows: Arrow batch with partition, offset, timestamp, key, value and headers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.sum(pc.list_value_length(rows.column("headers"))).as_py():
        raise NotInColumns("records have headers")
    is_split = bool(chain.steps)
    key_schema, key = _read(conversion.key, topic, rows.column("key"), is_split=is_split)
    value_schema, value = _read(conversion.value, topic, rows.column("value"), is_split=is_split)
    times = rows.column("timestamp").cast(pa.int64())
    record = ConnectRecord(
        topic, value, value_schema, key, key_schema,
        Column(rows.column("partition"), None), Column(rows.column("offset"), None),  # type: ignore[arg-type]
        Column(times, None),  # type: ignore[arg-type]
    )  # fmt: skip
    return Columns(record, rows.num_rows)


def _read(
    converter: Converter, topic: str, data: Any, *, is_split: bool
) -> tuple[Schema | None, Any]:
    if data.null_count == len(data):
        return converter.to_connect(topic, None)
    try:
        schema, array = converter.to_columns(topic, data)
    except NotInColumns:
        raise
    except Exception as error:
        raise NotInColumns(str(error)) from error
    return schema, column_of(array, schema, is_split=is_split)
