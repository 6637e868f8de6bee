"""The topics in a consumer's metadata.

Assignors are the clients' business, but the embedded consumer protocol is Kafka's own, and its
prefix never changes: version (int16), then the topics subscribed to (int32 count, strings with an
int16 length). The coordinator looks at nothing else in it."""

from __future__ import annotations

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"

_PREFIX = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> list[str]:
    """ValueError if the metadata is not a consumer's."""
    try:
        version, count = _PREFIX.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            raise ValueError(f"version {version} with {count} topics")
        position = _PREFIX.size
        topics = []
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(metadata, position)
            start, position = position + 2, position + 2 + size
            if size < 0 or position > len(metadata):
                raise ValueError(f"a topic's name of {size} bytes")
            topics.append(metadata[start:position].decode())
    except struct.error as error:
        raise ValueError(str(error)) from None
    return topics
