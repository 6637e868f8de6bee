"""Confluent's JsonSchemaConverter: JSON with its schema in a registry."""

from __future__ import annotations

import json
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import OneOf
from ottla.connect.data import DataError, Schema
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.json_converter import JsonConverter
from ottla.connect.json_schemas import from_json_schema, to_json_schema
from ottla.connect.registry_converter import RegistryConverter
from ottla.connect.schema_cache import SchemaCache
from ottla.connect.schema_registry import REGISTRY


class JsonSchemaConverter(RegistryConverter):
    kind = "JSON"
    definition = REGISTRY + Definition([
        key("decimal.format", ConfigType.STRING, "BASE64", "Representation of decimals.",
            OneOf(("BASE64", "NUMERIC"), ignore_case=True)),
    ])  # fmt: skip

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        decimals = settings["decimal.format"].upper()
        self._is_numeric = decimals == "NUMERIC"
        self._json = JsonConverter({"schemas.enable": False, "decimal.format": decimals})
        self._read: SchemaCache[str, Schema] = SchemaCache(
            settings["schemas.cache.size"], _connect_schema
        )

    def text_of(self, schema: Schema) -> str:
        data = to_json_schema(schema, numeric_decimals=self._is_numeric)
        return json.dumps(data, separators=(",", ":"))

    def name_of(self, schema: Schema) -> str | None:
        return schema.name

    def write(self, text: str, schema: Schema, value: Any) -> bytes:
        written = self._json.from_connect("", schema, value)
        assert written is not None
        return written

    def read(self, text: str, payload: bytes) -> tuple[Schema | None, Any]:
        schema = self._read.get(text)
        return schema, self._json.value_in(schema, payload)


def _connect_schema(text: str) -> Schema:
    try:
        return from_json_schema(json.loads(text))
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"a schema is not a valid JSON Schema: {error}") from None
