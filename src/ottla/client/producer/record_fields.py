"""Validation and conversion of the key, value, headers and timestamp given to `send`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode, UserError
from ottla.client.errors import SerializationFailed
from ottla.client.producer.batch import Headers
from ottla.client.serializers import Serializer

HeadersGiven = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP = (1 << 63) - 1


def serialize(serializer: Serializer | None, given: Any, topic: str, what: str) -> bytes | None:
    if given is None or (serializer is None and type(given) is bytes):
        return given
    try:
        result = given if serializer is None else serializer(given)
        if isinstance(result, bytes):
            return result
        if isinstance(result, bytearray | memoryview):
            return bytes(result)
        if isinstance(result, str):
            return result.encode()
    except Exception as error:
        raise SerializationFailed(
            f"the {what} of a record for {topic} cannot be serialised: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error
    hint = f"give the producer a {what}_serializer" if serializer is None else "it must be bytes"
    raise SerializationFailed(
        f"the {what} of a record for {topic} is {type(result).__name__}: {hint}",
        code=ErrorCode.INVALID_RECORD,
        topic=topic,
    )


def checked_timestamp(timestamp: Any) -> int:
    if not isinstance(timestamp, int) or not 0 <= timestamp <= MAX_TIMESTAMP:
        raise UserError(f"A timestamp is milliseconds since 1970, not {timestamp!r}.")
    return timestamp


def checked_headers(given: HeadersGiven, topic: str) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        return [
            (name, content if content is None or type(content) is bytes else _content(content))
            for name, content in pairs
            if _is_text(name)
        ]
    except (TypeError, ValueError) as error:
        raise SerializationFailed(
            f"headers of a record for {topic} must be pairs of a text and bytes: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error


def _content(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes")


def _is_text(name: Any) -> bool:
    if not isinstance(name, str):
        raise TypeError(f"{type(name).__name__} is not a text")
    return True
