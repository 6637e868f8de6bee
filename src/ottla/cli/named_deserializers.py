"""Deserializers by Java class name (`…StringDeserializer`) or short name (`string`).

Each converts bytes to text as Java's `toString` of the value would. Numbers are big-endian and have
the size of the Java type. A deserializer raises ValueError if the bytes do not fit its type."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping

from ottla.base.errors import UserError

JAVA_PACKAGE = "org.apache.kafka.common.serialization"
ToText = Callable[[bytes], bytes]


def _number(layout: str, name: str) -> ToText:
    reader = struct.Struct(layout)

    def read(data: bytes) -> bytes:
        if len(data) != reader.size:
            raise ValueError(f"{name} has {reader.size} bytes, but the field has {len(data)}")
        return str(reader.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("a boolean must be one byte, 0 or 1")
    return b"true" if data == b"\x01" else b"false"


def _uuid(data: bytes) -> bytes:
    return str(uuid.UUID(data.decode())).encode()


def _json(data: bytes) -> bytes:
    return json.dumps(json.loads(data), ensure_ascii=False).encode()


def _string(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def _raw(data: bytes) -> bytes:
    return data


_DESERIALIZERS: Mapping[str, ToText] = {
    "boolean": _boolean,
    "bytes": _raw,
    "double": _number(">d", "a double"),
    "float": _number(">f", "a float"),
    "integer": _number(">i", "an integer"),
    "json": _json,
    "long": _number(">q", "a long"),
    "short": _number(">h", "a short"),
    "string": _string,
    "uuid": _uuid,
    "void": lambda data: b"null",
}
_JAVA_ONLY = {"ByteArray": "bytes", "ByteBuffer": "bytes"}


def find_deserializer(name: str) -> ToText:
    """Return the deserializer with this name.

    Raises:
        UserError: The name is not that of a built-in deserializer.
    """
    short = name.removeprefix(f"{JAVA_PACKAGE}.").removesuffix("Deserializer")
    known = _DESERIALIZERS.get(_JAVA_ONLY.get(short, short.lower()))
    if known is None:
        raise UserError(
            f"Unknown deserializer {name}: Ottla cannot load Java classes. Use one of "
            f"{', '.join(sorted(_DESERIALIZERS))}, or the class name from {JAVA_PACKAGE}."
        )
    return known
