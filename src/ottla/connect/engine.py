"""Engines, which run the tasks of a worker.

`threads` runs a task in a thread of the worker. `spark` runs it as a long-lived task of a Spark
application, in a Python process of its own on an executor (`spark_engine`). Both run the same
`SourceRun` and `SinkRun`, and `task_thread` restarts both. `worker` selects the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.connect.sink_task import SinkRun
from ottla.connect.source_task import SourceRun
from ottla.connect.task_context import TaskContext
from ottla.connect.task_thread import TaskRun


@dataclass(frozen=True)
class RunReports:
    """Functions with which a run informs its `TaskThread`, besides its start and its errors."""

    may_start: Callable[[], bool]
    """Whether the task is still assigned to this worker."""
    on_waiting: Callable[[str], None]
    """Called with the reason why the task runs nowhere at the moment."""


class TaskEngine(Protocol):
    """Runs the tasks that a worker starts."""

    def start(self) -> None:
        """Prepare for the first task, in the background."""

    def make_run(self, context: TaskContext, reports: RunReports) -> TaskRun:
        """Return one attempt at a task's work."""

    def close(self) -> None:
        """Release the resources of the engine. All runs have ended or were abandoned."""


class ThreadEngine:
    """Runs each task in the thread that calls `run`."""

    def start(self) -> None:
        return

    def make_run(self, context: TaskContext, reports: RunReports) -> TaskRun:
        return run_here(context)

    def close(self) -> None:
        return


def run_here(context: TaskContext) -> TaskRun:
    """Return a run that does the task's work in the calling thread."""
    return SourceRun(context) if context.config.is_source else SinkRun(context)
