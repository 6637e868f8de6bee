"""What a compaction is given and what it answers, as values that travel as JSON.

The broker writes one job as a line to its worker, which answers with lines:

    {"cleaned": {…}}     one group of segments is done; its `.cleaned` files are whole and synced
    {"finished": {…}}    all are
    {"failed": {…}}      it cannot go on, and why

A job names sealed segments only. They never change, so nothing needs to be locked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from ottla.storage.txn_index import AbortedTxn


@dataclass(frozen=True, slots=True)
class SourceSegment:
    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    directory: str
    segments: list[SourceSegment]
    """Every segment from the log's first to the one that ends at `end_offset`."""
    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that may not be cleaned now."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    aborted: list[AbortedTxn]
    """Aborted transactions that have anything before `end_offset`."""
    producers: dict[int, tuple[int, int]]
    """Producer id -> (last offset of its last batch, or -1 if only a marker is known; epoch)."""
    memory_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> CompactionJob:
        fields = json.loads(text)
        fields["segments"] = [SourceSegment(**each) for each in fields["segments"]]
        fields["aborted"] = [AbortedTxn(*each) for each in fields["aborted"]]
        fields["producers"] = {
            int(producer_id): (offset, epoch)
            for producer_id, (offset, epoch) in fields["producers"].items()
        }
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    base_offset: int
    replaced: list[int]
    """Base offsets of the segments it was made from."""
    size: int
    modified_ms: int
    """When the newest of those was written. The new file says the same, because a segment without
    timestamps is as old as its file."""


@dataclass(slots=True)
class CompactionStats:
    mapped_records: int = 0
    read_records: int = 0
    kept_records: int = 0
    keyless_records: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    map_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    next_dirty_offset: int
    """Everything before it is clean now."""
    stats: CompactionStats
    cleaned: list[CleanedSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CompactionFailure:
    message: str
    is_transient: bool
    """The disk refused (it is full, say): it may do better later. Otherwise the log is at fault."""


Answer: TypeAlias = CleanedSegment | CompactionResult | CompactionFailure

_KINDS = {"cleaned": CleanedSegment, "finished": CompactionResult, "failed": CompactionFailure}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_answer(answer: Answer) -> str:
    """One line, without its end."""
    return json.dumps({_NAMES[type(answer)]: asdict(answer)})


def decode_answer(line: str | bytes) -> Answer:
    """ValueError if the line is none of ours."""
    try:
        ((name, fields),) = json.loads(line).items()
        return _decode(name, fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not an answer of a compaction worker: {line[:200]!r}") from error


def _decode(name: str, fields: dict[str, Any]) -> Answer:
    if name == "finished":
        fields["stats"] = CompactionStats(**fields["stats"])
        fields["cleaned"] = [CleanedSegment(**each) for each in fields["cleaned"]]
    answer: Answer = _KINDS[name](**fields)
    return answer
