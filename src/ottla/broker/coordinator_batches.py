"""Which records of a coordinator go to the log together.

Decisions are packed into as few batches as `max.message.bytes` allows, in order. The records of one
that is atomic stay in one batch; one too large for that fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import Decision
from ottla.wire.records.batch import HEADER_SIZE
from ottla.wire.records.builder import RecordFields, build_batch

RECORD_OVERHEAD = 27
"""The most that a record takes beside its key and value: lengths, deltas, attributes, headers."""

Encode = Callable[[Any], tuple[bytes, bytes | None]]


@dataclass(slots=True)
class Append:
    """One batch, or decisions that cannot be written."""

    records: list[Any] = field(default_factory=list)
    completes: list[Decision] = field(default_factory=list)
    """The decisions whose last record is in it."""
    batch: bytes = b""
    error: KafkaError | None = None


class _Packer:
    def __init__(self, now_ms: int, max_bytes: int, compression: int) -> None:
        self.appends: list[Append] = []
        self._now_ms = now_ms
        self._max_bytes = max_bytes
        self._compression = compression
        self._append = Append()
        self._fields: list[RecordFields] = []
        self._size = HEADER_SIZE

    def fits(self, size: int) -> bool:
        return self._size + size <= self._max_bytes

    def add(self, record: Any, key: bytes, value: bytes | None, size: int) -> None:
        self._append.records.append(record)
        self._fields.append((key, value, (), self._now_ms))
        self._size += size

    def complete(self, decision: Decision) -> None:
        self._append.completes.append(decision)

    def end(self) -> None:
        """End the batch, if it has begun."""
        if self._fields:
            self._append.batch = build_batch(self._fields, compression=self._compression)
            self.appends.append(self._append)
            self._append, self._fields, self._size = Append(), [], HEADER_SIZE

    def refuse(self, decision: Decision) -> None:
        self.end()
        error = KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(decision.records)} records do not fit into {self._max_bytes} bytes",
        )
        self.appends.append(Append(completes=[decision], error=error))


def plan_appends(
    decisions: Sequence[Decision], encode: Encode, now_ms: int, max_bytes: int, compression: int = 0
) -> list[Append]:
    packer = _Packer(now_ms, max_bytes, compression)
    limit = max_bytes - HEADER_SIZE
    for decision in decisions:
        encoded = [encode(record) for record in decision.records]
        sizes = [len(key) + len(value or b"") + RECORD_OVERHEAD for key, value in encoded]
        total = sum(sizes)
        if (total if decision.is_atomic else max(sizes)) > limit:
            packer.refuse(decision)
            continue
        if not packer.fits(total):
            packer.end()
        for record, (key, value), size in zip(decision.records, encoded, sizes, strict=True):
            if not packer.fits(size):
                packer.end()
            packer.add(record, key, value, size)
        packer.complete(decision)
    packer.end()
    return packer.appends
