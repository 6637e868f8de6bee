"""Hand-written writers for the most frequent responses, used in place of generated ones.

A broker encodes tens of thousands of produce responses for a single partition per second. They
differ only in a few numbers, so the bytes around the numbers are built once per version and topic.
The writers here take the same dicts as the generated ones. Tests compare their output with that of
the generated writers and of kio, for every version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ottla.base.types import ZERO_UUID
from ottla.wire.api import Api
from ottla.wire.compile import Writer, encode_uvarint

_V3 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


def response_writer(api_key: int, version: int, generated: Writer) -> Writer:
    """Return the hand-written writer for a response if there is one, else the generated one."""
    return _produce_writer(version, generated) if api_key == Api.PRODUCE else generated


def _produce_writer(version: int, generated: Writer) -> Writer:
    """Create a writer for a successful response for one partition.

    It delegates all other responses to the generated writer.
    """
    tail = _tail(version)
    prefix: Callable[[Any], bytes] = lru_cache(maxsize=4096)(lambda key: _prefix(version, key))
    key_name = "topic_id" if version >= 13 else "name"
    with_start = version >= 5
    pack = _V5.pack if with_start else _V3.pack

    def write(append: Callable[[Any], None], body: dict[str, Any]) -> None:
        topics = body["responses"]
        if len(topics) == 1 and len(body) == 1:
            topic = topics[0]
            partitions = topic["partition_responses"]
            if len(partitions) == 1:
                partition = partitions[0]
                if len(partition) == SUCCESS_FIELDS and "log_start_offset" in partition:
                    numbers = (
                        partition["index"],
                        0,
                        partition["base_offset"],
                        partition["log_append_time_ms"],
                    )
                    if with_start:
                        fields = pack(*numbers, partition["log_start_offset"])
                    else:
                        fields = pack(*numbers)
                    append(prefix(topic[key_name]) + fields + tail)
                    return
        generated(append, body)

    return write


SUCCESS_FIELDS = 4
"""Number of fields of a partition without errors.

They are index, base_offset, log_append_time_ms and log_start_offset.
"""


def produce_response_frame(version: int, key: str | bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after the numbers of a successful response for one partition.

    Args:
        version: Version of the Produce API.
        key: Name of the topic, or its ID from version 13 on.
    """
    return _prefix(version, key), _tail(version)


def _prefix(version: int, key: str | bytes) -> bytes:
    """Return the bytes before the partition: one topic, its name or ID, one partition."""
    if version >= 13:
        raw = key if isinstance(key, bytes) else ZERO_UUID
        return encode_uvarint(2) + raw + encode_uvarint(2)
    assert isinstance(key, str)
    name = key.encode()
    if version >= 9:
        return encode_uvarint(2) + encode_uvarint(len(name) + 1) + name + encode_uvarint(2)
    return _I32.pack(1) + _I16.pack(len(name)) + name + _I32.pack(1)


def _tail(version: int) -> bytes:
    """Return the bytes after the numbers: no record errors, message, throttling or tags."""
    if version >= 9:
        no_errors, no_message, no_tags = b"\x01", b"\x00", b"\x00"
        return no_errors + no_message + no_tags + no_tags + _I32.pack(0) + no_tags
    if version >= 8:
        return _I32.pack(0) + _I16.pack(-1) + _I32.pack(0)
    return _I32.pack(0)
