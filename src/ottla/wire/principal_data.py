"""The principal of a forwarded request, in the form of Kafka's `DefaultPrincipalData`.

The bytes are the version of the message, which is 0, and the message itself.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from ottla.wire import schema
from ottla.wire.compile import (
    MALFORMED,
    DecodeError,
    Message,
    Reader,
    Writer,
    compile_reader,
    compile_writer,
)

_NAME, _VERSION = "default_principal_data", 0
_VERSION_PREFIX = struct.Struct(">h")
_MAX_ELEMENTS = 0
"""The message has no arrays."""


class PrincipalData(NamedTuple):
    """A principal, and how it was authenticated."""

    type: str
    name: str
    token_authenticated: bool = False
    """Whether the client used a delegation token."""


def encode_principal(principal: PrincipalData) -> bytes:
    pieces = [_VERSION_PREFIX.pack(_VERSION)]
    body = {
        "type_": principal.type,
        "name": principal.name,
        "token_authenticated": principal.token_authenticated,
    }
    _writer()(pieces.append, body)
    return b"".join(pieces)


def decode_principal(encoded: bytes) -> PrincipalData:
    """Decode a principal.

    Raises:
        DecodeError: The bytes are malformed, or of an unknown version.
    """
    buffer = memoryview(encoded)
    try:
        (version,) = _VERSION_PREFIX.unpack_from(buffer)
        if version != _VERSION:
            raise DecodeError(f"version {version} of a principal is unknown")
        message, end = _reader()(buffer, _VERSION_PREFIX.size, len(buffer), [_MAX_ELEMENTS])
    except MALFORMED as error:
        raise DecodeError(f"malformed principal: {error}") from None
    if end > len(buffer):
        raise DecodeError("the principal extends beyond its bytes")
    return PrincipalData(message.type_, message.name, message.token_authenticated)


@cache
def _reader() -> Reader:
    return compile_reader(schema.data_struct(_NAME, _VERSION), lambda name: Message)


@cache
def _writer() -> Writer:
    return compile_writer(schema.data_struct(_NAME, _VERSION), None)
