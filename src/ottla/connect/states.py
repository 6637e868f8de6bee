"""States of connectors and tasks, and the status objects that report them.

UNASSIGNED ─► RUNNING ──fails──► FAILED ──after a pause──► RUNNING …
                 │  ▲
                 ▼  │  on request: PAUSED, STOPPED (no tasks at all)
"""

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
"""States that only a request can enter or leave."""


class TaskId(NamedTuple):
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


@dataclass(frozen=True)
class Status:
    """Status of a connector or a task.

    `trace` is the reason of a failure or, while RUNNING, the error that is being retried.
    """

    state: State
    worker_id: str
    trace: str | None = None


@dataclass(frozen=True)
class ConnectorStatus:
    """Status of a connector and its tasks.

    The connector itself fails if its task configurations cannot be computed.
    """

    connector: Status
    tasks: dict[int, Status] = field(default_factory=dict)
