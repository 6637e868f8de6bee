"""Conversion between Connect and Avro schemas, compatible with Confluent's AvroData.

| Connect | Avro |
|---|---|
| int8, int16 | int with `connect.type` |
| int32, int64, float, double, boolean, string, bytes | int, long, float, double, … |
| Decimal, Date, Time, Timestamp | decimal, date, time-millis, timestamp-millis |
| array; map with string keys | array; map |
| other maps | array of `MapEntry` records with key and value |
| struct | record; unnamed: `io.confluent.connect.avro.ConnectDefault` |
| optional | union with null |

`connect.name`, `connect.version`, `connect.doc` and `connect.parameters` carry the other
attributes. Avro schemas from elsewhere are read as well: enums as strings, fixed as bytes, and
unions of several types as a struct `io.confluent.connect.avro.Union` with a field for each branch.
The functions do no I/O.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.connect import data
from ottla.connect.avro_sizes import check_size, full_name
from ottla.connect.data import DataError, Field, Schema, Type, encode_logical
from ottla.connect.json_converter import JsonConverter

NAMESPACE = "io.confluent.connect.avro"
DEFAULT_NAME = f"{NAMESPACE}.ConnectDefault"
UNION = f"{NAMESPACE}.Union"
ENUM = f"{NAMESPACE}.Enum"
MAP_ENTRY = f"{NAMESPACE}.MapEntry"
PRECISION = 64
MAX_DEPTH = 100

_PRIMITIVES = {
    Type.INT8: "int", Type.INT16: "int", Type.INT32: "int", Type.INT64: "long",
    Type.FLOAT32: "float", Type.FLOAT64: "double", Type.BOOLEAN: "boolean",
    Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_LOGICAL = {
    data.DATE: "date", data.TIME: "time-millis", data.TIMESTAMP: "timestamp-millis",
}  # fmt: skip
_READ = {
    "int": Type.INT32, "long": Type.INT64, "float": Type.FLOAT32, "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN, "string": Type.STRING, "bytes": Type.BYTES, "fixed": Type.BYTES,
}  # fmt: skip
_READ_LOGICAL = {
    "date": data.DATE_SCHEMA, "time-millis": data.TIME_SCHEMA, "time-micros": data.TIME_SCHEMA,
    "timestamp-millis": data.TIMESTAMP_SCHEMA, "timestamp-micros": data.TIMESTAMP_SCHEMA,
    "local-timestamp-millis": data.TIMESTAMP_SCHEMA,
    "local-timestamp-micros": data.TIMESTAMP_SCHEMA,
}  # fmt: skip


# ------------------------------------------------------------------------------------- to Avro


def to_avro(schema: Schema) -> Any:
    return _SchemaWriter().avro(schema)


class _SchemaWriter:
    """Conversion of one schema: defines each record once, then refers to it by name.

    Unnamed records get numbered names.
    """

    def __init__(self) -> None:
        self._defined: dict[str, Schema] = {}
        self._unnamed = 0

    def avro(self, schema: Schema) -> Any:
        plain = self._plain(schema)
        if not schema.optional:
            return plain
        return [plain, "null"] if schema.default is not None else ["null", plain]

    def _plain(self, schema: Schema) -> Any:
        document: dict[str, Any]
        if schema.type is Type.STRUCT:
            return self._record(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            document = {"type": "array", "items": self.avro(schema.value_schema)}
        elif schema.type is Type.MAP:
            document = self._map(schema)
        else:
            document = {"type": _PRIMITIVES[schema.type]}
            if schema.type in (Type.INT8, Type.INT16):
                document["connect.type"] = schema.type.value
        document |= _properties(schema)
        if schema.name == data.DECIMAL:
            scale = data.scale_of(schema)
            document |= {"logicalType": "decimal", "precision": PRECISION, "scale": scale}
        elif schema.name in _LOGICAL:
            document["logicalType"] = _LOGICAL[schema.name]
        return document["type"] if document.keys() == {"type"} else document

    def _map(self, schema: Schema) -> dict[str, Any]:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if keys.type is Type.STRING and not keys.optional:
            return {"type": "map", "values": self.avro(values)}
        self._unnamed += 1
        entry = {
            "type": "record", "name": f"{MAP_ENTRY}{self._unnamed}",
            "fields": [
                {"name": "key", "type": self.avro(keys)},
                {"name": "value", "type": self.avro(values)},
            ],
        }  # fmt: skip
        return {"type": "array", "items": entry, "connect.internal.type": "MapEntry"}

    def _record(self, schema: Schema) -> Any:
        name = schema.name
        if name is None:
            self._unnamed += 1
            name = DEFAULT_NAME + (str(self._unnamed) if self._unnamed > 1 else "")
        elif name in self._defined:
            if replace(self._defined[name], optional=False) != replace(schema, optional=False):
                raise DataError(f"two different structs have the name {name}")
            return name
        self._defined[name] = schema
        space, _, plain = name.rpartition(".")
        document: dict[str, Any] = {"type": "record", "name": plain}
        if space:
            document["namespace"] = space
        document["fields"] = [self._field(each) for each in schema.fields]
        return document | _properties(schema)

    def _field(self, field: Field) -> dict[str, Any]:
        document: dict[str, Any] = {"name": field.name, "type": self.avro(field.schema)}
        if field.schema.doc:
            document["doc"] = field.schema.doc
        if field.schema.default is not None:
            document["default"] = _default(field.schema)
        elif field.schema.optional:
            document["default"] = None
        return document


def _properties(schema: Schema) -> dict[str, Any]:
    document = {
        "connect.name": schema.name,
        "connect.version": schema.version,
        "connect.doc": schema.doc,
        "connect.parameters": dict(schema.parameters) or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def _default(schema: Schema) -> Any:
    """Return the default in Avro's encoding: bytes become a string of the same code points."""
    plain = encode_logical(schema, schema.default)
    if isinstance(plain, bytes):
        return plain.decode("latin-1")
    return JsonConverter({})._to_json(schema, plain)


# ----------------------------------------------------------------------------------- from Avro


def from_avro(avro: Any) -> Schema:
    made = _SchemaReader().schema(avro)
    check_size(avro)
    return made


class _SchemaReader:
    def __init__(self) -> None:
        self._known: dict[str, Schema] = {}

    def schema(self, avro: Any, space: str = "", depth: int = 0) -> Schema:
        if depth > MAX_DEPTH:
            raise DataError(f"a schema is recursive, or nested more than {MAX_DEPTH} levels deep")
        if isinstance(avro, list):
            return self._union(avro, space, depth)
        if isinstance(avro, str):
            if avro in _READ:
                return Schema(_READ[avro])
            return self._named(avro, space)
        if not isinstance(avro, Mapping):
            raise DataError("an Avro schema must be a string, an array or an object")
        return self._object(avro, space, depth)

    def _named(self, name: str, space: str) -> Schema:
        for full in (f"{space}.{name}", name):
            if full in self._known:
                return self._known[full]
        raise DataError(f"the Avro type {name} does not exist, or is recursive")

    def _object(self, avro: Mapping[str, Any], space: str, depth: int) -> Schema:
        kind = avro.get("type")
        if isinstance(kind, list | Mapping):
            return self.schema(kind, space, depth + 1)
        if kind in ("record", "error"):
            return self._record(avro, space, depth)
        if kind == "array":
            made = self._array(avro, space, depth)
        elif kind == "map":
            inner = self.schema(avro["values"], space, depth + 1)
            made = Schema(Type.MAP, key_schema=data.STRING, value_schema=inner)
        elif kind == "enum":
            name = full_name(avro, space)
            symbols = {f"{ENUM}.{each}": each for each in avro.get("symbols", ())}
            made = Schema(Type.STRING, parameters={ENUM: name, **symbols})
            self._known[name] = made
        elif kind in _READ:
            made = self._primitive(avro, kind)
            if kind == "fixed":
                self._known[full_name(avro, space)] = made
        else:
            return self._named(str(kind), space)
        return _described(made, avro)

    def _primitive(self, avro: Mapping[str, Any], kind: str) -> Schema:
        logical = avro.get("logicalType")
        if logical == "decimal":
            return data.decimal_schema(int(avro.get("scale", 0)))
        if logical in _READ_LOGICAL:
            return _READ_LOGICAL[logical]
        if logical == "uuid":
            return data.STRING
        document = avro.get("connect.type")
        return Schema(Type(document)) if document in ("int8", "int16") else Schema(_READ[kind])

    def _array(self, avro: Mapping[str, Any], space: str, depth: int) -> Schema:
        items = self.schema(avro["items"], space, depth + 1)
        if avro.get("connect.internal.type") != "MapEntry":
            return Schema(Type.ARRAY, value_schema=items)
        keys, values = items.field("key"), items.field("value")
        if keys is None or values is None:
            raise DataError("a MapEntry must have the fields key and value")
        return Schema(Type.MAP, key_schema=keys.schema, value_schema=values.schema)

    def _record(self, avro: Mapping[str, Any], space: str, depth: int) -> Schema:
        full = full_name(avro, space)
        inside = full.rpartition(".")[0]
        fields = tuple(self._field(each, inside, depth) for each in avro.get("fields", ()))
        name = None if full.startswith(DEFAULT_NAME) else full
        made = _described(Schema(Type.STRUCT, name=name, fields=fields), avro)
        self._known[full] = made
        return made

    def _field(self, avro: Mapping[str, Any], space: str, depth: int) -> Field:
        schema = self.schema(avro["type"], space, depth + 1)
        if avro.get("doc") and not schema.doc:
            schema = replace(schema, doc=str(avro["doc"]))
        default = avro.get("default")
        if default is not None and schema.name != UNION:
            schema = replace(schema, default=_read_default(schema, default))
        return Field(avro["name"], schema)

    def _union(self, branches: list[Any], space: str, depth: int) -> Schema:
        rest = [each for each in branches if each != "null"]
        is_optional = len(rest) < len(branches)
        if not rest:
            raise DataError("a union must have a type other than null")
        if len(rest) == 1:
            found = self.schema(rest[0], space, depth + 1)
            return found.as_optional() if is_optional else found
        fields = tuple(
            Field(branch_name(each), self.schema(each, space, depth + 1).as_optional())
            for each in rest
        )
        return Schema(Type.STRUCT, is_optional, UNION, fields=fields)


def branch_name(avro: Any) -> str:
    """Return the field name of a union's branch: the branch's type or its unqualified name."""
    if isinstance(avro, Mapping):
        avro = avro.get("name") or avro.get("type")
    return str(avro).rpartition(".")[2]


def _described(schema: Schema, avro: Mapping[str, Any]) -> Schema:
    parameters = avro.get("connect.parameters") or {}
    version = avro.get("connect.version")
    return replace(
        schema,
        name=avro.get("connect.name") or schema.name,
        version=version if isinstance(version, int) else schema.version,
        doc=avro.get("connect.doc") or avro.get("doc") or schema.doc,
        parameters={**schema.parameters, **{str(k): str(v) for k, v in parameters.items()}},
    )


def _read_default(schema: Schema, default: Any) -> Any:
    if schema.type is Type.BYTES and isinstance(default, str):
        return data.decode_logical(schema, default.encode("latin-1"))
    return JsonConverter({})._from_json(replace(schema, default=None), default, "default")


# -------------------------------------------------------------------------------------- values


def value_to_avro(schema: Schema, value: Any) -> Any:
    """Convert a value for fastavro: `MapEntry` maps to lists, unions to the branch that is set."""
    if value is None:
        return schema.default
    if schema.type is Type.STRUCT:
        if schema.name == UNION:
            return _branch(schema, value)
        return {
            each.name: value_to_avro(each.schema, value.get(each.name)) for each in schema.fields
        }
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [value_to_avro(schema.value_schema, each) for each in value]
    if schema.type is Type.MAP and schema.value_schema is not None:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        if keys.type is Type.STRING and not keys.optional:
            return {name: value_to_avro(values, each) for name, each in value.items()}
        return [
            {"key": value_to_avro(keys, name), "value": value_to_avro(values, each)}
            for name, each in value.items()
        ]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _branch(schema: Schema, value: Mapping[str, Any]) -> Any:
    for each in schema.fields:
        if value.get(each.name) is not None:
            return value_to_avro(each.schema, value[each.name])
    return None


def value_from_avro(schema: Schema, value: Any) -> Any:
    """Convert a value that fastavro returned. Records in unions arrive as `(name, value)`."""
    if value is None:
        return None
    if schema.name == UNION and schema.type is Type.STRUCT:
        return _from_branch(schema, value)
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if schema.type is Type.STRUCT:
        return {each.name: value_from_avro(each.schema, value[each.name]) for each in schema.fields}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [value_from_avro(schema.value_schema, each) for each in value]
    if schema.type is Type.MAP and schema.value_schema is not None:
        return _map_from_avro(schema, value)
    return str(value) if isinstance(value, uuid.UUID) else value


def _map_from_avro(schema: Schema, value: Any) -> dict[Any, Any]:
    keys, values = schema.key_schema, schema.value_schema
    assert keys is not None
    assert values is not None
    pairs = (
        value.items() if isinstance(value, Mapping)
        else [(each["key"], each["value"]) for each in value]
    )  # fmt: skip
    return {value_from_avro(keys, name): value_from_avro(values, each) for name, each in pairs}


def _from_branch(schema: Schema, value: Any) -> dict[str, Any]:
    """Return a union struct in which the first branch that accepts the value holds it."""
    made: dict[str, Any] = {each.name: None for each in schema.fields}
    if isinstance(value, tuple) and len(value) == 2:
        name = branch_name(value[0])
        for each in schema.fields:
            if each.name == name:
                made[name] = value_from_avro(each.schema, value[1])
                return made
        value = value[1]
    for each in schema.fields:
        plain = (
            value_from_avro(each.schema, value) if each.schema.type is not Type.STRUCT else value
        )
        try:
            data.check(each.schema, plain)
        except DataError:
            continue
        made[each.name] = plain
        return made
    raise DataError("a value matches no branch of its union")
