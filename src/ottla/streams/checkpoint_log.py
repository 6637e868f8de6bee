"""Logs of Spark's checkpoints: the planned batches of a query, and which of them are committed.

CHECKPOINT/offsets/N    a batch that has begun: a version, a line of JSON with settings, and the
                        end offset of each source; since version 2 after its name: `name:{…}`
CHECKPOINT/commits/N    exists when the batch is committed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Files(Protocol):
    def read(self, path: str) -> str | None: ...

    def names(self, path: str) -> list[str]: ...


@dataclass(frozen=True)
class BatchEntry:
    settings: Mapping[str, str]
    offsets: Mapping[str, Any]
    """End offsets by the names of the sources; empty if the sources have no names."""


@dataclass(frozen=True)
class CheckpointLog:
    """Last committed batch of a query, and a later one that has begun."""

    committed: BatchEntry | None
    unfinished: BatchEntry | None


def read_log(files: Files, checkpoint: str) -> CheckpointLog:
    begun, committed = (_batches(files, f"{checkpoint}/{log}") for log in ("offsets", "commits"))
    last = committed[-1] if committed else None
    return CheckpointLog(
        None if last is None else _entry(files, checkpoint, last),
        _entry(files, checkpoint, begun[-1]) if begun and begun[-1] != last else None,
    )


def _batches(files: Files, log: str) -> list[int]:
    return sorted(int(name) for name in files.names(log) if name.isdecimal())


def _entry(files: Files, checkpoint: str, batch: int) -> BatchEntry:
    version, *lines = (files.read(f"{checkpoint}/offsets/{batch}") or "").splitlines()
    metadata = json.loads(lines[0]) if lines else {}
    offsets = {}
    if version == "v2":
        for line in lines[1:]:
            name, _, offset = line.partition(":")
            offsets[name] = json.loads(offset)
    return BatchEntry(metadata.get("conf", {}), offsets)
