"""Primitive types of the records in the offsets topic and the transaction topic.

In keys and old values, strings have int16 lengths, bytes and arrays int32 lengths, and -1 means
null. In flexible values, lengths are varints plus one, 0 means null, and each struct ends with its
tagged fields: a count, then tag, size and content of each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.wire.compile import decode_uvarint, encode_uvarint

T = TypeVar("T")

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
_unpack_int8, _unpack_int16 = INT8.unpack_from, INT16.unpack_from
_unpack_int32, _unpack_int64 = INT32.unpack_from, INT64.unpack_from
UUID_SIZE = 16
NO_TAGS = b"\0"


def key_string(text: str) -> bytes:
    encoded = text.encode()
    return INT16.pack(len(encoded)) + encoded


def nullable_key_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else key_string(text)


def key_bytes(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    return b"\0" if text is None else compact_bytes(text.encode())


def compact_bytes(data: bytes) -> bytes:
    return encode_uvarint(len(data) + 1) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    parts = list(elements)
    return encode_uvarint(len(parts) + 1) + b"".join(parts)


def tagged_fields(fields: dict[int, bytes]) -> bytes:
    """Encode tagged fields in ascending order of their tags, as readers expect them."""
    parts = [encode_uvarint(len(fields))]
    for tag in sorted(fields):
        parts += (encode_uvarint(tag), encode_uvarint(len(fields[tag])), fields[tag])
    return b"".join(parts)


class RecordReader:
    """Decoder for a key, or for a value after `version` has been called.

    Methods raise struct.error, IndexError or ValueError for malformed data. Loading a coordinator
    spends most of its time here, so the code is optimized for speed.
    """

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = bytes(data)
        self._position = 0
        self._flexible = flexible

    def version(self, last: int, first_flexible: int) -> int:
        version = self.int16()
        if not 0 <= version <= last:
            raise ValueError(f"unknown record version {version}")
        self._flexible = version >= first_flexible
        return version

    def int8(self) -> int:
        position = self._position
        self._position = position + 1
        value: int = _unpack_int8(self._data, position)[0]
        return value

    def int16(self) -> int:
        position = self._position
        self._position = position + 2
        value: int = _unpack_int16(self._data, position)[0]
        return value

    def int32(self) -> int:
        position = self._position
        self._position = position + 4
        value: int = _unpack_int32(self._data, position)[0]
        return value

    def int64(self) -> int:
        position = self._position
        self._position = position + 8
        value: int = _unpack_int64(self._data, position)[0]
        return value

    def _uvarint(self) -> int:
        first = self._data[self._position]
        if first < 0x80:
            self._position += 1
            return first
        value, self._position = decode_uvarint(memoryview(self._data), self._position)
        return value

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("a non-nullable string is null")
        return text

    def nullable_string(self) -> str | None:
        size = self._uvarint() - 1 if self._flexible else self.int16()
        return None if size < 0 else self._read_bytes(size).decode()

    def blob(self) -> bytes:
        return self._read_bytes(self._uvarint() - 1 if self._flexible else self.int32())

    def nullable_blob(self) -> bytes | None:
        size = self._uvarint() - 1 if self._flexible else self.int32()
        return None if size < 0 else self._read_bytes(size)

    def array_length(self) -> int:
        length = self._uvarint() - 1 if self._flexible else self.int32()
        if not 0 <= length <= len(self._data):
            raise ValueError(f"an array claims {length} elements")
        return length

    def array(self, element: Callable[[], T]) -> tuple[T, ...]:
        return tuple([element() for _ in range(self.array_length())])

    def nullable_array(self, element: Callable[[], T]) -> tuple[T, ...] | None:
        position = self._position
        length = self._uvarint() - 1 if self._flexible else self.int32()
        if length == -1:
            return None
        self._position = position
        return self.array(element)

    def uuid(self) -> bytes:
        return self._read_bytes(UUID_SIZE)

    def tagged_fields(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        fields = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            fields[tag] = self._read_bytes(self._uvarint())
        return fields

    def peek_tagged_fields(self) -> dict[int, bytes]:
        """Return the tagged fields without consuming them."""
        position = self._position
        fields = self.tagged_fields()
        self._position = position
        return fields

    def _read_bytes(self, size: int) -> bytes:
        start = self._position
        end = start + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"a field of {size} bytes does not fit into the record")
        self._position = end
        return self._data[start:end]
