"""Kafka Connect's JSON for columns: `json_converter` for a whole batch.

Writing: the texts of the fields are concatenated row by row. Arrow formats integers, strings,
booleans and timestamps; the converter itself formats any other field value by value.

Reading: Arrow parses the values. Where its result might differ from Python's (a string that looks
like a timestamp, an integer that is too large), the column is parsed again with another type, or
the batch is rejected. With schemas, all values of a batch must begin with the same schema, byte for
byte, which holds for the values of one writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect import data
from ottla.connect.columns import Column, Columns, NotInColumns
from ottla.connect.data import INTEGER_BITS, Schema, Type

Format = Callable[[Schema | None, Any], str]
"""Function that formats a single value as JSON."""
_TO_ESCAPE = r'["\\\x00-\x1f]'
EXACT_INTEGERS = 2.0**53
"""Limit of exact integers in a float; a larger float may have been an integer in the JSON."""

# ---------------------------------------------------------------------------------------- writing


def texts(schema: Schema, value: Any, columns: Columns, format_value: Format) -> Any:
    """Return the values of a schema as an array of JSON strings."""
    if isinstance(value, Mapping):
        return _object(schema, value, columns, format_value)
    return _leaf(schema, value, columns, format_value)


def _object(
    schema: Schema, value: Mapping[str, Any], columns: Columns, format_value: Format
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if schema.type is not Type.STRUCT or value.keys() != {each.name for each in schema.fields}:
        raise NotInColumns("the fields of the values differ from the schema")
    parts: list[Any] = []
    before = "{"
    for field in schema.fields:
        parts.append(pa.scalar(f"{before}{json.dumps(field.name, ensure_ascii=False)}:"))
        parts.append(texts(field.schema, value[field.name], columns, format_value))
        before = ","
    parts.append(pa.scalar("}" if schema.fields else "{}"))
    if len(parts) == 1:
        return pa.repeat(parts[0], columns.rows)
    return pc.binary_join_element_wise(*parts, "")


def _leaf(schema: Schema, value: Any, columns: Columns, format_value: Format) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(value, Column):
        return pa.repeat(pa.scalar(format_value(schema, value)), columns.rows)
    if value.has_nulls() and (not schema.optional or schema.default is not None):
        raise NotInColumns("null must be rejected or replaced by a default")
    quick = _quick(schema, value)
    if quick is None:
        return pa.array([format_value(schema, each) for each in value.values()], pa.string())
    return pc.fill_null(quick, "null") if value.has_nulls() else quick


def _quick(schema: Schema, value: Column) -> Any:
    """Format the values in Arrow; None if they need formatting one by one. Nulls stay null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if schema.name == data.TIMESTAMP and schema.type is Type.INT64:
        return value.array(schema).cast(pa.int64()).cast(pa.string())
    if schema.name == data.DATE and schema.type is Type.INT32:
        return value.array(schema).cast(pa.int32()).cast(pa.string())
    if schema.name is not None:
        return None
    if schema.type in INTEGER_BITS or schema.type is Type.BOOLEAN:
        return value.array(schema).cast(pa.string())
    if schema.type is not Type.STRING:
        return None
    array = value.array(schema)
    if pc.any(pc.match_substring_regex(array, _TO_ESCAPE)).as_py():
        return None
    return pc.binary_join_element_wise(pa.scalar('"'), array, pa.scalar('"'), "")


# ---------------------------------------------------------------------------------------- reading


def plain_values(values: Any) -> Any:
    """Parse values without a schema into an array, usually of structs."""
    import pyarrow as pa

    from ottla.client.consumer.json_values import parsed

    if values.null_count:
        raise NotInColumns("some records have no value")
    found = parsed(values)
    if _has(found.type, pa.types.is_timestamp):
        found = parsed(values, _with_texts(found.type))
    _check_numbers(found)
    return found


def _has(kind: Any, test: Callable[[Any], bool]) -> bool:
    return test(kind) or any(_has(kind.field(index).type, test) for index in range(kind.num_fields))


def _with_texts(kind: Any) -> Any:
    """Return the type with strings in place of timestamps, which JSON does not have."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([each.with_type(_with_texts(each.type)) for each in fields])
    return pa.list_(_with_texts(kind.value_type)) if pa.types.is_list(kind) else kind


def _check_numbers(array: Any) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        for child in array.flatten():
            _check_numbers(child)
    elif pa.types.is_list(array.type):
        _check_numbers(array.values)
    elif pa.types.is_floating(array.type):
        largest = pc.max(pc.abs(array)).as_py()
        if largest is not None and not largest < EXACT_INTEGERS:
            raise NotInColumns("a number may be an integer that a float cannot represent")


def split_envelope(first: bytes) -> tuple[bytes, str]:
    """Return the bytes before the payload, and the schema in them as normalized text."""
    head, mark = b'{"schema":', b',"payload":'
    at = first.find(mark)
    while first.startswith(head) and at > 0:
        document = first[len(head) : at]
        try:
            return first[: at + len(mark)], json.dumps(json.loads(document), default=str)
        except ValueError:
            at = first.find(mark, at + 1)
    raise NotInColumns("not an envelope in the usual layout")


def payloads(values: Any, prefix: bytes, schema: Schema) -> Any:
    """Parse the payloads of envelopes with a common prefix into an array of the schema's type."""
    import pyarrow.compute as pc

    from ottla.client.consumer.json_values import parsed

    if values.null_count or not pc.all(pc.starts_with(values, prefix)).as_py():
        raise NotInColumns("not all values have the same schema")
    if not pc.all(pc.ends_with(values, "}")).as_py():
        raise NotInColumns("not an envelope in the usual layout")
    inner = pc.binary_slice(values, len(prefix), -1)
    return _typed(parsed(inner, _parsed_type(schema), unexpected="error"), schema)


_PARSED = {
    Type.INT8: "int8", Type.INT16: "int16", Type.INT32: "int32", Type.INT64: "int64",
    Type.FLOAT32: "float64", Type.FLOAT64: "float64", Type.BOOLEAN: "bool", Type.STRING: "string",
}  # fmt: skip


def _parsed_type(schema: Schema) -> Any:
    """Return the type that Arrow should parse; dates and times are numbers in JSON."""
    import pyarrow as pa

    if schema.default is not None:
        raise NotInColumns("null is replaced by a default")
    if schema.type is Type.STRUCT:
        fields = [pa.field(each.name, _parsed_type(each.schema)) for each in schema.fields]
        return pa.struct(fields)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return pa.list_(_parsed_type(schema.value_schema))
    if schema.type not in _PARSED:
        raise NotInColumns(f"{schema.type.value} is read record by record")
    return pa.type_for_alias(_PARSED[schema.type])


def _typed(array: Any, schema: Schema) -> Any:
    import pyarrow as pa

    from ottla.connect.tables import arrow_type

    if schema.type is Type.STRUCT and schema.fields:
        if not schema.optional and array.null_count:
            raise NotInColumns("a struct is null")
        inner = [
            _typed(array.field(index), each.schema) for index, each in enumerate(schema.fields)
        ]
        names = [each.name for each in schema.fields]
        fields = [pa.field(name, each.type) for name, each in zip(names, inner, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=array.is_null())
    if not schema.optional and array.null_count:
        raise NotInColumns("a value must not be null")
    if schema.type is Type.ARRAY:
        if schema.value_schema is not None and schema.value_schema.name is not None:
            raise NotInColumns("items of this type are read record by record")
        return array
    return array.cast(arrow_type(schema))
