"""Connect's group protocol, with incremental cooperative rebalancing (KIP-415).

    metadata     Version int16 │ Url string │ ConfigOffset int64 │ Allocation nullable bytes
    assignment   Version int16 │ Error int16 │ Leader string │ LeaderUrl string │ ConfigOffset int64
                 │ Assignment [Connector] │ Revoked [Connector] │ ScheduledDelay int32 (ms)
    Connector    Name string │ Tasks [int32]; -1 is the connector itself

Strings have an int16 length, arrays and bytes an int32 one; -1 is null. The allocation is the
worker's current assignment. An assignment contains only newly assigned and revoked units; the rest
is unchanged. The protocol names are `sessioned` and `compatible`, whose bytes differ only in the
version (2 and 1). The eager protocol (`default`) is not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.connect.states import TaskId

PROTOCOL_TYPE = "connect"
VERSIONS = {"sessioned": 2, "compatible": 1}
"""Versions by protocol name, in order of preference."""
CONNECTOR = -1
"""Task number that stands for the connector itself."""
MAX_ENTRIES = 1_000_000


@dataclass(frozen=True)
class Assignment:
    leader: str = ""
    leader_url: str = ""
    config_offset: int = -1
    assigned: frozenset[TaskId] = field(default_factory=frozenset)
    revoked: frozenset[TaskId] = field(default_factory=frozenset)
    delay_ms: int = 0
    error: int = 0


@dataclass(frozen=True)
class WorkerMetadata:
    url: str
    config_offset: int
    owned: frozenset[TaskId] = field(default_factory=frozenset)


def encode_metadata(document: WorkerMetadata, version: int) -> bytes:
    allocation = (
        encode_assignment(Assignment(assigned=document.owned), version) if document.owned else None
    )
    return (
        struct.pack(">h", version)
        + _string(document.url)
        + struct.pack(">q", document.config_offset)
        + _bytes(allocation)
    )


def decode_metadata(data: bytes) -> WorkerMetadata:
    """Decode a worker's metadata; raise ValueError if it is malformed."""
    reader = _Reader(data)
    reader.version()
    url, offset = reader.string(), reader.int64()
    allocation = reader.data() if reader.has_more else None
    owned = decode_assignment(allocation).assigned if allocation else frozenset()
    return WorkerMetadata(url, offset, owned)


def encode_assignment(document: Assignment, version: int) -> bytes:
    return (
        struct.pack(">hh", version, document.error)
        + _string(document.leader)
        + _string(document.leader_url)
        + struct.pack(">q", document.config_offset)
        + _connectors(document.assigned)
        + _connectors(document.revoked)
        + struct.pack(">i", document.delay_ms)
    )


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment; raise ValueError if it is malformed."""
    reader = _Reader(data)
    reader.version()
    error = reader.int16()
    leader, url, offset = reader.string(), reader.string(), reader.int64()
    assigned = reader.connectors()
    revoked = reader.connectors() if reader.has_more else frozenset()
    delay_ms = reader.int32() if reader.has_more else 0
    return Assignment(leader, url, offset, assigned, revoked, delay_ms, error)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _connectors(ids: Iterable[TaskId]) -> bytes:
    by_name: dict[str, list[int]] = {}
    for id in sorted(ids):
        by_name.setdefault(id.connector, []).append(id.task)
    data = struct.pack(">i", len(by_name))
    for name, tasks in by_name.items():
        data += _string(name) + struct.pack(f">i{len(tasks)}i", len(tasks), *tasks)
    return data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def version(self) -> None:
        found = self.int16()
        if found < 1:
            raise ValueError(
                f"a worker uses the unknown version {found} of Connect's group protocol"
            )

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def string(self) -> str:
        return self._read(self.int16()).decode()

    def data(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._read(length)

    def connectors(self) -> frozenset[TaskId]:
        found = set()
        for _ in range(self._count()):
            name = self.string()
            found |= {TaskId(name, self.int32()) for _ in range(self._count())}
        return frozenset(found)

    def _count(self) -> int:
        found = self.int32()
        if found > MAX_ENTRIES:
            raise ValueError("a worker's assignment is too long")
        return max(found, 0)

    def _number(self, form: str, size: int) -> int:
        found: int = struct.unpack(form, self._read(size))[0]
        return found

    def _read(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError("a worker's metadata is truncated")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found
