"""Conversion between Connect schemas and JSON Schema, compatible with Confluent's JsonSchemaData.

| Connect | JSON Schema |
|---|---|
| int8 … int64 | integer with `connect.type` |
| float, double | number with `connect.type` float32, float64 |
| boolean, string | boolean, string |
| bytes; Decimal | string, or number with `decimal.format=NUMERIC`; `connect.type` bytes |
| Date, Time, Timestamp | integer, the logical name as `title` |
| array; map with string keys | array; object with additionalProperties and `connect.type` map |
| other maps | array of objects of key and value, with `connect.type` map |
| struct | object; `connect.index` keeps the order of its fields |
| optional | oneOf with null |

JSON Schemas from elsewhere are read as well: type arrays with null, anyOf with null, enums, fields
that are not `required` (as optional fields), and references within the schema. Unions of several
types are rejected. The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.connect import data
from ottla.connect.data import DataError, Field, Schema, Type
from ottla.connect.json_converter import JsonConverter

MAX_DEPTH = 100
MAX_NODES = 20_000
"""Maximum number of types in a schema, where each reference counts as the type it refers to.

A chain of definitions that each refer twice to the previous one would expand exponentially.
"""
_NAMES = {
    Type.INT8: "int8", Type.INT16: "int16", Type.INT32: "int32", Type.INT64: "int64",
    Type.FLOAT32: "float32", Type.FLOAT64: "float64", Type.BYTES: "bytes", Type.MAP: "map",
}  # fmt: skip
_TYPES = {name: kind for kind, name in _NAMES.items()}
_PLAIN = {
    Type.BOOLEAN: "boolean", Type.STRING: "string", Type.FLOAT32: "number", Type.FLOAT64: "number",
}  # fmt: skip
_READ = {
    "integer": data.INT64, "number": data.FLOAT64, "boolean": data.BOOLEAN, "string": data.STRING,
}  # fmt: skip


# ------------------------------------------------------------------------------ to JSON Schema


def to_json_schema(schema: Schema, *, numeric_decimals: bool = False) -> dict[str, Any]:
    document = _plain(schema, numeric_decimals)
    if schema.name:
        document["title"] = schema.name
    if schema.type in _NAMES:
        document["connect.type"] = _NAMES[schema.type]
    if schema.version is not None:
        document["connect.version"] = schema.version
    if schema.parameters:
        document["connect.parameters"] = dict(schema.parameters)
    if schema.doc:
        document["description"] = schema.doc
    if schema.default is not None:
        converter = JsonConverter({"decimal.format": "NUMERIC" if numeric_decimals else "BASE64"})
        document["default"] = converter._to_json(schema, schema.default)
    return {"oneOf": [{"type": "null"}, document]} if schema.optional else document


def _plain(schema: Schema, numeric: bool) -> dict[str, Any]:
    def inner(each: Schema | None) -> dict[str, Any]:
        assert each is not None
        return to_json_schema(each, numeric_decimals=numeric)

    if schema.type is Type.STRUCT:
        properties = {}
        for index, each in enumerate(schema.fields):
            properties[each.name] = {**inner(each.schema), "connect.index": index}
        needed = [
            each.name
            for each in schema.fields
            if not each.schema.optional and each.schema.default is None
        ]
        document: dict[str, Any] = {"type": "object", "properties": properties}
        return {**document, "required": needed} if needed else document
    if schema.type is Type.ARRAY:
        return {"type": "array", "items": inner(schema.value_schema)}
    if schema.type is Type.MAP:
        keys = schema.key_schema
        if keys is not None and keys.type is Type.STRING and not keys.optional:
            return {"type": "object", "additionalProperties": inner(schema.value_schema)}
        entry = {"key": inner(keys), "value": inner(schema.value_schema)}
        return {"type": "array", "items": {"type": "object", "properties": entry}}
    if schema.type is Type.BYTES:
        return {"type": "number" if numeric and schema.name == data.DECIMAL else "string"}
    return {"type": _PLAIN.get(schema.type, "integer")}


# ---------------------------------------------------------------------------- from JSON Schema


def from_json_schema(document: Any) -> Schema:
    if not isinstance(document, Mapping):
        raise DataError("a JSON Schema must be an object")
    return _SchemaReader(document).schema(document)


class _SchemaReader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def schema(self, document: Any, depth: int = 0) -> Schema:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DataError(f"a schema has more than {MAX_NODES} types")
        if depth > MAX_DEPTH:
            raise DataError(f"a schema is recursive, or nested more than {MAX_DEPTH} levels deep")
        if not isinstance(document, Mapping):
            raise DataError("a JSON Schema must be an object")
        if "$ref" in document:
            return self.schema(self._referred(document["$ref"]), depth + 1)
        for either in ("oneOf", "anyOf"):
            if either in document:
                return self._either(document[either], depth)
        kind, is_optional = _kind(document)
        made = self._described(self._plain(document, kind, depth), document)
        return made.as_optional() if is_optional else made

    def _referred(self, reference: Any) -> Any:
        found: Any = self._root
        for name in str(reference).removeprefix("#/").split("/"):
            if not isinstance(found, Mapping) or name not in found:
                raise DataError(f"the reference {reference} in a schema cannot be resolved")
            found = found[name]
        return found

    def _either(self, branches: Any, depth: int) -> Schema:
        rest = [each for each in branches if not _is_null(each)]
        if len(rest) != 1:
            raise DataError("a union of several types is not supported")
        found = self.schema(rest[0], depth + 1)
        return found.as_optional() if len(rest) < len(branches) else found

    def _plain(self, document: Mapping[str, Any], kind: str, depth: int) -> Schema:
        name = document.get("connect.type")
        if name == "map":
            return self._map(document, kind, depth)
        if name in _TYPES:
            return Schema(_TYPES[name])
        if kind == "object":
            if "properties" not in document and isinstance(
                document.get("additionalProperties"), Mapping
            ):
                return self._map(document, kind, depth)
            return self._struct(document, depth)
        if kind == "array":
            return Schema(
                Type.ARRAY, value_schema=self.schema(document.get("items", {}), depth + 1)
            )
        if kind in _READ:
            return _READ[kind]
        raise DataError(f"unknown JSON Schema type {kind!r}")

    def _map(self, document: Mapping[str, Any], kind: str, depth: int) -> Schema:
        if kind == "object":
            inner = self.schema(document.get("additionalProperties"), depth + 1)
            return Schema(Type.MAP, key_schema=data.STRING, value_schema=inner)
        try:
            entry = document["items"]["properties"]
            keys, values = entry["key"], entry["value"]
        except (KeyError, TypeError):
            raise DataError("a map of pairs must have the properties key and value") from None
        return Schema(
            Type.MAP,
            key_schema=self.schema(keys, depth + 1),
            value_schema=self.schema(values, depth + 1),
        )

    def _struct(self, document: Mapping[str, Any], depth: int) -> Schema:
        properties = document.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise DataError("a schema's properties must be an object")
        needed = set(document.get("required") or ())
        fields = []
        for name, each in properties.items():
            schema = self.schema(each, depth + 1)
            known = isinstance(each, Mapping) and "connect.index" in each
            if name not in needed and not known:
                schema = schema.as_optional()
            fields.append(Field(str(name), schema))
        order = {name: _index(each, at) for at, (name, each) in enumerate(properties.items())}
        fields.sort(key=lambda field: order[field.name])
        return Schema(Type.STRUCT, fields=tuple(fields))

    def _described(self, schema: Schema, document: Mapping[str, Any]) -> Schema:
        parameters = document.get("connect.parameters") or {}
        made = replace(
            schema,
            name=document.get("title") or schema.name,
            version=document.get("connect.version", schema.version),
            doc=document.get("description") or schema.doc,
            parameters={str(name): str(value) for name, value in parameters.items()},
        )
        default = document.get("default")
        if default is None:
            return made
        return replace(made, default=JsonConverter({})._from_json(made, default, "default"))


def _index(document: Any, otherwise: int) -> int:
    found = document.get("connect.index") if isinstance(document, Mapping) else None
    return found if isinstance(found, int) else otherwise


def _kind(document: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the type, and whether it may be null."""
    kind = document.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        if len(rest) != 1:
            raise DataError("a union of several types is not supported")
        return str(rest[0]), len(rest) < len(kind)
    if kind is None:
        if "enum" in document or "const" in document:
            return "string", False
        return "object" if "properties" in document else "string", False
    return str(kind), False


def _is_null(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("type") == "null"
