"""States of connectors and tasks, and what is told of them. Values only.

UNASSIGNED ─► RUNNING ──fails──► FAILED ──after a pause──► RUNNING …
                 │  ▲
                 ▼  │  asked for: PAUSED, STOPPED (no tasks at all)"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class State(Enum):
    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


AT_REST = (State.PAUSED, State.STOPPED)
"""Because somebody asked for it."""


class TaskId(NamedTuple):
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


@dataclass(frozen=True)
class Status:
    """Of a connector or of one of its tasks. `trace`: why it failed; of one that is RUNNING, what
    it tries again just now."""

    state: State
    worker_id: str
    trace: str | None = None


@dataclass(frozen=True)
class ConnectorStatus:
    """A failure of the connector itself (its tasks could not be made) is its own."""

    connector: Status
    tasks: dict[int, Status] = field(default_factory=dict)
