"""Base class of converters that use a schema registry."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ottla.connect.converters import Converter
from ottla.connect.data import DataError, Schema, infer_whole
from ottla.connect.definition import Settings
from ottla.connect.schema_cache import SchemaCache
from ottla.connect.schema_registry import (
    REGISTRY,
    Registered,
    SchemaRegistry,
    framed,
    subject_of,
    unframed,
)


class RegistryConverter(Converter):
    """Converter that stores schemas in a registry; it infers the schema of a value without one."""

    definition = REGISTRY
    kind: ClassVar[str]
    """Schema type in the registry: AVRO or JSON."""

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        if settings["use.latest.version"] and settings["auto.register.schemas"]:
            raise ValueError("use.latest.version=true requires auto.register.schemas=false")
        size = settings["schemas.cache.size"]
        self._registry = SchemaRegistry(settings)
        self._texts: SchemaCache[Schema, str] = SchemaCache(size, self.text_of)
        self._latest: SchemaCache[str, Registered] = SchemaCache(size, self._registry.latest)
        part = "key" if is_key else "value"
        self._strategy = settings[f"{part}.subject.name.strategy"]

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            schema = infer_whole(value)
        text = self._texts.get(schema)
        subject = subject_of(self._strategy, topic, self.name_of(schema), is_key=self.is_key)
        if self.settings["use.latest.version"]:
            schema_id, text = self._latest.get(subject)
        elif self.settings["auto.register.schemas"]:
            schema_id = self._registry.register(subject, text, self.kind)
        else:
            schema_id = self._registry.lookup(subject, text, self.kind)
        return framed(schema_id, self.write(text, schema, value))

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        schema_id, payload = unframed(data)
        kind, text = self._registry.by_id(schema_id)
        if kind != self.kind:
            raise DataError(f"schema {schema_id} is of type {kind}, not {self.kind}")
        return self.read(text, payload)

    @abstractmethod
    def text_of(self, schema: Schema) -> str:
        """Return the schema in the registry's schema language."""

    @abstractmethod
    def name_of(self, schema: Schema) -> str | None:
        """Return the name of the schema for RecordNameStrategy."""

    @abstractmethod
    def write(self, text: str, schema: Schema, value: Any) -> bytes: ...

    @abstractmethod
    def read(self, text: str, payload: bytes) -> tuple[Schema | None, Any]: ...
