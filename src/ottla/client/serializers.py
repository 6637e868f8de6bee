"""Serializers and deserializers: plain callables from value to bytes and from bytes to value.

None means that there is no key or value: serializers and deserializers are not called for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.client.errors import InvalidConfig

T = TypeVar("T")
Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes) -> Any:
    return json.loads(data)


def to_string(value: Any) -> bytes:
    """Encode a str as UTF-8; return bytes unchanged. Other types raise TypeError."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"expected str, not {type(value).__name__}")


def from_string(data: bytes) -> str:
    return data.decode()


def to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"expected bytes, not {type(value).__name__}")


def from_bytes(data: bytes) -> bytes:
    return data


SERIALIZERS: dict[str, Serializer] = {"json": to_json, "string": to_string, "bytes": to_bytes}
DESERIALIZERS: dict[str, Deserializer] = {
    "json": from_json,
    "string": from_string,
    "bytes": from_bytes,
}


def serializer(value: str | Serializer | None) -> Serializer | None:
    """Look up a serializer by name; return a callable or None unchanged."""
    return _named(value, SERIALIZERS)


def deserializer(value: str | Deserializer | None) -> Deserializer | None:
    return _named(value, DESERIALIZERS)


def _named(value: str | T | None, known: Mapping[str, T]) -> T | None:
    if value is None or (not isinstance(value, str) and callable(value)):
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise InvalidConfig(
        f"Expected a function or one of {', '.join(map(repr, known))} as serializer, not {value!r}."
    )
