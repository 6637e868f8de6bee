"""Kafka Connect's data model: schemas, values and records between connectors and topics.

Every value has a schema. The schema may be None; the value is then anything that JSON can express.
A struct is a dict whose keys are the fields of its schema. Logical types are schemas with a name:

    org.apache.kafka.connect.data.Decimal    bytes, parameter scale    decimal.Decimal
    org.apache.kafka.connect.data.Date       int32, days               datetime.date
    org.apache.kafka.connect.data.Time       int32, ms of the day      datetime.time
    org.apache.kafka.connect.data.Timestamp  int64, ms                 datetime.datetime (UTC)
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


class DataError(Exception):
    """A record that cannot be converted or transformed. Only this record fails."""


class Type(Enum):
    """Type of a schema, named as in Kafka Connect's JSON."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


INTEGER_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct schema."""

    name: str
    """Name of the field."""
    schema: Schema
    """Schema of the field's values."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of keys, values or fields, as in Kafka Connect."""

    type: Type
    """Type of the values."""
    optional: bool = False
    """Whether values may be null."""
    name: str | None = None
    """Name of the schema, such as that of a logical type."""
    version: int | None = None
    """Version of the schema."""
    doc: str | None = None
    """Description of the schema."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of a logical type, such as the scale of a decimal."""
    default: Any = None
    """Value that stands for a missing one."""
    fields: tuple[Field, ...] = ()
    """Fields of a struct."""
    key_schema: Schema | None = None
    """Schema of a map's keys."""
    value_schema: Schema | None = None
    """Schema of a map's values or an array's items."""

    def field(self, name: str) -> Field | None:
        """Return a field of a struct, or None if there is none.

        Args:
            name: Name of the field.
        """
        return next((each for each in self.fields if each.name == name), None)

    def as_optional(self) -> Schema:
        """Return the same schema for values that may be null."""
        return self if self.optional else replace(self, optional=True)


STRING = Schema(Type.STRING)
OPTIONAL_STRING = Schema(Type.STRING, optional=True)
BYTES = Schema(Type.BYTES)
OPTIONAL_BYTES = Schema(Type.BYTES, optional=True)
INT32 = Schema(Type.INT32)
INT64 = Schema(Type.INT64)
BOOLEAN = Schema(Type.BOOLEAN)
FLOAT64 = Schema(Type.FLOAT64)
TIMESTAMP_SCHEMA = Schema(Type.INT64, name=TIMESTAMP, version=1)
DATE_SCHEMA = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA = Schema(Type.INT32, name=TIME, version=1)


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    """Return the schema of decimal numbers, Kafka's logical type Decimal.

    Args:
        scale: Number of digits after the decimal point.
        optional: Whether values may be null.

    Returns:
        The schema. Its values in records are `decimal.Decimal`.
    """
    parameters = {"scale": str(scale)}
    return Schema(Type.BYTES, optional, DECIMAL, 1, parameters=parameters)


def struct_schema(
    *fields: tuple[str, Schema], name: str | None = None, optional: bool = False
) -> Schema:
    """Return the schema of a struct.

    Args:
        fields: Names and schemas of the fields.
        name: Name of the schema.
        optional: Whether values may be null.

    Returns:
        The schema. Its values in records are dicts.

    Example:
        struct_schema(("id", Schema(Type.INT64)), ("note", Schema(Type.STRING, optional=True)))
    """
    return Schema(Type.STRUCT, optional, name, fields=tuple(Field(*each) for each in fields))


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    """Name of the header."""
    schema: Schema | None
    """Schema of the value, or None."""
    value: Any
    """Value of the header."""


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """A record between a topic and another system."""

    topic: str
    """Topic of the record."""
    value: Any = None
    """Value of the record; a struct is a dict."""
    value_schema: Schema | None = None
    """Schema of the value, or None for any value that JSON can express."""
    key: Any = None
    """Key of the record."""
    key_schema: Schema | None = None
    """Schema of the key, or None."""
    partition: int | None = None
    """Partition of the record; None lets the key choose."""
    offset: int | None = None
    """Offset in its topic, for records that were read from one."""
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; None takes the current time."""
    headers: tuple[Header, ...] = ()
    """Headers of the record."""
    origin: tuple[str, int, int] | None = None
    """Topic, partition and offset that a sink record was read from, unchanged by transforms."""

    def with_(self, **changes: Any) -> ConnectRecord:
        """Return a copy of the record with other fields.

        Args:
            changes: New values of the fields, by name.
        """
        return replace(self, **changes)

    def with_value(self, schema: Schema | None, value: Any) -> ConnectRecord:
        """Return a copy of the record with another value. It is faster than `with_`.

        Args:
            schema: Schema of the value.
            value: The value.
        """
        return ConnectRecord(
            self.topic, value, schema, self.key, self.key_schema, self.partition, self.offset,
            self.timestamp_ms, self.headers, self.origin,
        )  # fmt: skip

    def with_key(self, schema: Schema | None, key: Any) -> ConnectRecord:
        """Return a copy of the record with another key. It is faster than `with_`.

        Args:
            schema: Schema of the key.
            key: The key.
        """
        return ConnectRecord(
            self.topic, self.value, self.value_schema, key, schema, self.partition, self.offset,
            self.timestamp_ms, self.headers, self.origin,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailedRecord(ConnectRecord):
    """Data that a source could not convert to a record, with the reason."""

    error: str = ""
    """Reason for the failure."""
    source: str = ""
    """Component that read the data."""


# ------------------------------------------------------------------------------- logical values


def to_ms(value: datetime.datetime) -> int:
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - EPOCH) // _MS


def from_ms(ms: int) -> datetime.datetime:
    try:
        return EPOCH + ms * _MS
    except OverflowError:
        raise DataError(f"{ms} ms is not a time between the years 1 and 9999") from None


def encode_logical(schema: Schema | None, value: Any) -> Any:
    """Return the primitive form of a logical value: days, milliseconds or unscaled bytes."""
    name = schema.name if schema is not None else None
    if isinstance(value, datetime.datetime) and name in (None, TIMESTAMP):
        return to_ms(value)
    if isinstance(value, datetime.date) and name in (None, DATE):
        return (value - EPOCH.date()).days
    if isinstance(value, datetime.time) and name in (None, TIME):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    if isinstance(value, decimal.Decimal) and schema is not None and name == DECIMAL:
        return unscaled_bytes(value, scale_of(schema))
    return value


def decode_logical(schema: Schema, value: Any) -> Any:
    """Return the logical value of its primitive form."""
    if value is None:
        return None
    if schema.name == TIMESTAMP and isinstance(value, int):
        return from_ms(value)
    if schema.name == DATE and isinstance(value, int):
        return from_ms(value * 86_400_000).date()
    if schema.name == TIME and isinstance(value, int):
        return from_ms(value % 86_400_000).time()
    if schema.name == DECIMAL and isinstance(value, bytes):
        return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale_of(schema))
    return value


def scale_of(schema: Schema) -> int:
    try:
        return int(schema.parameters["scale"])
    except (KeyError, ValueError):
        raise DataError("a Decimal schema must have the parameter scale, an integer") from None


def unscaled_bytes(value: decimal.Decimal, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"{value} is not a decimal number")
    if -exponent > scale:
        raise DataError(f"{value} has more than {scale} digits after the decimal point")
    number: int = int("".join(map(str, digits)) or "0") * 10 ** (scale + exponent)
    number = -number if sign else number
    # The shortest two's complement, as Java's BigInteger.toByteArray writes it.
    size = (number if number >= 0 else number + 1).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def infer_schema(value: Any) -> Schema | None:
    """Return the schema of a primitive or temporal value, or None for any other."""
    kinds: tuple[tuple[type, Schema], ...] = (
        (bool, BOOLEAN), (int, INT64), (float, FLOAT64), (str, STRING), (bytes, BYTES),
        (datetime.datetime, TIMESTAMP_SCHEMA), (datetime.date, DATE_SCHEMA),
        (datetime.time, TIME_SCHEMA),
    )  # fmt: skip
    return next((schema for kind, schema in kinds if isinstance(value, kind)), None)


def infer_whole(value: Any) -> Schema:
    """Return the schema of a value, including nested values. Fields of a mapping are optional.

    Raises:
        DataError: The items of an array have different schemas, or a value has none.
    """
    if value is None:
        return OPTIONAL_STRING
    if isinstance(value, Mapping):
        fields = tuple(
            Field(str(name), infer_whole(each).as_optional()) for name, each in value.items()
        )
        return Schema(Type.STRUCT, fields=fields)
    if isinstance(value, list | tuple):
        kinds = [infer_whole(each).as_optional() for each in value if each is not None]
        if any(kind != kinds[0] for kind in kinds):
            raise DataError("the items of an array have no common type")
        return Schema(Type.ARRAY, value_schema=kinds[0] if kinds else OPTIONAL_STRING)
    if isinstance(value, decimal.Decimal):
        exponent = value.as_tuple().exponent
        return decimal_schema(max(-exponent, 0) if isinstance(exponent, int) else 0)
    found = infer_schema(value)
    if found is None:
        raise DataError(f"a {type(value).__name__} has no schema")
    return found


def check(schema: Schema, value: Any, where: str = "the value") -> None:
    """Raise DataError if a value does not match its schema."""
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataError(f"{where} must not be null")
        return
    plain: Any = encode_logical(schema, value)
    accepts = _ACCEPTED[schema.type]
    if not isinstance(plain, accepts) or (isinstance(plain, bool) and bool not in accepts):
        raise DataError(f"{where} must be {schema.type.value}, not {type(value).__name__}")
    if schema.type in INTEGER_BITS and isinstance(plain, int):
        bits = INTEGER_BITS[schema.type]
        if not -(1 << (bits - 1)) <= plain < 1 << (bits - 1):
            raise DataError(f"{where}: {plain} does not fit into {schema.type.value}")
    _check_inside(schema, value, where)


def _check_inside(schema: Schema, value: Any, where: str) -> None:
    if schema.type is Type.STRUCT:
        for each in schema.fields:
            check(each.schema, value.get(each.name, each.schema.default), f"{where}.{each.name}")
        for name in value:
            if schema.field(name) is None:
                raise DataError(f"{where} has a field {name} that its schema does not have")
    elif schema.type is Type.ARRAY and schema.value_schema is not None:
        for index, item in enumerate(value):
            check(schema.value_schema, item, f"{where}[{index}]")
    elif schema.type is Type.MAP and schema.value_schema is not None:
        for key, item in value.items():
            check(schema.value_schema, item, f"{where}[{key}]")


_ACCEPTED: dict[Type, tuple[type, ...]] = {
    Type.INT8: (int,),
    Type.INT16: (int,),
    Type.INT32: (int,),
    Type.INT64: (int,),
    Type.FLOAT32: (float, int),
    Type.FLOAT64: (float, int),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (dict,),
    Type.STRUCT: (dict,),
}
