"""Validation and conversion of the key, value, headers and timestamp given to `send`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode, UserError
from ottla.client.errors import SerializationFailed
from ottla.client.producer.batch import Headers
from ottla.client.serializers import Serializer

HeadersInput = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP = (1 << 63) - 1


def serialize(serializer: Serializer | None, value: Any, topic: str, what: str) -> bytes | None:
    if value is None or (serializer is None and type(value) is bytes):
        return value
    try:
        result = value if serializer is None else serializer(value)
        if isinstance(result, bytes):
            return result
        if isinstance(result, bytearray | memoryview):
            return bytes(result)
        if isinstance(result, str):
            return result.encode()
    except Exception as error:
        raise SerializationFailed(
            f"the {what} of a record for topic {topic!r} cannot be serialized: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error
    hint = (
        f"set {what}_serializer on the producer"
        if serializer is None
        else "the serializer must return bytes"
    )
    raise SerializationFailed(
        f"the {what} of a record for topic {topic!r} is {type(result).__name__}, not bytes: {hint}",
        code=ErrorCode.INVALID_RECORD,
        topic=topic,
    )


def checked_timestamp(timestamp: Any) -> int:
    if not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_TIMESTAMP:
        raise UserError(f"timestamp must be milliseconds since 1970, not {timestamp!r}.")
    return timestamp


def checked_headers(headers: HeadersInput, topic: str) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return [
            (name, content if content is None or type(content) is bytes else _content(content))
            for name, content in pairs
            if _is_text(name)
        ]
    except (TypeError, ValueError) as error:
        raise SerializationFailed(
            f"headers of a record for topic {topic!r} must be pairs of str and bytes: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error


def _content(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"expected bytes, not {type(content).__name__}")


def _is_text(name: Any) -> bool:
    if not isinstance(name, str):
        raise TypeError(f"expected str, not {type(name).__name__}")
    return True
