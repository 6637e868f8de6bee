"""What a connector is. Whoever writes one of his own derives from these classes.

**Resuming, sources.** A task is started with the offsets that were delivered last: everything
before them is in topics, nothing after them is. `poll` hands out what comes next, with the offsets
after it; records and offsets are written in one transaction: exactly once, without the task's help.
A task that is started again is asked from those offsets on, so it must be able to go back to them;
`commit` tells what is in topics for good, and will not be asked for again: a slot may be advanced,
a file removed.

**Resuming, sinks.** A task gets numbered batches: `begin(batch)`, `put(records)` as often as
needed, `end()`. A batch that was interrupted at any point comes again, with the same number and
the same records; no older one ever does. A task that undoes in `begin` what an interrupted batch of
that number left behind (or records the number beside the data, in one transaction) is exactly-once;
any other is at-least-once and says so in `guarantee`. `directory` is the task's own, and lasts as
long as its offsets. Where several workers share it, another may take over a task whose worker only
seems to be dead: `is_takeover` is set then, and `epoch` is higher than the other's. A task that can
lock the other out of its target does so in `start`.

**Threads.** A task lives in one thread of the worker's process; `ottla.connect.session` has the
worker's Spark session, for those that need it.

A record that the target refuses for its own sake is handed to `report(record, error)`, in `put` or
in `end`: with `errors.tolerance=all` it becomes a dead letter and the task goes on, else `report`
raises. A source that cannot read something hands out a FailedRecord in its place, and the same
properties decide.

An error that may pass (a database away) is a RetriableError: it is tried again for
`errors.retry.timeout`. DataError concerns one record. Anything else fails the task; its message is
what a person reads in the status, and the worker starts it again after a while."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from ottla.connect.columns import ColumnBatch, Columns, NotInColumns
from ottla.connect.data import Record
from ottla.connect.definition import Definition, Settings

Json = dict[str, Any]
Offsets = list[tuple[Json, Json]]
"""(source partition, source offset) pairs, as /connectors/…/offsets shows them."""


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class RetriableError(Exception):
    """It may pass by itself."""


@dataclass(frozen=True)
class Polled:
    """Records, and the offsets after them: those of the partitions that moved. Many records may
    come as columns instead, which are several times as fast; those are behind the others."""

    records: Sequence[Record] = ()
    offsets: Offsets = field(default_factory=list)
    columns: Sequence[ColumnBatch] = ()

    def __bool__(self) -> bool:
        return bool(self.records) or bool(self.columns) or bool(self.offsets)


class SourceTask(ABC):
    @abstractmethod
    def start(self, offsets: Offsets) -> None:
        """Begin to read.

        Args:
            offsets: Source offsets to continue from; empty means from the beginning.
        """

    @abstractmethod
    def poll(self, wait_s: float) -> Polled:
        """Return the next records, at most a few megabytes.

        Args:
            wait_s: Time to wait if there is nothing yet, in seconds.
        """

    def commit(self, offsets: Offsets) -> None:
        """Take note that all records before these offsets are stored in their topics."""
        return

    def stop(self) -> None:
        """Release the resources of the task."""
        return


class SinkTask(ABC):
    takes_columns: ClassVar[bool] = False
    """Whether `put_columns` is worth a try."""
    epoch: int = 0
    """How often this task was started, in any worker. Set before `start`."""
    is_takeover: bool = False
    """Another worker had it last."""
    reporter: Callable[[Record, Exception], None] | None = None
    """Set before `start`, by whoever runs the task."""

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Acquire the resources of the task.

        Args:
            directory: Directory where the task may keep its own state.
        """

    @abstractmethod
    def begin(self, batch: int) -> None:
        """Begin a batch. An interrupted batch begins again with the same number and records."""

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Write records of the current batch."""

    def put_columns(self, columns: Columns) -> None:
        """As `put`, for many records of one topic at once. Raises NotInColumns, before anything is
        done, for what must come one by one: they are handed to `put` then."""
        raise NotInColumns("records are taken one by one")

    @abstractmethod
    def end(self) -> None:
        """Complete the batch: when this returns, its records are stored durably."""

    def stop(self) -> None:
        """Release the resources of the task."""
        return

    def report(self, record: Record, error: Exception) -> None:
        """Report a record of `put` that the target rejects.

        With `errors.tolerance=all` the record is skipped, and goes to the dead letter queue if
        there is one.

        Raises:
            Exception: Errors are not tolerated.
        """
        if self.reporter is None:
            raise error
        self.reporter(record, error)


class Connector:
    """One configured connector. `settings` are the values of its definition."""

    definition: ClassVar[Definition] = Definition()
    version: ClassVar[str] = ""
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    converters: ClassVar[Mapping[str, str]] = {}
    """Those that stand before the worker's, by property: {"value.converter": "StringConverter"}."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class SourceConnector(Connector):
    guarantee = Guarantee.EXACTLY_ONCE

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """Return the settings of each task, at most `max_tasks` of them."""
        return [self.settings]

    @abstractmethod
    def make_task(self, settings: Settings) -> SourceTask:
        """Return a new task with one of the settings that `task_settings` returned."""

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Raises ValueError, a sentence, for what cannot be an offset of this connector."""
        return


class SinkConnector(Connector):
    shares_partitions: ClassVar[bool] = False
    """Whether several tasks may write at once, each the partitions that are its own. Their batches
    are numbered each by itself, and each has a directory."""

    @abstractmethod
    def make_task(self, settings: Settings) -> SinkTask:
        """Return a new task."""
