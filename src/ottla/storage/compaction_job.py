"""Input and output of a compaction, as values that are exchanged as JSON.

The broker writes a job as one line to its worker process. The worker answers with lines:

    {"cleaned": {…}}     one group of segments is done; its `.cleaned` files are complete and synced
    {"finished": {…}}    all groups are done
    {"failed": {…}}      the compaction cannot continue, and why

A job names only sealed segments. They never change, so no locking is needed.
"""

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
    """All segments from the first one of the log to the one that ends at `end_offset`."""
    first_dirty_offset: int
    end_offset: int
    """Base offset of the first segment that may not be cleaned yet."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    aborted: list[AbortedTxn]
    """Aborted transactions that have records before `end_offset`."""
    producers: dict[int, tuple[int, int]]
    """Producer ID -> (last offset of its last batch, producer epoch).

    The offset is -1 if only a transaction marker of the producer is known.
    """
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
    """Base offsets of the segments that this one replaces."""
    size: int
    modified_ms: int
    """Modification time of the newest of those segments.

    The worker gives the new file the same time, because retention uses it as the age of a segment
    whose records have no timestamps.
    """


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
    """First offset that has not been cleaned."""
    stats: CompactionStats
    cleaned: list[CleanedSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CompactionFailure:
    message: str
    is_transient: bool
    """Whether the disk caused the failure (it is full, for example), so that a retry may succeed.

    Otherwise the log itself is damaged.
    """


WorkerMessage: TypeAlias = CleanedSegment | CompactionResult | CompactionFailure

_KINDS = {"cleaned": CleanedSegment, "finished": CompactionResult, "failed": CompactionFailure}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_message(message: WorkerMessage) -> str:
    """Return the answer as one line of JSON, without a line terminator."""
    return json.dumps({_NAMES[type(message)]: asdict(message)})


def decode_message(line: str | bytes) -> WorkerMessage:
    """Parse one line from a worker.

    Raises:
        ValueError: The line is not an answer of a compaction worker.
    """
    try:
        ((name, fields),) = json.loads(line).items()
        return _decode(name, fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"invalid response from a compaction worker: {line[:200]!r}") from error


def _decode(name: str, fields: dict[str, Any]) -> WorkerMessage:
    if name == "finished":
        fields["stats"] = CompactionStats(**fields["stats"])
        fields["cleaned"] = [CleanedSegment(**each) for each in fields["cleaned"]]
    message: WorkerMessage = _KINDS[name](**fields)
    return message
