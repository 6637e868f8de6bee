"""Encoding and decoding of requests and responses, by API and version.

Decoded messages have attributes; messages to encode are plain nested dicts. In both, names are
those of the schema, error codes are ints, IDs are 16 bytes, durations are milliseconds and arrays
are lists. A `records` field is a view into the buffer from which it was decoded. Copy it to keep it
longer than the request is being handled.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ottla.base.ports import Piece, ReadableBuffer
from ottla.wire import fast_messages, schema
from ottla.wire.compile import (
    MALFORMED,
    DecodeError,
    Message,
    Reader,
    Writer,
    compile_reader,
    compile_writer,
    decode_uvarint,
    skip_tagged_fields,
)
from ottla.wire.schema import MessageField, MessageKind, Struct

API_VERSIONS = 18

MAX_REQUEST_ELEMENTS = 200_000
"""Maximum number of elements in all arrays of a request together.

No real client comes near this. It bounds the memory and time that one malicious request can cost.
"""
MAX_RESPONSE_ELEMENTS = 20_000_000

_REQUEST_PREFIX = struct.Struct(">hhih")
_SIZE_AND_ID = struct.Struct(">ii")
_SEPARATE_ABOVE_BYTES = 16_384
"""Pieces larger than this are passed to the socket without copying; smaller ones are joined."""

_strict = False


def set_strict(strict: bool) -> None:
    """Make writers reject keys that no version of the message has. For tests."""
    global _strict
    _strict = strict
    _writer.cache_clear()
    _response_writer.cache_clear()


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def decode_request_header(buffer: memoryview) -> RequestHeader:
    """Decode the header of a request.

    If the API or version is unknown, the header is decoded only up to the client ID.

    Raises:
        DecodeError: The header is malformed.
    """
    try:
        api_key, version, correlation_id, client_id_size = _REQUEST_PREFIX.unpack_from(buffer)
        position = 10
        client_id = None
        if client_id_size >= 0:
            position += client_id_size
            if position > len(buffer):
                raise DecodeError("the client ID extends beyond the request")
            client_id = str(buffer[10:position], "utf-8")
        if _has_tagged_header(api_key, version):
            if buffer[position] == 0:
                position += 1
            else:
                position = skip_tagged_fields(buffer, position, len(buffer))
    except MALFORMED as error:
        raise DecodeError(f"malformed request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def is_supported(api_key: int, version: int) -> bool:
    try:
        return version in schema.versions(api_key)
    except KeyError:
        return False


@lru_cache(maxsize=4096)
def _has_tagged_header(api_key: int, version: int) -> bool:
    """Return whether the request header has tagged fields.

    The cache is bounded, because clients choose the arguments.
    """
    if not is_supported(api_key, version):
        return False
    return schema.header_version(api_key, version, "request") == 2


def decode_request(api_key: int, version: int, buffer: memoryview, position: int) -> Any:
    """Decode the body of a request, which begins at `position`.

    Raises:
        DecodeError: The body is malformed.
    """
    return _decode(_reader(api_key, version, "request"), buffer, position, MAX_REQUEST_ELEMENTS)


def decode_response(api_key: int, version: int, buffer: memoryview) -> tuple[int, Any]:
    """Decode a response frame without its size prefix.

    Returns:
        The correlation ID and the response.

    Raises:
        DecodeError: The response is malformed.
    """
    try:
        (correlation_id,) = struct.unpack_from(">i", buffer)
        position = 4
        if schema.header_version(api_key, version, "response") == 1:
            position = skip_tagged_fields(buffer, position, len(buffer))
    except MALFORMED as error:
        raise DecodeError(f"malformed response header: {error}") from None
    read = _reader(api_key, version, "response")
    return correlation_id, _decode(read, buffer, position, MAX_RESPONSE_ELEMENTS)


def _decode(read: Reader, buffer: memoryview, position: int, max_elements: int) -> Any:
    try:
        message, end = read(buffer, position, len(buffer), [max_elements])
    except MALFORMED as error:
        raise DecodeError(str(error)) from None
    if end > len(buffer):
        raise DecodeError("the message extends beyond its frame")
    return message


def encode_response(
    api_key: int, version: int, correlation_id: int, body: dict[str, Any]
) -> list[Piece]:
    """Encode a response, including the size prefix.

    Returns:
        The frame in as few pieces as possible without copying large ones. Large records may be a
        range of a file.
    """
    pieces: list[Piece] = [b""]
    write, flexible_header = _response_writer(api_key, version)
    write(pieces.append, body)
    return _framed(pieces, _SIZE_AND_ID, (correlation_id,), b"\x00" if flexible_header else b"")


def encode_request(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Mapping[str, object],
) -> list[ReadableBuffer]:
    """Encode a request, including the size prefix, in as few pieces as `encode_response`."""
    pieces: list[ReadableBuffer] = [b""]
    _writer(api_key, version, "request")(pieces.append, body)
    encoded = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(encoded)
    tail = encoded + (b"\x00" if _has_tagged_header(api_key, version) else b"")
    fields = (api_key, version, correlation_id, size)
    return _framed(pieces, _REQUEST_FRAME, fields, tail)


_REQUEST_FRAME = struct.Struct(">ihhih")


def _framed(
    pieces: list[Any], head: struct.Struct, fields: tuple[int, ...], tail: bytes
) -> list[Any]:
    body_size = sum(map(len, pieces))
    pieces[0] = head.pack(head.size - 4 + len(tail) + body_size, *fields) + tail
    if body_size <= _SEPARATE_ABOVE_BYTES:
        return [b"".join(pieces)]
    return _joined_small(pieces)


def _joined_small(pieces: Sequence[Any]) -> list[Any]:
    result: list[Any] = []
    small: list[ReadableBuffer] = []
    for piece in pieces:
        if len(piece) > _SEPARATE_ABOVE_BYTES:
            if small:
                result.append(b"".join(small))
                small = []
            result.append(piece)
        else:
            small.append(piece)
    if small:
        result.append(b"".join(small))
    return result


@cache
def _response_writer(api_key: int, version: int) -> tuple[Writer, bool]:
    flexible = schema.header_version(api_key, version, "response") == 1
    writer = fast_messages.response_writer(api_key, version, _writer(api_key, version, "response"))
    return writer, flexible


# ------------------------------------------------------------------------- compiled, once each


@cache
def _reader(api_key: int, version: int, kind: MessageKind) -> Reader:
    struct_ = schema.message_struct(api_key, version, kind)
    return compile_reader(struct_, lambda name: _message_class(api_key, kind, name))


@cache
def _writer(api_key: int, version: int, kind: MessageKind) -> Writer:
    struct_ = schema.message_struct(api_key, version, kind)
    if not _strict:
        return compile_writer(struct_, None)
    return compile_writer(struct_, lambda name: frozenset(_all_fields(api_key, kind, name)))


@cache
def _message_class(api_key: int, kind: MessageKind, name: str) -> type[Message]:
    """Create one class for all versions of a struct. Its attributes default absent fields."""
    defaults: dict[str, Any] = {}
    for field_name, field in _fields(
        api_key, kind, name, _versions_with_all_fields(api_key)
    ).items():
        value = field.default
        if field.struct is not None and not field.array and value is not None:
            value = _message_class(api_key, kind, field.struct.name)()
        defaults[field_name] = value
    return type(name, (Message,), defaults)


def _versions_with_all_fields(api_key: int) -> list[int]:
    """Return versions that together have every field of any version.

    Loading all versions would delay the first request of an API by a tenth of a second.
    """
    versions = schema.versions(api_key)
    return sorted({versions[0], *_MIDDLE_VERSIONS.get(api_key, ()), versions[-1]})


_MIDDLE_VERSIONS: dict[int, tuple[int, ...]] = {1: (12,), 3: (10,), 9: (7, 9), 10: (3,)}
"""API key -> versions with fields that neither the first nor the last version has.

A test checks that this is complete.
"""


def _all_fields(api_key: int, kind: MessageKind, name: str) -> dict[str, MessageField]:
    """Return every field of any version of a struct, as the newest such version defines it."""
    return _fields(api_key, kind, name, schema.versions(api_key))


def _fields(
    api_key: int, kind: MessageKind, name: str, versions: Iterable[int]
) -> dict[str, MessageField]:
    found: dict[str, MessageField] = {}
    for version in versions:
        for struct_ in _nested(schema.message_struct(api_key, version, kind)):
            if struct_.name == name:
                found.update((field.name, field) for field in struct_.fields)
    return found


def _nested(struct_: Struct) -> list[Struct]:
    found = [struct_]
    for field in struct_.fields:
        if field.struct is not None:
            found += _nested(field.struct)
    return found


__all__ = [
    "API_VERSIONS",
    "DecodeError",
    "Message",
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "decode_uvarint",
    "encode_request",
    "encode_response",
    "is_supported",
    "set_strict",
]
