"""Mapping of database column types to Connect schemas and values.

integers, booleans, texts, bytes     the same type; unsigned integers use the next wider one
numeric(p, s)                        Decimal; `numeric.mapping` maps small ones to numbers
numeric without a scale              io.debezium.data.VariableScaleDecimal
date, time, timestamp                Kafka's Date, Time, Timestamp (ms); `timestamp.granularity`
                                     micros_long: io.debezium.time.MicroTimestamp
timestamps with a time zone          the same, in UTC
json, uuid                           io.debezium.data.Json, Uuid: strings
arrays                               arrays
any other type                       string

The functions do no I/O.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import types as sa

from ottla.connect.data import (
    DATE_SCHEMA,
    EPOCH,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    DataError,
    Schema,
    Type,
    decimal_schema,
)
from ottla.connect.debezium import VARIABLE_SCALE_SCHEMA, variable_scale

_US = datetime.timedelta(microseconds=1)
Encode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mapped:
    schema: Schema
    encode: Encode


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """The properties `numeric.mapping` and `timestamp.granularity`."""

    numeric: str = "none"
    granularity: str = "connect_logical"


def _same(value: Any) -> Any:
    return value


def _plain(kind: Type, encode: Encode = _same) -> Mapped:
    return Mapped(Schema(kind, True), encode)


def mapped(column: sa.TypeEngine[Any], mapping: TypeMapping, dialect: str) -> Mapped:
    name = column.__visit_name__.lower()
    if isinstance(column, sa.Boolean):
        return _plain(Type.BOOLEAN, bool)
    if isinstance(column, sa.Integer):
        return _integer(column, name, dialect)
    if isinstance(column, sa.Float):
        is_short = name in ("real", "float") and dialect != "sqlite" and name == "real"
        is_short = is_short or (dialect in ("mysql", "mariadb") and name == "float")
        return _plain(Type.FLOAT32 if is_short else Type.FLOAT64, float)
    if isinstance(column, sa.Numeric):
        return _numeric(column, mapping)
    if isinstance(column, sa.DateTime):
        return timestamps(mapping)
    if isinstance(column, sa.Date):
        return Mapped(DATE_SCHEMA.as_optional(), _same)
    if isinstance(column, sa.Time):
        return _time(mapping)
    if isinstance(column, sa.JSON):
        return Mapped(_named("io.debezium.data.Json"), _json)
    if isinstance(column, sa.Uuid):
        return Mapped(_named("io.debezium.data.Uuid"), str)
    if isinstance(column, sa.LargeBinary | sa.BINARY | sa.VARBINARY):
        return _plain(Type.BYTES, bytes)
    if isinstance(column, sa.ARRAY):
        inner = mapped(column.item_type, mapping, dialect)
        schema = Schema(Type.ARRAY, True, value_schema=inner.schema)
        return Mapped(schema, lambda items: [_each(inner, item) for item in items])
    return _plain(Type.STRING, str)


def inferred(value: Any, mapping: TypeMapping) -> Mapped:
    """Return the mapping of a query's column, based on its first non-null value."""
    if isinstance(value, bool):
        return _plain(Type.BOOLEAN)
    if isinstance(value, int):
        return _plain(Type.INT64)
    if isinstance(value, float):
        return _plain(Type.FLOAT64)
    if isinstance(value, decimal.Decimal):
        return Mapped(VARIABLE_SCALE_SCHEMA, _variable_scale)
    if isinstance(value, bytes | bytearray | memoryview):
        return _plain(Type.BYTES, bytes)
    if isinstance(value, datetime.datetime):
        return timestamps(mapping)
    if isinstance(value, datetime.date):
        return Mapped(DATE_SCHEMA.as_optional(), _same)
    if isinstance(value, datetime.time | datetime.timedelta):
        return _time(mapping)
    if isinstance(value, uuid.UUID):
        return Mapped(_named("io.debezium.data.Uuid"), str)
    if isinstance(value, dict | list):
        return Mapped(_named("io.debezium.data.Json"), _json)
    return _plain(Type.STRING, str)


def encoded(name: str, mapping: Mapping[str, Mapped], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as the fields of a struct; raise DataError if a value cannot be encoded."""
    made = {}
    for field, each in mapping.items():
        value = row[field]
        try:
            made[field] = None if value is None else each.encode(value)
        except (DataError, ValueError, TypeError, ArithmeticError) as error:
            raise DataError(
                f"cannot convert {value!r} in column {field} of {name}: {error}"
            ) from None
    return made


def _each(inner: Mapped, item: Any) -> Any:
    return None if item is None else inner.encode(item)


def _named(name: str, kind: Type = Type.STRING) -> Schema:
    return Schema(kind, True, name, 1)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _integer(column: sa.Integer, name: str, dialect: str) -> Mapped:
    is_unsigned = bool(getattr(column, "unsigned", False))
    if name == "tinyint":
        if getattr(column, "display_width", None) == 1:
            return _plain(Type.BOOLEAN, bool)
        return _plain(Type.INT16 if is_unsigned else Type.INT8)
    if isinstance(column, sa.BigInteger):
        if is_unsigned:
            return Mapped(decimal_schema(0, optional=True), decimal.Decimal)
        return _plain(Type.INT64)
    if isinstance(column, sa.SmallInteger):
        return _plain(Type.INT32 if is_unsigned else Type.INT16)
    # SQLite integers have up to 64 bits, whatever the declared type.
    return _plain(Type.INT64 if is_unsigned or dialect == "sqlite" else Type.INT32)


def _numeric(column: sa.Numeric[Any], mapping: TypeMapping) -> Mapped:
    precision, scale = column.precision, column.scale
    if precision is None and scale is None:
        if mapping.numeric == "best_fit_eager_double":
            return _plain(Type.FLOAT64, float)
        return Mapped(VARIABLE_SCALE_SCHEMA, _variable_scale)
    scale = scale or 0
    if mapping.numeric != "none" and precision is not None and precision < 19:
        if scale == 0:
            return _plain(_fitting(precision), int)
        if mapping.numeric == "best_fit_eager_double" or (
            mapping.numeric == "best_fit" and precision <= 15
        ):
            return _plain(Type.FLOAT64, float)
    schema = decimal_schema(scale, optional=True)
    if precision is not None:
        document = {**schema.parameters, "connect.decimal.precision": str(precision)}
        schema = Schema(Type.BYTES, True, schema.name, 1, parameters=document)
    return Mapped(schema, _decimal(scale))


def _fitting(precision: int) -> Type:
    kinds = ((2, Type.INT8), (4, Type.INT16), (9, Type.INT32))
    return next((kind for digits, kind in kinds if precision <= digits), Type.INT64)


def _decimal(scale: int) -> Encode:
    unit = decimal.Decimal(1).scaleb(-scale)

    def encode(value: Any) -> decimal.Decimal:
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
        exponent = number.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > scale:
            # SQLite stores values unchanged, whatever scale the column declares.
            return number.quantize(unit)
        return number

    return encode


def _variable_scale(value: Any) -> dict[str, Any]:
    number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    return variable_scale(number)


def timestamps(mapping: TypeMapping) -> Mapped:
    if mapping.granularity == "connect_logical":
        return Mapped(TIMESTAMP_SCHEMA.as_optional(), _utc)
    if mapping.granularity == "micros_long":
        schema = _named("io.debezium.time.MicroTimestamp", Type.INT64)
        return Mapped(schema, lambda value: (_utc(value) - EPOCH) // _US)
    return _plain(Type.STRING, lambda value: value.isoformat())


def _utc(value: datetime.datetime) -> datetime.datetime:
    if value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value.astimezone(datetime.UTC)


def _time(mapping: TypeMapping) -> Mapped:
    if mapping.granularity == "micros_long":
        return Mapped(_named("io.debezium.time.MicroTime", Type.INT64), _micros_of_day)
    return Mapped(TIME_SCHEMA.as_optional(), _time_of_day)


def _time_of_day(value: Any) -> Any:
    """Return the time of day; MySQL's driver returns times as timedeltas."""
    if isinstance(value, datetime.timedelta):
        return (datetime.datetime.min + value % datetime.timedelta(days=1)).time()
    return value.replace(tzinfo=None)


def _micros_of_day(value: Any) -> int:
    if isinstance(value, datetime.timedelta):
        return value // _US
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return int(seconds * 1_000_000 + value.microsecond)
