"""Kafka Connect's JsonConverter, with and without schemas.

With `schemas.enable` (the default) every key and value is an envelope:

    {"schema": {"type": "struct", "optional": false, "name": "order",
                "fields": [{"field": "id", "type": "int32", "optional": false}, …]},
     "payload": {"id": 7}}

Without it, the JSON is the payload alone, and values are read without a schema. Bytes are base64. A
map with string keys is an object; any other map is an array of [key, value] pairs. A Decimal is
base64 of its unscaled bytes, or a number with `decimal.format=NUMERIC`.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, OneOf
from ottla.connect import json_columns
from ottla.connect.columns import Columns, NotInColumns
from ottla.connect.converters import Converter
from ottla.connect.data import (
    DECIMAL,
    DataError,
    Field,
    Schema,
    Type,
    check,
    decode_logical,
    encode_logical,
    infer_schema,
    scale_of,
    unscaled_bytes,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.json_writer import NeedsSlowPath, Write, make_writer
from ottla.connect.schema_cache import SchemaCache

MAX_DEPTH = 100
"""Maximum nesting of schemas and values, as both may come from untrusted writers."""

_NUMBER = f"{uuid.uuid4().hex}:"
"""Prefix of strings that are rewritten to numbers, because `json` cannot write decimals."""
_QUOTED_NUMBER = re.compile(f'"{_NUMBER}([-+.0-9E]+)"')


class JsonConverter(Converter):
    definition = Definition([
        key("schemas.enable", ConfigType.BOOLEAN, True,
            "Whether each message contains its schema."),
        key("schemas.cache.size", ConfigType.INT, 1000, "Maximum number of cached schemas.",
            AtLeast(0)),
        key("decimal.format", ConfigType.STRING, "BASE64", "Representation of decimals.",
            OneOf(("BASE64", "NUMERIC"), ignore_case=True)),
        key("replace.null.with.default", ConfigType.BOOLEAN, True,
            "Whether to replace null by the field's default."),
    ])  # fmt: skip

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._schemas = bool(settings.get("schemas.enable", True))
        self._numeric = str(settings.get("decimal.format", "BASE64")).upper() == "NUMERIC"
        self._defaults = bool(settings.get("replace.null.with.default", True))
        size = int(settings.get("schemas.cache.size", 1000))
        self._schema_texts: SchemaCache[Schema, str] = SchemaCache(
            size, lambda schema: _text(schema_to_json(schema))
        )
        self._writers: SchemaCache[Schema, Write] = SchemaCache(
            size, lambda schema: make_writer(schema, self._inside)
        )
        self._read: SchemaCache[str, Schema | None] = SchemaCache(
            size, lambda text: schema_from_json(json.loads(text))
        )

    # ------------------------------------------------------------------------------- writing

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        text = self._format_value(schema, value)
        if self._schemas:
            data = "null" if schema is None else self._schema_texts.get(schema)
            text = f'{{"schema":{data},"payload":{text}}}'
        return text.encode()

    def from_columns(self, schema: Schema | None, value: Any, columns: Columns) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if schema is None:
            raise NotInColumns("without a schema, the fields of values differ")
        texts = json_columns.texts(schema, value, columns, self._format_value)
        if self._schemas:
            head = pa.scalar(f'{{"schema":{self._schema_texts.get(schema)},"payload":')
            texts = pc.binary_join_element_wise(head, texts, pa.scalar("}"), "")
        return texts.cast(pa.binary())

    def _format_value(self, schema: Schema | None, value: Any) -> str:
        text = _text(self._payload(schema, value))
        return _QUOTED_NUMBER.sub(r"\1", text) if _NUMBER in text else text

    def _payload(self, schema: Schema | None, value: Any) -> Any:
        if schema is None:
            return self._to_json(None, value)
        if value is not None:
            try:
                return self._writers.get(schema)(value)
            except NeedsSlowPath:
                pass
        return self._slowly(schema, value)

    def _inside(self, schema: Schema, value: Any) -> Any:
        """Convert a nested value; raise NeedsSlowPath on errors.

        Only the slow path can locate them.
        """
        try:
            if value.__class__ is decimal.Decimal and schema.name == DECIMAL and not self._numeric:
                return base64.b64encode(unscaled_bytes(value, scale_of(schema))).decode()
            return self._slowly(schema, value)
        except DataError:
            raise NeedsSlowPath from None

    def _slowly(self, schema: Schema, value: Any) -> Any:
        """Convert with all checks and with errors that name the field."""
        check(schema, value)
        return self._to_json(schema, value)

    def _to_json(self, schema: Schema | None, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise DataError(f"a value is nested more than {MAX_DEPTH} levels deep")
        if value is None:
            if schema is None or schema.default is None or not self._defaults:
                return None
            value = schema.default
        if schema is None:
            schema = infer_schema(value)
        if isinstance(value, decimal.Decimal):
            if self._numeric or schema is None:
                return f"{_NUMBER}{value}"
            value = encode_logical(schema, value)
        if isinstance(value, bytes | bytearray | memoryview):
            return base64.b64encode(value).decode()
        if isinstance(value, dict):
            return self._object_to_json(schema, value, depth)
        if isinstance(value, list | tuple):
            items = schema.value_schema if schema is not None else None
            return [self._to_json(items, item, depth + 1) for item in value]
        return encode_logical(schema, value)

    def _object_to_json(self, schema: Schema | None, value: dict[Any, Any], depth: int) -> Any:
        if schema is not None and schema.type is Type.STRUCT:
            return {
                each.name: self._to_json(each.schema, value.get(each.name), depth + 1)
                for each in schema.fields
            }
        keys = schema.key_schema if schema is not None else None
        items = schema.value_schema if schema is not None else None
        pairs = [
            (self._to_json(keys, name, depth + 1), self._to_json(items, item, depth + 1))
            for name, item in value.items()
        ]
        texts = keys.type is Type.STRING if keys is not None else all(
            isinstance(name, str) for name in value
        )  # fmt: skip
        return dict(pairs) if texts else [list(pair) for pair in pairs]

    # ------------------------------------------------------------------------------- reading

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        document = self._loaded(data)
        if not self._schemas:
            return None, _floats(document) if self._numeric else document
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may '
                "not contain additional fields; for plain JSON set schemas.enable=false"
            )
        schema = self._schema(document["schema"])
        payload = document["payload"]
        return schema, _floats(payload) if schema is None else self._from_json(schema, payload)

    def to_columns(self, topic: str, data: Any) -> tuple[Schema | None, Any]:
        if not self._schemas:
            return None, json_columns.plain_values(data)
        prefix, document = json_columns.split_envelope(data[0].as_py() or b"")
        schema = self._read.get(document)
        if schema is None:
            raise NotInColumns("without a schema, the fields of values differ")
        return schema, json_columns.payloads(data, prefix, schema)

    def value_in(self, schema: Schema, data: bytes) -> Any:
        """Parse a payload without an envelope, given its schema."""
        return self._from_json(schema, self._loaded(data))

    def _loaded(self, data: bytes) -> Any:
        try:
            # Decoded first, because json.loads would detect the encoding of bytes.
            text = data.decode()
            return json.loads(text, parse_float=decimal.Decimal if self._numeric else None)
        except (ValueError, RecursionError) as error:
            raise DataError(f"a record is not valid JSON: {error}") from None

    def _schema(self, data: Any) -> Schema | None:
        return self._read.get(json.dumps(data, default=str))

    def _from_json(self, schema: Schema, value: Any, where: str = "payload") -> Any:
        if value is None:
            if schema.default is not None and self._defaults:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"{where} is null, but its schema is not optional")
        if schema.type is Type.BYTES:
            return self._bytes(schema, value, where)
        if schema.type is Type.STRUCT:
            if not isinstance(value, dict):
                raise DataError(f"{where} must be an object")
            return {
                each.name: self._from_json(
                    each.schema, value.get(each.name), f"{where}.{each.name}"
                )
                for each in schema.fields
            }
        if schema.type is Type.ARRAY:
            if not isinstance(value, list):
                raise DataError(f"{where} must be an array")
            assert schema.value_schema is not None
            return [self._from_json(schema.value_schema, each, f"{where}[]") for each in value]
        if schema.type is Type.MAP:
            return self._map(schema, value, where)
        value = _floats(value)
        if schema.type in (Type.FLOAT32, Type.FLOAT64) and isinstance(value, int):
            value = float(value)
        check(Schema(schema.type), value, where)
        return decode_logical(schema, value)

    def _bytes(self, schema: Schema, value: Any, where: str) -> Any:
        if schema.name == DECIMAL and isinstance(value, int | float | decimal.Decimal):
            return decimal.Decimal(str(value)).quantize(
                decimal.Decimal(1).scaleb(-scale_of(schema))
            )
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise DataError(f"{where} must be base64") from None
        return decode_logical(schema, data)

    def _map(self, schema: Schema, value: Any, where: str) -> dict[Any, Any]:
        keys, items = schema.key_schema, schema.value_schema
        assert keys is not None
        assert items is not None
        pairs = value.items() if isinstance(value, dict) else value
        try:
            return {
                self._from_json(keys, name, where): self._from_json(items, item, f"{where}[{name}]")
                for name, item in pairs
            }
        except (TypeError, ValueError):
            raise DataError(f"{where} must be an object, or an array of pairs") from None


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _text(value: Any) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"a value cannot be written as JSON: {error}") from None


def _floats(value: Any) -> Any:
    """Convert decimals that `decimal.format=NUMERIC` parsed from ordinary numbers to floats."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _floats(each) for name, each in value.items()}
    return [_floats(each) for each in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------- schemas


def schema_to_json(schema: Schema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    data: dict[str, Any] = {"type": schema.type.value}
    if schema.type is Type.ARRAY:
        data["items"] = schema_to_json(schema.value_schema)
    elif schema.type is Type.MAP:
        data["keys"] = schema_to_json(schema.key_schema)
        data["values"] = schema_to_json(schema.value_schema)
    elif schema.type is Type.STRUCT:
        data["fields"] = [
            {**(schema_to_json(each.schema) or {}), "field": each.name} for each in schema.fields
        ]
    data["optional"] = schema.optional
    texts = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    data |= {name: value for name, value in texts.items() if value is not None}
    if schema.parameters:
        data["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        data["default"] = JsonConverter({})._to_json(schema, schema.default)
    return data


def schema_from_json(data: Any, depth: int = 0) -> Schema | None:
    if data is None:
        return None
    if not isinstance(data, Mapping) or depth > MAX_DEPTH:
        raise DataError("a schema must be an object")
    try:
        kind = Type(data.get("type"))
    except ValueError:
        raise DataError(f"unknown schema type {data.get('type')!r}") from None
    fields: tuple[Field, ...] = ()
    keys = values = None
    if kind is Type.STRUCT:
        fields = tuple(_field(each, depth) for each in _listed(data, "fields"))
    elif kind is Type.ARRAY:
        values = _inner(data, "items", depth)
    elif kind is Type.MAP:
        keys, values = _inner(data, "keys", depth), _inner(data, "values", depth)
    parameters = data.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise DataError("a schema's parameters must be an object")
    made = Schema(
        kind, bool(data.get("optional", False)), data.get("name"), data.get("version"),
        data.get("doc"), {str(name): str(value) for name, value in parameters.items()},
        None, fields, keys, values,
    )  # fmt: skip
    if data.get("default") is None:
        return made
    from dataclasses import replace

    return replace(made, default=JsonConverter({})._from_json(made, data["default"], "default"))


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise DataError(f"the schema of a struct must have an array {name}")
    return found


def _field(data: Any, depth: int) -> Field:
    schema = schema_from_json(data, depth + 1)
    if schema is None or not isinstance(data.get("field"), str):
        raise DataError("each field of a schema must have its name in field")
    return Field(data["field"], schema)


def _inner(data: Mapping[str, Any], name: str, depth: int) -> Schema:
    found = schema_from_json(data.get(name), depth + 1)
    if found is None:
        raise DataError(f"a schema of type {data.get('type')} must have {name}")
    return found
