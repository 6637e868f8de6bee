"""Serdes as Spark columns, the counterpart of `Serde.encode` and `Serde.decode` for many rows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from ottla.streams.compile.python_functions import ddl
from ottla.streams.plan.shapes import DataShape
from ottla.streams.serdes import LONG_BYTES, Serde

CORRUPT = "_corrupt_record"
JSON_OPTIONS = {"timeZone": "UTC"}


def decode(serde: Serde, data: Column, *, stops: bool) -> tuple[Column, Column]:
    """Return the key or value, and a column that is true where it cannot be parsed.

    With `stops`, data that cannot be parsed fails the query instead.
    """
    never = f.lit(False)
    match serde.name:
        case "bytes":
            return data, never
        case "string":
            if stops:
                return f.validate_utf8(data.cast("string")), never
            return data.cast("string"), ~f.is_valid_utf8(data.cast("string"))
        case "long":
            is_long = f.length(data) == LONG_BYTES
            number = f.conv(f.hex(data), 16, -10).cast("bigint")
            if stops:
                error = f.raise_error(f.lit(f"a long must have {LONG_BYTES} bytes"))
                return f.when(is_long | data.isNull(), number).otherwise(error), never
            return f.when(is_long, number), ~is_long
    text = data.cast("string")
    if not serde.shape.is_record:
        # Spark parses JSON objects only, so wrap a plain value in an object with one field.
        (column,) = serde.shape.columns
        parsed, is_bad = _parsed(
            f.concat(f.lit(f'{{"{column.name}":'), text, f.lit("}")), serde, stops
        )
        return parsed.getField(column.name), is_bad
    return _parsed(text, serde, stops)


def _parsed(text: Column, serde: Serde, stops: bool) -> tuple[Column, Column]:
    if stops:
        strict = {**JSON_OPTIONS, "mode": "FAILFAST"}
        return f.from_json(text, ddl(serde.shape), strict), f.lit(False)
    marking = {**JSON_OPTIONS, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = f.from_json(text, f"{ddl(serde.shape)}, `{CORRUPT}` string", marking)
    return parsed.dropFields(CORRUPT), parsed.getField(CORRUPT).isNotNull()


def encode(serde: Serde, column: Column, shape: DataShape) -> Column:
    """Return the key or value as bytes. Nulls stay null."""
    match serde.name:
        case "bytes":
            return column.cast("binary")
        case "string":
            return column.cast("string").cast("binary")
        case "long":
            return big_endian(column)
    options = {**JSON_OPTIONS, "ignoreNullFields": "false"}
    if not shape.is_record:
        listed = f.to_json(f.array(column), options)
        return f.when(column.isNotNull(), listed.substr(f.lit(2), f.length(listed) - 2)).cast(
            "binary"
        )
    if serde.shape.names != shape.names:
        chosen = f.struct(*(column.getField(name).alias(name) for name in serde.shape.names))
        column = f.when(column.isNotNull(), chosen)
    return f.to_json(column, options).cast("binary")


def big_endian(number: Column) -> Column:
    """Encode a long as 8 big-endian bytes."""
    return f.unhex(f.lpad(f.hex(number.cast("bigint")), 2 * LONG_BYTES, "0"))


def windowed_key(key: Column, window: Column, *, is_session: bool) -> Column:
    """Append the window to a key, in the format of Kafka Streams.

    The key is followed by the start of the window; for sessions, by the end and the start.
    """
    start, end = (big_endian(f.unix_millis(window.getField(name))) for name in ("start", "end"))
    return f.concat(key, end, start) if is_session else f.concat(key, start)
