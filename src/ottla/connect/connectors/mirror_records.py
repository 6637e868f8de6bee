"""Records of MirrorMaker's internal topics, in its binary format.

| topic | key | value |
|---|---|---|
| mm2-offset-syncs.ALIAS.internal | topic, partition | upstream offset, downstream offset |
| ALIAS.checkpoints.internal | group, topic, partition | 0, upstream, downstream, metadata |
| heartbeats | aliases of source and target | 0, time in ms |

A sync states that the source's records from the upstream offset on, and none before it, are in the
target from the downstream offset on. A group's offset is therefore translated to the downstream
offset of the last sync at or before it. The result is exact if the sync matches; otherwise the
group reads some records twice, and skips none. (MirrorMaker adds one in that case, which skips a
record after a gap in the source.) The functions do no I/O.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass

VERSION = 0
MAX_SYNCS = 2_048
"""Maximum number of syncs per partition. Beyond it, every second of the older half is dropped."""


@dataclass(frozen=True)
class OffsetSync:
    topic: str
    partition: int
    upstream: int
    downstream: int

    def encode(self) -> tuple[bytes, bytes]:
        key = _text(self.topic) + struct.pack(">i", self.partition)
        return key, struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync:
        """Parse a record; raise ValueError if it is malformed."""
        topic, at = _read_text(key, 0)
        (partition,) = _unpack(">i", key, at)
        upstream, downstream = _unpack(">qq", value, 0)
        return cls(topic, partition, upstream, downstream)


@dataclass(frozen=True)
class Checkpoint:
    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        key = _text(self.group) + _text(self.topic) + struct.pack(">i", self.partition)
        value = struct.pack(">hqq", VERSION, self.upstream, self.downstream)
        return key, value + _text(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Parse a record; raise ValueError if it is malformed."""
        group, at = _read_text(key, 0)
        topic, at = _read_text(key, at)
        (partition,) = _unpack(">i", key, at)
        version, upstream, downstream = _unpack(">hqq", value, 0)
        if version != VERSION:
            raise ValueError(f"a checkpoint has the unknown version {version}")
        metadata, _ = _read_text(value, struct.calcsize(">hqq"))
        return cls(group, topic, partition, upstream, downstream, metadata)


@dataclass(frozen=True)
class Heartbeat:
    source: str
    target: str
    time_ms: int

    def encode(self) -> tuple[bytes, bytes]:
        return _text(self.source) + _text(self.target), struct.pack(">hq", VERSION, self.time_ms)


class Syncs:
    """Offset syncs of one partition, ordered by offset."""

    def __init__(self) -> None:
        self._upstream: list[int] = []
        self._downstream: list[int] = []

    def add(self, upstream: int, downstream: int) -> None:
        at = bisect.bisect_left(self._upstream, upstream)
        if at < len(self._upstream) and self._downstream[at] > downstream:
            # The target was truncated or recreated, so earlier syncs are invalid.
            self._upstream, self._downstream, at = [], [], 0
        # Drop later syncs, because the source may have been recreated as well.
        self._upstream[at:] = [upstream]
        self._downstream[at:] = [downstream]
        if len(self._upstream) > MAX_SYNCS:
            half = MAX_SYNCS // 2
            self._upstream[:half] = self._upstream[:half:2]
            self._downstream[:half] = self._downstream[:half:2]

    def translate(self, offset: int) -> int | None:
        """Return the downstream offset, or None if the offset precedes all known syncs."""
        at = bisect.bisect_right(self._upstream, offset)
        return self._downstream[at - 1] if at else None


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _unpack(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("a string is longer than its record")
    return data[at + 2 : end].decode(), end


def _unpack(form: str, data: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, data, at)
    except struct.error:
        raise ValueError("a record is too short") from None
