"""Kafka's message schemas, derived from kio's generated dataclasses.

kio has one dataclass per message, version and nested struct, with the wire type of each field in
its metadata. This module converts such a class to a plain `Struct`, from which compile.py generates
code. No other module of Ottla accesses kio.

Names are those of kio, with one exception: kio models durations and timestamps as Python objects,
whereas Ottla keeps Kafka's milliseconds, so those fields end in `_ms` as they do in Kafka
(`timeout_ms`).
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from ottla.base.types import ZERO_UUID
from ottla.wire.import_blocker import block_import

with block_import("hypothesis"):
    from kio.index import load_entity_schema
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

MessageKind = Literal["request", "response"]

_UNSTABLE_VERSIONS: dict[int, int] = {22: 6}
"""API key -> first version that Apache Kafka marks as unstable (`latestVersionUnstable`). Its
brokers do not advertise such a version, and its format may still change."""
_MILLISECOND_TYPES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
_NULLABLE_TYPES = {"string", "bytes", "records", "struct"}
_IMPLICIT_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MessageField:
    """A field of a message."""

    name: str
    type: str
    """Kafka's primitive type, or "struct"."""
    struct: Struct | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    """Value of an absent field. Structs are dicts, arrays are ()."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A message, or a struct nested in one, in one version."""

    name: str
    flexible: bool
    fields: tuple[MessageField, ...]

    @property
    def body(self) -> tuple[MessageField, ...]:
        """The fields that are not tagged, in wire order."""
        return tuple(field for field in self.fields if field.tag is None)

    @property
    def tagged(self) -> tuple[MessageField, ...]:
        """The tagged fields, ordered by tag."""
        tagged = (field for field in self.fields if field.tag is not None)
        return tuple(sorted(tagged, key=lambda field: field.tag or 0))


def api_name(api_key: int) -> str:
    return api_key_map[api_key]


@cache
def versions(api_key: int) -> range:
    """Return every version that the schema defines for an API, without unstable ones."""
    known = sorted(schema_name_map[api_key_map[api_key]])
    return range(known[0], _UNSTABLE_VERSIONS.get(api_key, known[-1] + 1))


@cache
def message_struct(api_key: int, version: int, kind: MessageKind) -> Struct:
    return _reflect(_message_class(api_key, version, kind))


@cache
def header_version(api_key: int, version: int, kind: MessageKind) -> int:
    header = _message_class(api_key, version, kind).__header_schema__
    return int(header.__version__)


def _message_class(api_key: int, version: int, kind: MessageKind) -> Any:
    entity_type: Any = EntityType.request if kind == "request" else EntityType.response
    return load_entity_schema(api_key_map[api_key], version, entity_type)


@cache
def data_struct(name: str, version: int) -> Struct:
    """Return the schema of a message that is stored, such as `consumer_protocol_assignment`."""
    entity_type: Any = EntityType.data
    return _reflect(load_entity_schema(name, version, entity_type))


@cache
def _reflect(entity: Any) -> Struct:
    fields = tuple(_reflect_field(field) for field in dataclasses.fields(entity))
    return Struct(entity.__name__, entity.__flexible__, fields)


def _reflect_field(field: dataclasses.Field[Any]) -> MessageField:
    inner, nullable = _without_none(field.type)
    array = get_origin(inner) is tuple
    if array:
        inner, _ = _without_none(get_args(inner)[0])
    struct: Struct | None = None
    if isinstance(inner, type) and dataclasses.is_dataclass(inner):
        struct = _reflect(inner)
    kafka_type = "struct" if struct else field.metadata["kafka_type"]
    name = field.name + "_ms" if kafka_type in _MILLISECOND_TYPES else field.name
    kafka_type = _MILLISECOND_TYPES.get(kafka_type, kafka_type)
    if kafka_type == "error_code":
        kafka_type = "int16"
    if not array and kafka_type not in _NULLABLE_TYPES:
        nullable = False  # a missing ID is encoded as the zero UUID, a missing time as -1
    tag = field.metadata.get("tag")
    default = _default(field.default, kafka_type, array=array, nullable=nullable, name=name)
    if struct is not None and not array and default is not None:
        default = {inner_field.name: inner_field.default for inner_field in struct.fields}
    return MessageField(name, kafka_type, struct, array, nullable, tag, default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    options = [option for option in get_args(annotation) if option is not NoneType]
    return options[0], len(options) < len(get_args(annotation))


def _default(declared: Any, kafka_type: str, *, array: bool, nullable: bool, name: str) -> Any:
    if declared is dataclasses.MISSING:
        if nullable:
            return None
        return () if array else _IMPLICIT_DEFAULTS.get(kafka_type, 0)
    if declared is None:
        if array:
            return None
        return ZERO_UUID if kafka_type == "uuid" else (-1 if name.endswith("_ms") else None)
    if hasattr(declared, "total_seconds"):
        return round(declared.total_seconds() * 1000)
    if hasattr(declared, "timestamp"):
        return round(declared.timestamp() * 1000)
    if isinstance(declared, IntEnum):
        return int(declared)
    if hasattr(declared, "bytes") and kafka_type == "uuid":
        return declared.bytes
    return declared
