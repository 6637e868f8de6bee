"""Converters between records and bytes, with Kafka's class names.

| converter | bytes | schema read back |
|---|---|---|
| JsonConverter | see `json_converter` | from the envelope |
| StringConverter | text; other values in their text form | optional string |
| ByteArrayConverter | unchanged | optional bytes |
| Short-, Integer-, LongConverter | big endian | optional int16, int32, int64 |
| FloatConverter, DoubleConverter | big endian IEEE 754 | optional float, double |
| BooleanConverter | one byte, 0 or 1 | optional boolean |

`SimpleHeaderConverter` writes headers as text and reads numbers, booleans and JSON back.
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ottla.base.config.definition import ConfigType
from ottla.connect.columns import Columns, NotInColumns
from ottla.connect.data import (
    BOOLEAN,
    FLOAT64,
    INT64,
    INTEGER_BITS,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    DataError,
    Schema,
    Type,
    encode_logical,
)
from ottla.connect.definition import Definition, Settings, key

ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "utf-16", "utf-16le")


class Converter(ABC):
    """Base class of converters between records and the bytes in a topic.

    Args:
        settings: Values of the properties in `definition`.
        is_key: Whether it converts keys.
    """

    definition: ClassVar[Definition] = Definition()
    """Properties of the converter."""

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        self.settings = settings
        self.is_key = is_key

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return a value as bytes.

        Args:
            topic: Topic of the record.
            schema: Schema of the value, or None.
            value: The value.

        Raises:
            DataError: The value cannot be converted.
        """

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Return the schema and the value in bytes.

        Args:
            topic: Topic of the record.
            data: The bytes, or None.

        Raises:
            DataError: The bytes cannot be converted.
        """

    def from_columns(self, schema: Schema | None, value: Any, columns: Columns) -> Any:
        """Return the values of a batch as an array of bytes.

        Any exception makes the worker convert the values one by one.

        Args:
            schema: Schema of the values, or None.
            value: The values.
            columns: The batch that they belong to.
        """
        raise NotInColumns(f"{type(self).__name__} converts single values")

    def to_columns(self, topic: str, data: Any) -> tuple[Schema | None, Any]:
        """Return the schema and the values in an array of bytes. Nulls stay null.

        Any exception makes the worker convert the values one by one.

        Args:
            topic: Topic of the records.
            data: Arrow array of bytes.
        """
        raise NotInColumns(f"{type(self).__name__} converts single values")


class StringConverter(Converter):
    definition = Definition([
        key("converter.encoding", ConfigType.STRING, "UTF-8", "Character encoding of strings."),
    ])  # fmt: skip

    def __init__(self, settings: Settings, *, is_key: bool = False) -> None:
        super().__init__(settings, is_key=is_key)
        self._encoding = str(settings.get("converter.encoding") or "UTF-8")

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, str):
            return self._encode(value)
        return self._encode(as_text(schema, value))

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"a string cannot be encoded as {self._encoding}: {error}") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return OPTIONAL_STRING, None
        try:
            return OPTIONAL_STRING, data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"bytes cannot be decoded as {self._encoding}: {error}") from None

    def from_columns(self, schema: Schema | None, value: Any, columns: Columns) -> Any:
        import pyarrow as pa

        array = columns.array(schema, value)
        if not self._is_utf8() or not pa.types.is_string(array.type):
            raise NotInColumns("not UTF-8 strings")
        return array.cast(pa.binary())

    def to_columns(self, topic: str, data: Any) -> tuple[Schema | None, Any]:
        import pyarrow as pa

        if not self._is_utf8():
            raise NotInColumns("not UTF-8 strings")
        return OPTIONAL_STRING, data.cast(pa.string())

    def _is_utf8(self) -> bool:
        return self._encoding.lower().replace("-", "") == "utf8"


class ByteArrayConverter(Converter):
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"ByteArrayConverter accepts bytes, not {schema.type.value}")
        if value is None:
            return None
        if not isinstance(value, bytes | bytearray | memoryview):
            raise DataError(f"ByteArrayConverter accepts bytes, not {type(value).__name__}")
        return bytes(value)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, data

    def from_columns(self, schema: Schema | None, value: Any, columns: Columns) -> Any:
        import pyarrow as pa

        array = columns.array(schema, value)
        if not pa.types.is_binary(array.type):
            raise NotInColumns("not bytes")
        return array

    def to_columns(self, topic: str, data: Any) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, data


class NumberConverter(Converter):
    type: ClassVar[Type]
    format: ClassVar[str]

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if schema is not None and schema.type is not self.type:
            raise DataError(
                f"{type(self).__name__} accepts {self.type.value}, not {schema.type.value}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(
                f"{type(self).__name__} accepts {self.type.value}, not {type(value).__name__}"
            )
        try:
            return struct.pack(self.format, value)
        except (struct.error, OverflowError):
            raise DataError(f"{value} is out of range for {self.type.value}") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        schema = Schema(self.type, optional=True)
        if data is None:
            return schema, None
        try:
            return schema, struct.unpack(self.format, data)[0]
        except struct.error:
            size = struct.calcsize(self.format)
            raise DataError(f"{self.type.value} must have {size} bytes, not {len(data)}") from None


class ShortConverter(NumberConverter):
    type, format = Type.INT16, ">h"


class IntegerConverter(NumberConverter):
    type, format = Type.INT32, ">i"


class LongConverter(NumberConverter):
    type, format = Type.INT64, ">q"


class FloatConverter(NumberConverter):
    type, format = Type.FLOAT32, ">f"


class DoubleConverter(NumberConverter):
    type, format = Type.FLOAT64, ">d"


class BooleanConverter(Converter):
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter accepts boolean, not {type(value).__name__}")
        return b"\x01" if value else b"\x00"

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        schema = Schema(Type.BOOLEAN, optional=True)
        if data is None:
            return schema, None
        if data not in (b"\x00", b"\x01"):
            raise DataError("a boolean must be one byte, 0 or 1")
        return schema, data == b"\x01"


class SimpleHeaderConverter(Converter):
    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else as_text(schema, value).encode()

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        text = data.decode("utf-8", "replace")
        try:
            value = json.loads(text)
        except ValueError:
            return STRING, text
        if isinstance(value, bool):
            return BOOLEAN, value
        if isinstance(value, int):
            return (_smallest(value), value) if abs(value) < 1 << 63 else (FLOAT64, float(value))
        if isinstance(value, float):
            return FLOAT64, value
        return (STRING, value) if isinstance(value, str) else (None, value)


def _smallest(value: int) -> Schema:
    for kind, bits in INTEGER_BITS.items():
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return Schema(kind)
    return INT64


def as_text(schema: Schema | None, value: Any) -> str:
    """Return a value as text, like Java where possible: lowercase booleans, structs as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), default=str, ensure_ascii=False)
    if hasattr(value, "isoformat"):
        return str(encode_logical(schema, value))
    return str(value)
