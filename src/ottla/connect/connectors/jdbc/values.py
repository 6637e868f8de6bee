"""Conversion of record values for databases, and the column types for new tables.

Times are passed as strings, which can express what Python's datetimes cannot (years beyond 9999,
dates BC, infinity). JSON, UUIDs and arrays are strings as well; the database converts them to the
column's type. Where a database lacks a type, the column is text, with arrays, maps and structs as
JSON. The functions do no I/O.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable
from typing import Any

from ottla.connect.data import (
    DATE,
    DECIMAL,
    EPOCH,
    TIME,
    TIMESTAMP,
    DataError,
    Schema,
    Type,
    encode_logical,
)
from ottla.connect.debezium import LENGTH_PARAMETER, TYPE_PARAMETER, VARIABLE_SCALE

POSTGRES, MYSQL, SQLITE = "postgresql", "mysql", "sqlite"
DEBEZIUM_TIME, DEBEZIUM_DATA = "io.debezium.time.", "io.debezium.data."
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
KEY_CHARS = 255
"""Length of text columns in a MySQL key, which must be bounded."""
POSTGRES_TEXT_TYPES = frozenset((
    "INET", "CIDR", "MACADDR", "MACADDR8", "TSVECTOR", "TSQUERY", "POINT", "LINE", "LSEG", "BOX",
    "PATH", "POLYGON", "CIRCLE", "VARBIT", "INT4RANGE", "INT8RANGE", "NUMRANGE", "TSRANGE",
    "TSTZRANGE", "DATERANGE", "JSON", "JSONB", "XML",
))  # fmt: skip
"""Source types that are kept when a PostgreSQL table is created."""


def family(dialect: str) -> str:
    return MYSQL if dialect == "mariadb" else dialect


# ------------------------------------------------------------------------------------------ types


def column_type(schema: Schema, dialect: str, *, is_key: bool = False) -> str:
    """Return the column's type for CREATE TABLE."""
    if schema.type is Type.ARRAY and dialect == POSTGRES and schema.value_schema is not None:
        inner = schema.value_schema
        if inner.type not in (Type.ARRAY, Type.MAP, Type.STRUCT):
            return f"{column_type(inner, dialect)}[]"
    found = _logical_type(schema, dialect)
    if found is not None:
        return found
    if schema.type in (Type.STRING, Type.BYTES):
        return _text_type(schema, dialect, is_key)
    if schema.type in (Type.ARRAY, Type.MAP, Type.STRUCT):
        return {POSTGRES: "JSONB", MYSQL: "JSON"}.get(dialect, "TEXT")
    return _PLAIN_TYPES[dialect][schema.type]


def _text_type(schema: Schema, dialect: str, is_key: bool) -> str:
    is_text = schema.type is Type.STRING
    if dialect == SQLITE:
        return "TEXT" if is_text else "BLOB"
    source = schema.parameters.get(TYPE_PARAMETER, "")
    length = schema.parameters.get(LENGTH_PARAMETER, "")
    if is_text and source in ("VARCHAR", "BPCHAR") and length.isdecimal():
        kind = "CHAR" if source == "BPCHAR" else "VARCHAR"
        if dialect == POSTGRES or int(length) <= KEY_CHARS:
            return f"{kind}({length})"
    if dialect == POSTGRES:
        if not is_text:
            return "BYTEA"
        return source if source in POSTGRES_TEXT_TYPES else "TEXT"
    if is_key:
        return f"VARCHAR({KEY_CHARS})" if is_text else f"VARBINARY({KEY_CHARS})"
    return "LONGTEXT" if is_text else "LONGBLOB"


def _logical_type(schema: Schema, dialect: str) -> str | None:
    name = schema.name or ""
    if name == DECIMAL:
        return _decimal_type(schema, dialect)
    if name == VARIABLE_SCALE:
        return "DECIMAL(65,30)" if dialect == MYSQL else "NUMERIC"
    kind = _LOGICAL.get(name)
    if kind is None:
        return None
    if kind == "JSON" and dialect == POSTGRES:
        return "JSON" if schema.parameters.get(TYPE_PARAMETER) == "JSON" else "JSONB"
    return _LOGICAL_TYPES[kind][(POSTGRES, MYSQL, SQLITE).index(dialect)]


def _decimal_type(schema: Schema, dialect: str) -> str:
    scale = schema.parameters.get("scale", "0")
    precision = schema.parameters.get("connect.decimal.precision", "")
    if dialect == SQLITE:
        return "NUMERIC"
    if precision.isdecimal() and (dialect == POSTGRES or int(precision) <= 65):
        return f"DECIMAL({precision},{scale})"
    return "NUMERIC" if dialect == POSTGRES else f"DECIMAL(65,{scale})"


_LOGICAL = {
    DATE: "DATE", TIME: "TIME3", TIMESTAMP: "TIMESTAMP3",
    f"{DEBEZIUM_TIME}Date": "DATE",
    f"{DEBEZIUM_TIME}Time": "TIME3", f"{DEBEZIUM_TIME}MicroTime": "TIME6",
    f"{DEBEZIUM_TIME}Timestamp": "TIMESTAMP3", f"{DEBEZIUM_TIME}MicroTimestamp": "TIMESTAMP6",
    f"{DEBEZIUM_TIME}ZonedTimestamp": "ZONED", f"{DEBEZIUM_TIME}ZonedTime": "ZONED_TIME",
    f"{DEBEZIUM_TIME}Interval": "INTERVAL", f"{DEBEZIUM_DATA}Json": "JSON",
    f"{DEBEZIUM_DATA}Uuid": "UUID", f"{DEBEZIUM_DATA}Xml": "XML",
}  # fmt: skip
_LOGICAL_TYPES = {
    "DATE": ("DATE", "DATE", "DATE"),
    "TIME3": ("TIME(3)", "TIME(3)", "TIME"),
    "TIME6": ("TIME", "TIME(6)", "TIME"),
    "TIMESTAMP3": ("TIMESTAMP(3)", "DATETIME(3)", "DATETIME"),
    "TIMESTAMP6": ("TIMESTAMP", "DATETIME(6)", "DATETIME"),
    "ZONED": ("TIMESTAMPTZ", "DATETIME(6)", "DATETIME"),
    "ZONED_TIME": ("TIMETZ", "VARCHAR(32)", "TEXT"),
    "INTERVAL": ("INTERVAL", "VARCHAR(64)", "TEXT"),
    "JSON": ("JSONB", "JSON", "TEXT"),
    "UUID": ("UUID", "CHAR(36)", "TEXT"),
    "XML": ("XML", "LONGTEXT", "TEXT"),
}
_PLAIN_TYPES = {
    POSTGRES: {
        Type.INT8: "SMALLINT", Type.INT16: "SMALLINT", Type.INT32: "INTEGER",
        Type.INT64: "BIGINT", Type.FLOAT32: "REAL", Type.FLOAT64: "DOUBLE PRECISION",
        Type.BOOLEAN: "BOOLEAN",
    },
    MYSQL: {
        Type.INT8: "TINYINT", Type.INT16: "SMALLINT", Type.INT32: "INT", Type.INT64: "BIGINT",
        Type.FLOAT32: "FLOAT", Type.FLOAT64: "DOUBLE", Type.BOOLEAN: "BOOLEAN",
    },
    SQLITE: {
        Type.INT8: "INTEGER", Type.INT16: "INTEGER", Type.INT32: "INTEGER",
        Type.INT64: "INTEGER", Type.FLOAT32: "REAL", Type.FLOAT64: "REAL",
        Type.BOOLEAN: "BOOLEAN",
    },
}  # fmt: skip


# ----------------------------------------------------------------------------------------- values


def bound(schema: Schema | None, value: Any, dialect: str) -> Any:
    """Return a value for the driver; raise DataError if it cannot be converted."""
    if value is None:
        return None
    name = schema.name if schema is not None else None
    write = _WRITERS.get(name or "")
    if write is not None:
        return write(value, dialect)
    if isinstance(value, decimal.Decimal):
        return str(value) if dialect == SQLITE else value
    if isinstance(value, bool):
        return value if dialect == POSTGRES else int(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return _python_time(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple):
        return _array(schema, value, dialect)
    if isinstance(value, dict):
        return to_json(schema, value)
    return value


def _python_time(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        zoned = value.astimezone(datetime.UTC) if value.tzinfo is not None else value
        return zoned.replace(tzinfo=None).isoformat(" ")
    return str(value.isoformat())


def _array(schema: Schema | None, items: Any, dialect: str) -> str:
    inner = schema.value_schema if schema is not None else None
    kind = inner.type if inner is not None else None
    if dialect != POSTGRES or kind in (Type.ARRAY, Type.MAP, Type.STRUCT, None):
        return to_json(schema, items)
    texts = (_array_item(bound(inner, item, dialect)) for item in items)
    return "{" + ",".join(texts) + "}"


def _array_item(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def to_json(schema: Schema | None, value: Any) -> str:
    def plain(inner: Schema | None, each: Any) -> Any:
        if isinstance(each, dict):
            return {str(name): plain(_inside(inner, name), item) for name, item in each.items()}
        if isinstance(each, list | tuple):
            return [plain(inner.value_schema if inner else None, item) for item in each]
        if isinstance(each, bytes | bytearray | memoryview):
            return bytes(each).hex()
        if isinstance(each, decimal.Decimal):
            return str(each)
        return encode_logical(inner, each)

    return json.dumps(plain(schema, value), separators=(",", ":"), ensure_ascii=False)


def _inside(schema: Schema | None, name: Any) -> Schema | None:
    if schema is None:
        return None
    if schema.type is Type.MAP:
        return schema.value_schema
    found = schema.field(str(name))
    return found.schema if found is not None else None


def _variable_scale(value: Any, dialect: str) -> Any:
    if not isinstance(value, dict):
        raise DataError("a variable-scale decimal must have a scale and a value")
    number = int.from_bytes(value["value"], "big", signed=True)
    made = decimal.Decimal(number).scaleb(-int(value["scale"]))
    return str(made) if dialect == SQLITE else made


def _date(value: Any, _: str) -> str:
    if not isinstance(value, int):
        return _python_time(value)
    if value in (INT32_MAX, INT32_MIN):
        return "infinity" if value > 0 else "-infinity"
    return civil(value)


def _of_day(per_second: int) -> Callable[[Any, str], str]:
    def write(value: Any, _: str) -> str:
        if not isinstance(value, int):
            return _python_time(value)
        seconds, part = divmod(value, per_second)
        fraction = part * 1_000_000 // per_second
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"

    return write


def _of_epoch(per_second: int) -> Callable[[Any, str], str]:
    of_day = _of_day(per_second)

    def write(value: Any, dialect: str) -> str:
        if not isinstance(value, int):
            return _python_time(value)
        if value in (INT64_MAX, INT64_MIN):
            return "infinity" if value > 0 else "-infinity"
        days, rest = divmod(value, 86_400 * per_second)
        date, era, _ = civil(days).partition(" BC")
        return f"{date} {of_day(rest, dialect)}{era}"

    return write


_ZONED = re.compile(r"(-?\d+-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d(?::?\d\d)?)")


def _zoned(value: Any, dialect: str) -> str:
    if not isinstance(value, str) or value.endswith("infinity"):
        return value if isinstance(value, str) else _python_time(value)
    found = _ZONED.fullmatch(value)
    if found is None:
        raise DataError(f"{value!r} is not a timestamp with a time zone")
    date, time, zone = found.groups()
    if dialect == POSTGRES:
        year, _, rest = date.rpartition("-")[0].rpartition("-")
        if year.startswith("-") or int(year) == 0:
            return f"{1 - int(year):04d}-{rest}-{date[-2:]} {time}{zone.replace('Z', '+00')} BC"
        return f"{date} {time}{zone.replace('Z', '+00')}"
    if zone in ("Z", "+00", "+00:00"):
        return f"{date} {time}"
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise DataError(f"{value!r} is outside the years 1 to 9999") from None
    return _python_time(moment)


def civil(days: int) -> str:
    """Return the date of a number of days since 1970-01-01, in PostgreSQL's format."""
    try:
        return (EPOCH.date() + datetime.timedelta(days=days)).isoformat()
    except OverflowError:
        pass
    days += 719_468
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    number = year + era * 400 + (month <= 2)
    if number <= 0:
        return f"{1 - number:04d}-{month:02d}-{day:02d} BC"
    return f"{number:04d}-{month:02d}-{day:02d}"


_WRITERS: dict[str, Callable[[Any, str], Any]] = {
    VARIABLE_SCALE: _variable_scale,
    f"{DEBEZIUM_TIME}Date": _date,
    f"{DEBEZIUM_TIME}Time": _of_day(1000),
    f"{DEBEZIUM_TIME}MicroTime": _of_day(1_000_000),
    f"{DEBEZIUM_TIME}Timestamp": _of_epoch(1000),
    f"{DEBEZIUM_TIME}MicroTimestamp": _of_epoch(1_000_000),
    f"{DEBEZIUM_TIME}ZonedTimestamp": _zoned,
}
