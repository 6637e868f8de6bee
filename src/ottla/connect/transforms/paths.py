"""Nested fields (`field.syntax.version`, KIP-821), and operations on them.

With V1 a name is a top-level field, including any dots. With V2 dots separate the names of nested
fields, and backticks enclose a name that contains dots. An operation on a path that does not exist
changes nothing; transforms that require the field check that themselves. Values without a schema
are treated as maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import OneOf
from ottla.connect.columns import Column
from ottla.connect.data import DataError, Field, Schema, Type
from ottla.connect.definition import Settings, key

Path = tuple[str, ...]

SYNTAX = key(
    "field.syntax.version", ConfigType.STRING, "V1", "V2: dots lead into fields of fields.",
    OneOf(("V1", "V2"), ignore_case=True),
)  # fmt: skip


def path_of(name: str, settings: Settings) -> Path:
    """Parse a field name; raise ValueError if it is not a valid path."""
    return parsed(name) if settings["field.syntax.version"].upper() == "V2" else (name,)


def parsed(text: str) -> Path:
    """Parse a V2 path: `a.b` has two names, and a name with dots is enclosed in backticks."""
    names, quoted = [""], False
    for char in text:
        if char == "`":
            quoted = not quoted
        elif char == "." and not quoted:
            names.append("")
        else:
            names[-1] += char
    if quoted:
        raise ValueError(f"the path {text!r} has an unmatched backtick")
    if not all(names):
        raise ValueError(f"the path {text!r} has an empty name")
    return tuple(names)


def schema_at(schema: Schema, path: Path) -> Schema | None:
    for name in path:
        known = schema.field(name)
        if known is None:
            return None
        schema = known.schema
    return schema


def value_at(value: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def with_schema(schema: Schema, path: Path, change: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with a function applied to the schema of one field."""
    name, *rest = path
    fields = tuple(
        Field(name, with_schema(each.schema, tuple(rest), change) if rest else change(each.schema))
        if each.name == name
        else each
        for each in schema.fields
    )
    return replace(schema, fields=fields)


def with_value(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return the struct with a function applied to the value of one field."""
    name, *rest = path
    if not isinstance(value, Mapping) or name not in value:
        return value
    inner = value[name]
    done = with_value(inner, tuple(rest), change) if rest else changed(inner, change)
    return {**value, name: done}


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to a value, or to each value of a column."""
    return value.map(change) if isinstance(value, Column) else change(value)


def without_schema(schema: Schema, path: Path) -> Schema:
    name, *rest = path
    if rest:
        return with_schema(schema, (name,), lambda inner: without_schema(inner, tuple(rest)))
    return replace(schema, fields=tuple(each for each in schema.fields if each.name != name))


def without_value(value: Any, path: Path) -> Any:
    name, *rest = path
    if not isinstance(value, Mapping) or name not in value:
        return value
    if rest:
        return {**value, name: without_value(value[name], tuple(rest))}
    return {each: inner for each, inner in value.items() if each != name}


def insert_schema(schema: Schema, path: Path, kind: Schema) -> Schema:
    """Return the schema with a field appended; missing structs on the path are created."""
    name, *rest = path
    known = schema.field(name)
    if rest:
        inner = known.schema if known is not None else Schema(Type.STRUCT)
        if inner.type is not Type.STRUCT:
            raise DataError(f"{name} is not a struct, so the field {rest[0]} cannot be added")
        kind = insert_schema(inner, tuple(rest), kind)
        if known is not None:
            return with_schema(schema, (name,), lambda _: kind)
    left = tuple(each for each in schema.fields if each.name != name)
    return replace(schema, fields=(*left, Field(name, kind)))


def insert_value(value: Mapping[str, Any], path: Path, found: Any) -> dict[str, Any]:
    name, *rest = path
    if rest:
        inner = value.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            raise DataError(f"{name} is not a struct, so the field {rest[0]} cannot be added")
        found = insert_value(inner or {}, tuple(rest), found)
    return {**value, name: found}
