"""JSON writers that are compiled once for each schema.

A writer turns values into what `json` can encode. It covers the common cases: primitive types,
structs, arrays, and null where the schema allows it. For anything else it raises NeedsSlowPath, and
the caller takes the slow path, which checks everything and reports what is wrong. The functions do
no I/O.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ottla.connect.data import INTEGER_BITS, Schema, Type

Write = Callable[[Any], Any]
MAX_DEPTH = 50


class NeedsSlowPath(Exception):
    """A value that the compiled writer does not support."""


def make_writer(schema: Schema, slow: Callable[[Schema, Any], Any], depth: int = 0) -> Write:
    """Return a writer for a schema.

    Args:
        schema: Schema of the values.
        slow: Function that converts logical types, maps and other special cases.
        depth: Nesting level of the schema.
    """
    if depth > MAX_DEPTH:
        return _refuse
    if schema.type is Type.STRUCT:
        return _struct(schema, slow, depth)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return _array(schema.value_schema, slow, depth)
    if schema.type in INTEGER_BITS:
        return _integer(schema) if not _is_kafkas(schema) else _slowly(schema, slow)
    if schema.type in _SAME:
        return _same(_SAME[schema.type])
    if schema.type is Type.BYTES and not _is_kafkas(schema):
        return _bytes
    return _slowly(schema, slow)


def _is_kafkas(schema: Schema) -> bool:
    """Return whether the schema is a Kafka logical type, whose values need conversion.

    Other schema names do not affect the value.
    """
    return schema.name is not None and schema.name.startswith("org.apache.kafka.connect.data.")


_SAME: dict[Type, type] = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float,
                           Type.FLOAT32: float}  # fmt: skip


def _refuse(value: Any) -> Any:
    raise NeedsSlowPath


def _slowly(schema: Schema, slow: Callable[[Schema, Any], Any]) -> Write:
    return lambda value: slow(schema, value)


def _same(kind: type) -> Write:
    def write(value: Any) -> Any:
        if value.__class__ is not kind:
            raise NeedsSlowPath
        return value

    return write


def _integer(schema: Schema) -> Write:
    highest = (1 << (INTEGER_BITS[schema.type] - 1)) - 1

    def write(value: Any) -> Any:
        if value.__class__ is not int or not -highest <= value <= highest:
            raise NeedsSlowPath
        return value

    return write


def _bytes(value: Any) -> str:
    if value.__class__ is not bytes:
        raise NeedsSlowPath
    return base64.b64encode(value).decode()


def _array(items: Schema, slow: Callable[[Schema, Any], Any], depth: int) -> Write:
    write_item = make_writer(items, slow, depth + 1)
    can_be_null = items.optional and items.default is None

    def write(value: Any) -> Any:
        if value.__class__ is not list or (not can_be_null and None in value):
            raise NeedsSlowPath
        return [None if each is None else write_item(each) for each in value]

    return write


def _struct(schema: Schema, slow: Callable[[Schema, Any], Any], depth: int) -> Write:
    fields = [
        (
            each.name,
            make_writer(each.schema, slow, depth + 1),
            each.schema.optional and each.schema.default is None,
        )
        for each in schema.fields
    ]
    count = len(fields)

    def write(value: Any) -> Any:
        if value.__class__ is not dict or len(value) != count:
            raise NeedsSlowPath
        made = {}
        for name, write_field, can_be_null in fields:
            try:
                each = value[name]
            except KeyError:
                raise NeedsSlowPath from None
            if each is not None:
                made[name] = write_field(each)
            elif can_be_null:
                made[name] = None
            else:
                raise NeedsSlowPath
        return made

    return write
