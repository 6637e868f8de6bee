"""Confluent's AvroConverter: Avro with a schema registry, based on fastavro.

It requires `pip install 'ottla[avro]'`.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from ottla.connect.avro_schemas import (
    DEFAULT_NAME,
    from_avro,
    to_avro,
    value_from_avro,
    value_to_avro,
)
from ottla.connect.data import DataError, Schema, Type, check
from ottla.connect.definition import Settings
from ottla.connect.registry_converter import RegistryConverter
from ottla.connect.schema_cache import SchemaCache


class AvroConverter(RegistryConverter):
    kind = "AVRO"

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        size = settings["schemas.cache.size"]
        self._parsed: SchemaCache[str, Any] = SchemaCache(size, _parse)
        self._read: SchemaCache[str, Schema] = SchemaCache(size, _connect_schema)

    def text_of(self, schema: Schema) -> str:
        return json.dumps(to_avro(schema), separators=(",", ":"))

    def name_of(self, schema: Schema) -> str | None:
        if schema.type is not Type.STRUCT:
            return None
        return schema.name or DEFAULT_NAME

    def write(self, text: str, schema: Schema, value: Any) -> bytes:
        check(schema, value)
        if self.settings["use.latest.version"]:
            # The schema is the registry's, not derived from ours. Converting it rejects recursive
            # and oversized schemas before fastavro sees them.
            self._read.get(text)
        written = io.BytesIO()
        try:
            fastavro.schemaless_writer(
                written, self._parsed.get(text), value_to_avro(schema, value)
            )
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise DataError(f"a value does not match its Avro schema: {error}") from None
        return written.getvalue()

    def read(self, text: str, payload: bytes) -> tuple[Schema | None, Any]:
        schema = self._read.get(text)
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(
                source, self._parsed.get(text), None, return_record_name=True
            )
        except Exception as error:
            # fastavro raises many exception types on malformed bytes.
            raise DataError(f"the bytes do not match their Avro schema: {error}") from None
        if source.read(1):
            raise DataError("bytes follow the value that the Avro schema describes")
        return schema, value_from_avro(schema, value)


def _parse(text: str) -> Any:
    try:
        return fastavro.parse_schema(json.loads(text))
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise DataError(f"a schema is not valid Avro: {error}") from None


def _connect_schema(text: str) -> Schema:
    try:
        return from_avro(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"a schema is not valid Avro: {error}") from None
