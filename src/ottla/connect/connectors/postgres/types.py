"""Mapping of PostgreSQL's column types to Connect schemas and values.

    boolean, smallint, integer, bigint, real, double precision    the same
    numeric(p, s)                 Decimal; numeric alone: io.debezium.data.VariableScaleDecimal;
                                  `decimal.handling.mode`: precise, double or string
    text, varchar, char, name     string; the length is the parameter LENGTH_PARAMETER
    bytea                         bytes
    date                          io.debezium.time.Date, days
    time, timestamp               io.debezium.time.MicroTime, MicroTimestamp; with a precision of
                                  at most 3 Time, Timestamp (ms); with
                                  `time.precision.mode=connect` Kafka's own
    timestamptz, timetz           io.debezium.time.ZonedTimestamp, ZonedTime: strings
    interval                      io.debezium.time.Interval, a string, or MicroDuration
                                  (`interval.handling.mode=numeric`)
    json, jsonb, uuid, xml        io.debezium.data.Json, Uuid, Xml: strings
    enums                         io.debezium.data.Enum, a string, with the allowed values
    arrays                        arrays; `array.handling.mode=string`: strings
    domains                       like their base type
    any other type                string, with the type as the parameter TYPE_PARAMETER

All columns but those of the key are optional: the stream does not contain NOT NULL constraints, and
the catalog's current state may differ from that at the time of a change. The functions do no I/O.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.connect.connectors.postgres import times
from ottla.connect.connectors.postgres.arrays import parse_array
from ottla.connect.data import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    DataError,
    Schema,
    Type,
    decimal_schema,
    from_ms,
)
from ottla.connect.debezium import (
    LENGTH_PARAMETER,
    TYPE_PARAMETER,
    VARIABLE_SCALE_SCHEMA,
    variable_scale,
)

Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class TypeModes:
    """The connector's `….handling.mode` and `time.precision.mode` properties."""

    decimals: str = "precise"
    times: str = "adaptive"
    intervals: str = "string"
    arrays: str = "array"


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """Row of pg_type. `kind` is b (base), e (enum), d (domain), c (composite) or r (range)."""

    name: str
    kind: str = "b"
    base_oid: int = 0
    """Base type of a domain."""
    modifier: int = -1
    """Type modifier that a domain applies to its base type."""
    element_oid: int = 0
    """Element type of an array."""
    labels: tuple[str, ...] = ()
    """Labels of an enum, in order."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    schema: Schema
    decode: Decode


BUILT_IN: Mapping[int, TypeInfo] = {
    16: TypeInfo("bool"), 17: TypeInfo("bytea"), 18: TypeInfo("char"), 19: TypeInfo("name"),
    20: TypeInfo("int8"), 21: TypeInfo("int2"), 23: TypeInfo("int4"), 25: TypeInfo("text"),
    26: TypeInfo("oid"), 114: TypeInfo("json"), 142: TypeInfo("xml"), 700: TypeInfo("float4"),
    701: TypeInfo("float8"), 1042: TypeInfo("bpchar"), 1043: TypeInfo("varchar"),
    1082: TypeInfo("date"), 1083: TypeInfo("time"), 1114: TypeInfo("timestamp"),
    1184: TypeInfo("timestamptz"), 1186: TypeInfo("interval"), 1266: TypeInfo("timetz"),
    1700: TypeInfo("numeric"), 2950: TypeInfo("uuid"), 3802: TypeInfo("jsonb"),
    1000: TypeInfo("_bool", element_oid=16), 1001: TypeInfo("_bytea", element_oid=17),
    1005: TypeInfo("_int2", element_oid=21), 1007: TypeInfo("_int4", element_oid=23),
    1016: TypeInfo("_int8", element_oid=20), 1009: TypeInfo("_text", element_oid=25),
    1015: TypeInfo("_varchar", element_oid=1043), 1014: TypeInfo("_bpchar", element_oid=1042),
    1021: TypeInfo("_float4", element_oid=700), 1022: TypeInfo("_float8", element_oid=701),
    1231: TypeInfo("_numeric", element_oid=1700), 1182: TypeInfo("_date", element_oid=1082),
    1183: TypeInfo("_time", element_oid=1083), 1115: TypeInfo("_timestamp", element_oid=1114),
    1185: TypeInfo("_timestamptz", element_oid=1184), 2951: TypeInfo("_uuid", element_oid=2950),
    199: TypeInfo("_json", element_oid=114), 3807: TypeInfo("_jsonb", element_oid=3802),
}  # fmt: skip
"""Types that need no catalog query, because their OIDs never change."""


def column_type(
    oid: int, modifier: int, modes: TypeModes, catalog: Mapping[int, TypeInfo]
) -> ColumnType:
    """Return the mapping of a type. Unknown types become strings."""
    info = BUILT_IN.get(oid) or catalog.get(oid)
    if info is None:
        return _text_of(f"oid {oid}")
    if info.kind == "d" and info.base_oid:
        return column_type(info.base_oid, info.modifier, modes, catalog)
    if info.kind == "e":
        allowed = {"allowed": ",".join(info.labels)}
        return ColumnType(_named(Type.STRING, "io.debezium.data.Enum", allowed), _text)
    if info.element_oid:
        if modes.arrays == "string":
            return _text_of(info.name)
        return _array(column_type(info.element_oid, modifier, modes, catalog))
    if info.name == "numeric":
        return _numeric(modifier, modes)
    if info.name in ("date", "time", "timestamp"):
        return _time(info.name, modifier, modes)
    if info.name == "interval" and modes.intervals == "numeric":
        return ColumnType(
            _named(Type.INT64, "io.debezium.time.MicroDuration"),
            lambda data: times.interval_microseconds(data.decode()),
        )
    if info.name in ("varchar", "bpchar") and modifier > 4:
        document = {TYPE_PARAMETER: info.name.upper(), LENGTH_PARAMETER: str(modifier - 4)}
        return ColumnType(Schema(Type.STRING, True, parameters=document), _text)
    return _PLAIN.get(info.name) or _text_of(info.name)


# ----------------------------------------------------------------------------------------- types


def _named(kind: Type, name: str, parameters: Mapping[str, str] | None = None) -> Schema:
    return Schema(kind, True, name, 1, parameters=parameters or {})


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _text_of(name: str) -> ColumnType:
    return ColumnType(Schema(Type.STRING, True, parameters={TYPE_PARAMETER: name.upper()}), _text)


def _array(element: ColumnType) -> ColumnType:
    decode = element.decode

    def items(data: bytes) -> list[Any]:
        found = parse_array(data.decode("utf-8", "replace"))
        return [None if each is None else decode(each.encode()) for each in found]

    return ColumnType(Schema(Type.ARRAY, True, value_schema=element.schema), items)


def _numeric(modifier: int, modes: TypeModes) -> ColumnType:
    if modes.decimals == "double":
        return ColumnType(Schema(Type.FLOAT64, True), float)
    if modes.decimals == "string":
        return ColumnType(Schema(Type.STRING, True), _text)
    if modifier < 4:
        return ColumnType(VARIABLE_SCALE_SCHEMA, _variable_scale)
    # The scale is an 11-bit signed number since PostgreSQL 15.
    scale = max(((modifier - 4) & 0x7FF ^ 0x400) - 0x400, 0)
    precision = (modifier - 4) >> 16 & 0xFFFF
    schema = decimal_schema(scale, optional=True)
    document = {**schema.parameters, "connect.decimal.precision": str(precision)}
    return ColumnType(replace(schema, parameters=document), _decimal)


def _decimal(data: bytes) -> decimal.Decimal:
    value = decimal.Decimal(data.decode())
    if not value.is_finite():
        raise DataError(
            f"{value} is not a decimal number; set decimal.handling.mode=string to capture it"
        )
    return value


def _variable_scale(data: bytes) -> dict[str, Any]:
    return variable_scale(_decimal(data))


def _time(name: str, modifier: int, modes: TypeModes) -> ColumnType:
    """Map a date or time; `modifier` is the number of fractional digits, -1 meaning six."""
    if modes.times == "connect":
        return _CONNECT_TIMES[name]
    if name == "date":
        return _DATE
    is_short = modes.times == "adaptive" and 0 <= modifier <= 3
    read = times.microseconds_of_day if name == "time" else times.microseconds
    of = "Time" if name == "time" else "Timestamp"
    if not is_short:
        made = _named(Type.INT64, f"io.debezium.time.Micro{of}")
        return ColumnType(made, lambda data: read(data.decode()))
    kind = Type.INT32 if name == "time" else Type.INT64
    made = _named(kind, f"io.debezium.time.{of}")
    return ColumnType(made, lambda data: read(data.decode()) // 1000)


_DATE = ColumnType(
    _named(Type.INT32, "io.debezium.time.Date"), lambda data: times.days(data.decode())
)
_CONNECT_TIMES = {
    "date": ColumnType(
        DATE_SCHEMA.as_optional(),
        lambda data: from_ms(times.days(data.decode()) * 86_400_000).date(),
    ),
    "time": ColumnType(
        TIME_SCHEMA.as_optional(),
        lambda data: from_ms(times.microseconds_of_day(data.decode()) // 1000 % 86_400_000).time(),
    ),
    "timestamp": ColumnType(
        TIMESTAMP_SCHEMA.as_optional(),
        lambda data: from_ms(times.microseconds(data.decode()) // 1000),
    ),
}
_STRING = ColumnType(Schema(Type.STRING, True), _text)
_PLAIN: Mapping[str, ColumnType] = {
    "bool": ColumnType(Schema(Type.BOOLEAN, True), lambda data: data == b"t"),
    "int2": ColumnType(Schema(Type.INT16, True), int),
    "int4": ColumnType(Schema(Type.INT32, True), int),
    "int8": ColumnType(Schema(Type.INT64, True), int),
    "oid": ColumnType(Schema(Type.INT64, True), int),
    "float4": ColumnType(Schema(Type.FLOAT32, True), float),
    "float8": ColumnType(Schema(Type.FLOAT64, True), float),
    "bytea": ColumnType(Schema(Type.BYTES, True), lambda data: bytes.fromhex(data[2:].decode())),
    "timestamptz": ColumnType(
        _named(Type.STRING, "io.debezium.time.ZonedTimestamp"),
        lambda data: times.zoned(data.decode()),
    ),
    "timetz": ColumnType(
        _named(Type.STRING, "io.debezium.time.ZonedTime"),
        lambda data: times.zoned_time(data.decode()),
    ),
    "interval": ColumnType(_named(Type.STRING, "io.debezium.time.Interval"), _text),
    "json": ColumnType(
        _named(Type.STRING, "io.debezium.data.Json", {TYPE_PARAMETER: "JSON"}), _text
    ),
    "jsonb": ColumnType(
        _named(Type.STRING, "io.debezium.data.Json", {TYPE_PARAMETER: "JSONB"}), _text
    ),
    "uuid": ColumnType(_named(Type.STRING, "io.debezium.data.Uuid"), _text),
    "xml": ColumnType(_named(Type.STRING, "io.debezium.data.Xml"), _text),
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name"), _STRING),
}
