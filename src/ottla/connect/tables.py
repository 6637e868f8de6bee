"""Conversion between records and Arrow tables, and between their schemas.

| Connect | Arrow | | Connect | Arrow |
|---|---|---|---|---|
| int8 … int64 | the same | | Decimal | decimal128(38, scale) |
| float, double | float32, float64 | | Date | date32 |
| boolean, string, bytes | bool, utf8, binary | | Time | time32[ms] |
| array, map, struct | list, map, struct | | Timestamp | timestamp[ms, UTC]; read: any unit |

`inferred` derives a common schema for values that have none.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.connect import data
from ottla.connect.data import DataError, Field, Schema, Type, check, encode_logical

DECIMAL_DIGITS = 38


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema with the fields of a struct as columns."""
    import pyarrow as pa

    return pa.schema([_arrow_field(each) for each in schema.fields])


def _arrow_field(field: Field) -> Any:
    import pyarrow as pa

    return pa.field(field.name, arrow_type(field.schema), nullable=field.schema.optional)


def arrow_type(schema: Schema) -> Any:
    import pyarrow as pa

    if schema.name == data.DECIMAL:
        return pa.decimal128(DECIMAL_DIGITS, data.scale_of(schema))
    logical = {
        data.DATE: pa.date32(), data.TIME: pa.time32("ms"),
        data.TIMESTAMP: pa.timestamp("ms", tz="UTC"),
    }.get(schema.name or "")  # fmt: skip
    if logical is not None:
        return logical
    if schema.type is Type.STRUCT:
        return pa.struct([_arrow_field(each) for each in schema.fields])
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return pa.list_(arrow_type(schema.value_schema))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return pa.map_(arrow_type(schema.key_schema), arrow_type(schema.value_schema))
    return {
        Type.INT8: pa.int8(), Type.INT16: pa.int16(), Type.INT32: pa.int32(),
        Type.INT64: pa.int64(), Type.FLOAT32: pa.float32(), Type.FLOAT64: pa.float64(),
        Type.BOOLEAN: pa.bool_(), Type.STRING: pa.string(), Type.BYTES: pa.binary(),
    }[schema.type]  # fmt: skip


def table_of(schema: Schema, values: Sequence[Mapping[str, Any]]) -> Any:
    """Return a table of structs; raise DataError if one of them does not match the schema."""
    import pyarrow as pa

    wanted = arrow_schema(schema)
    if not schema.fields:
        raise DataError("a value has no fields")
    try:
        columns = [
            pa.array([for_arrow(each.schema, _get(value, each)) for value in values], kind.type)
            for each, kind in zip(schema.fields, wanted, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"a value does not match its schema: {error}") from None
    return pa.Table.from_arrays(columns, schema=wanted)


def check_row(schema: Schema, value: Any) -> None:
    """Raise DataError if `table_of` would reject the value."""
    check(schema, value)
    table_of(schema, [value])


def _get(value: Mapping[str, Any], field: Field) -> Any:
    found = value.get(field.name)
    return field.schema.default if found is None else found


def for_arrow(schema: Schema, value: Any) -> Any:
    """Return a value as Arrow's builders expect it: maps as pairs, timestamps as milliseconds."""
    if value is None:
        return None
    if schema.type is Type.MAP and schema.value_schema is not None:
        inner = schema.value_schema
        return [(name, for_arrow(inner, each)) for name, each in value.items()]
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [for_arrow(schema.value_schema, each) for each in value]
    if schema.type is Type.STRUCT:
        return {each.name: for_arrow(each.schema, _get(value, each)) for each in schema.fields}
    if schema.name == data.TIMESTAMP and isinstance(value, datetime.datetime):
        return encode_logical(schema, value)
    return value


# ------------------------------------------------------------------------- values without a schema


def inferred(values: Sequence[Mapping[str, Any]]) -> Any:
    """Return a table of values without a schema.

    Fields that are null in all values are omitted; if every field is, all become null strings.

    Raises:
        DataError: The values of a field have no common type, or a value has no fields.
    """
    import pyarrow as pa

    names = dict.fromkeys(name for value in values for name in value)
    if not all(values):
        raise DataError("a value has no fields")
    columns = {}
    for name in names:
        try:
            column = pa.array([value.get(name) for value in values])
        except (pa.ArrowException, TypeError, OverflowError):
            raise DataError(f"the values of field {name} have no common type") from None
        if not is_empty(column.type):
            columns[name] = column
    if not columns:
        columns = {name: pa.nulls(len(values), pa.string()) for name in names}
    return pa.table(columns)


def is_empty(kind: Any) -> bool:
    """Return whether a type holds nothing but nulls, so that no file format could store it."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return all(is_empty(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return is_empty(kind.value_type)
    return bool(pa.types.is_null(kind))


# --------------------------------------------------------------------------------------- from Arrow


def connect_schema(schema: Any) -> Schema:
    """Return a struct schema for the columns of an Arrow schema."""
    return Schema(Type.STRUCT, fields=tuple(_field(each) for each in schema))


def _field(field: Any) -> Field:
    kind = _connect_type(field.type, field.name)
    return Field(field.name, kind.as_optional() if field.nullable else kind)


def _connect_type(kind: Any, name: str) -> Schema:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return Schema(Type.STRUCT, fields=tuple(_field(kind.field(i)) for i in range(len(kind))))
    if types.is_list(kind) or types.is_large_list(kind):
        return Schema(Type.ARRAY, value_schema=_connect_type(kind.value_type, name).as_optional())
    if types.is_map(kind):
        keys, items = _connect_type(kind.key_type, name), _connect_type(kind.item_type, name)
        return Schema(Type.MAP, key_schema=keys, value_schema=items.as_optional())
    if types.is_decimal(kind):
        return data.decimal_schema(kind.scale)
    for test, schema in (
        (types.is_timestamp, data.TIMESTAMP_SCHEMA), (types.is_date, data.DATE_SCHEMA),
        (types.is_time, data.TIME_SCHEMA), (types.is_boolean, data.BOOLEAN),
        (types.is_int8, Schema(Type.INT8)), (types.is_int16, Schema(Type.INT16)),
        (types.is_uint8, Schema(Type.INT16)), (types.is_int32, data.INT32),
        (types.is_uint16, data.INT32), (types.is_integer, data.INT64),
        (types.is_float16, Schema(Type.FLOAT32)), (types.is_float32, Schema(Type.FLOAT32)),
        (types.is_floating, data.FLOAT64), (types.is_string, data.STRING),
        (types.is_large_string, data.STRING), (types.is_binary, data.BYTES),
        (types.is_large_binary, data.BYTES), (types.is_null, data.STRING),
    ):  # fmt: skip
        if test(kind):
            return schema
    raise DataError(f"column {name} has the type {kind}, which records do not support")


def plain_values(batch: Any, schema: Schema) -> list[dict[str, Any]]:
    """Return a batch's rows as values of the schema: maps as dicts, timestamps with a time zone."""
    columns = [
        [from_arrow(field.schema, value) for value in column.to_pylist()]
        for field, column in zip(schema.fields, batch.columns, strict=True)
    ]
    names = [field.name for field in schema.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def from_arrow(schema: Schema, value: Any) -> Any:
    """Convert a Python value from Arrow to the form that records use."""
    if value is None:
        return None
    if schema.type is Type.MAP and schema.value_schema is not None:
        return {name: from_arrow(schema.value_schema, each) for name, each in value}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [from_arrow(schema.value_schema, each) for each in value]
    if schema.type is Type.STRUCT:
        return {each.name: from_arrow(each.schema, value.get(each.name)) for each in schema.fields}
    if schema.name == data.TIMESTAMP and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value
