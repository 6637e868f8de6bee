"""Transforms of types and schemas: Flatten, Cast, SetSchemaMetadata."""

from __future__ import annotations

import datetime
import decimal
import struct
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.connect.converters import as_text
from ottla.connect.data import (
    INTEGER_BITS,
    ConnectRecord,
    DataError,
    Field,
    Schema,
    Type,
    encode_logical,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import NULL_DEFAULT, PartTransform
from ottla.connect.transforms.paths import (
    SYNTAX,
    Path,
    changed,
    path_of,
    schema_at,
    with_schema,
    with_value,
)


class Flatten(PartTransform):
    """Transform that replaces nested fields by top-level fields named by their paths."""

    on_columns = True
    definition = Definition([
        key("delimiter", ConfigType.STRING, ".", "Separator between the names of a path."),
    ])  # fmt: skip

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        self.struct(schema, value)
        flat: dict[str, Any] = {}
        self._flatten("", schema, value, flat)
        return self.put(record, self.made_of.get(schema) if schema else None, flat)

    def new_schema(self, schema: Schema) -> Schema:
        return replace(schema, fields=tuple(self._fields("", schema, optional=False)))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.settings['delimiter']}{name}" if prefix else name

    def _flatten(
        self, prefix: str, schema: Schema | None, value: Any, flat: dict[str, Any]
    ) -> None:
        names = [each.name for each in schema.fields] if schema is not None else list(value or {})
        for name in names:
            inner = value.get(name) if value is not None else None
            known = schema.field(name) if schema is not None else None
            inner_schema = known.schema if known is not None else None
            is_struct = (
                inner_schema.type is Type.STRUCT if inner_schema is not None
                else schema is None and isinstance(inner, dict)
            )  # fmt: skip
            if is_struct:
                self._flatten(self._name(prefix, name), inner_schema, inner, flat)
            else:
                flat[self._name(prefix, name)] = inner

    def _fields(self, prefix: str, schema: Schema, *, optional: bool) -> list[Field]:
        found = []
        for each in schema.fields:
            name = self._name(prefix, each.name)
            may_be_null = optional or each.schema.optional
            if each.schema.type is Type.STRUCT:
                found += self._fields(name, each.schema, optional=may_be_null)
            else:
                found.append(Field(name, replace(each.schema, optional=may_be_null)))
        return found


_CAST = {
    "int8": Type.INT8, "int16": Type.INT16, "int32": Type.INT32, "int64": Type.INT64,
    "float32": Type.FLOAT32, "float64": Type.FLOAT64, "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}  # fmt: skip


class Cast(PartTransform):
    """Transform that casts fields (`spec` has field:type pairs), or the whole key or value."""

    on_columns = True
    definition = Definition(
        [
            key("spec", ConfigType.LIST, None,
                "Pairs field:type, or one type for the whole key or value. Types: int8, int16, "
                "int32, int64, float32, float64, boolean, string.", NonEmpty()),
            NULL_DEFAULT,
            SYNTAX,
        ],
        required=["spec"],
    )  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._whole: Type | None = None
        self._fields: dict[Path, Type] = {}
        for each in settings["spec"]:
            name, colon, kind = each.rpartition(":")
            wanted = _CAST.get(kind.strip().lower())
            if wanted is None:
                raise ValueError(
                    f"spec has the unknown type {kind.strip()!r}; use one of {', '.join(_CAST)}"
                )
            if colon:
                self._fields[path_of(name.strip(), settings)] = wanted
            else:
                self._whole = wanted
        if self._whole is not None and len(settings["spec"]) > 1:
            raise ValueError(
                "spec must be either one type for the whole key or value, or field:type pairs"
            )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None and schema is None:
            return record
        if self._whole is not None:
            new = self.made_of.get(schema) if schema is not None else None
            if value is None and schema is not None and self.settings[NULL_DEFAULT.name]:
                value = schema.default
            change = partial(cast, schema, wanted=self._whole)
            return self.put(record, new, changed(value, change))
        if value is None:
            return record
        done: Any = self.struct(schema, value)
        for path, wanted in self._fields.items():
            known = schema_at(schema, path) if schema is not None else None
            done = with_value(done, path, partial(cast, known, wanted=wanted))
        return self.put(record, self.made_of.get(schema) if schema else None, done)

    def new_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            return _cast_schema(schema, self._whole)
        for path, wanted in self._fields.items():
            schema = with_schema(schema, path, partial(_cast_schema, wanted=wanted))
        return schema


def _cast_schema(schema: Schema, wanted: Type) -> Schema:
    default = cast(schema, schema.default, wanted)
    return Schema(wanted, schema.optional, doc=schema.doc, default=default)


def cast(schema: Schema | None, value: Any, wanted: Type) -> Any:
    """Cast like Java: integers are truncated to their width, times become milliseconds or days."""
    if value is None:
        return None
    if wanted is Type.STRING:
        return as_text(schema, value)
    if isinstance(value, datetime.date | datetime.time):
        value = encode_logical(schema, value)
    if isinstance(value, decimal.Decimal):
        value = float(value) if wanted in (Type.FLOAT32, Type.FLOAT64) else int(value)
    if not isinstance(value, bool | int | float | str):
        raise DataError(f"Cast cannot convert a {type(value).__name__} to {wanted.value}")
    try:
        return _number(value, wanted)
    except (ValueError, OverflowError):
        raise DataError(f"Cast cannot convert {value!r} to {wanted.value}") from None


def _number(value: bool | int | float | str, wanted: Type) -> Any:
    if wanted is Type.BOOLEAN:
        return value.strip().lower() == "true" if isinstance(value, str) else bool(value)
    if wanted is Type.FLOAT64:
        return float(value)
    if wanted is Type.FLOAT32:
        return struct.unpack(">f", struct.pack(">f", float(value)))[0]
    bits = INTEGER_BITS[wanted]
    if isinstance(value, str):
        number = int(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise ValueError
        return number
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


class SetSchemaMetadata(PartTransform):
    on_columns = True
    definition = Definition([
        key("schema.name", ConfigType.STRING, None, "New name of the schema."),
        key("schema.version", ConfigType.INT, None, "New version of the schema.", AtLeast(0)),
        NULL_DEFAULT,
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        if settings["schema.name"] is None and settings["schema.version"] is None:
            raise ValueError("SetSchemaMetadata requires schema.name or schema.version")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if schema is None:
            if value is None:
                return record
            raise DataError(f"SetSchemaMetadata: the {self.part} has no schema")
        schema = self.made_of.get(schema)
        if schema.type is Type.STRUCT and value is not None:
            value = self.struct(schema, value)
        return self.put(record, schema, value)

    def new_schema(self, schema: Schema) -> Schema:
        name, version = self.settings["schema.name"], self.settings["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
