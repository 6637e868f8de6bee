"""Base classes of connectors and tasks; custom connectors derive from them.

**Resuming, sources.** The worker starts a task with the last committed source offsets: every record
before them is in its topic, and no record after them is. `poll` returns the next records and the
offsets after them. The worker writes both in one transaction, which makes every source exactly
once without further effort by the task. A restarted task continues from the committed offsets, so
it must be able to seek back to them. `commit` reports offsets that are stored durably and will not
be requested again: the task may advance a replication slot or delete a file.

**Resuming, sinks.** A task receives numbered batches: `begin(batch)`, any number of
`put(records)`, `end()`. A batch that was interrupted at any point is delivered again with the same
number and the same records; older batches never are. A task is exactly once if `begin` undoes what
an interrupted batch of that number left behind, or if it stores the number with the data in one
transaction. Any other task is at least once and declares it in `guarantee`. `directory` belongs to
the task and exists as long as its offsets. If several workers share it, another worker may take
over a task whose worker only seems to be dead: `is_takeover` is then set, and `epoch` is higher
than that of the previous owner. A task that can fence the previous owner from its target does so
in `start`.

**Threads and processes.** A task runs in one thread: of the worker's process, or with
`task.engine=spark` of a process of its own on an executor of Spark. The executor constructs the
connector again from its properties, and `settings` are pickled. `ottla.connect.session` provides
the worker's Spark session to tasks of connectors that set `uses_spark_session`; those always run in
the worker.

**Errors.** A sink task passes a record that the target rejects to `report(record, error)`, in `put`
or in `end`. With `errors.tolerance=all` the record goes to the dead letter queue, if there is one,
and the task continues; otherwise `report` raises. A source that cannot read an item returns a
FailedRecord in its place, and the same properties apply.

A RetriableError may pass, for example when a database is unavailable; the worker retries for
`errors.retry.timeout`. A DataError concerns one record. Any other exception fails the task: its
message is shown in the task's status, and the worker restarts the task after a delay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from ottla.connect.columns import ColumnBatch, Columns, NotInColumns
from ottla.connect.data import ConnectRecord
from ottla.connect.definition import Definition, Settings

Json = dict[str, Any]
Offsets = list[tuple[Json, Json]]
"""Pairs of source partition and source offset, as in the REST API's `/connectors/…/offsets`."""


class Guarantee(Enum):
    """Delivery guarantee of a connector."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class RetriableError(Exception):
    """A failure that may pass, such as a lost connection. The worker retries the operation.

    It retries for `errors.retry.timeout`, and fails the task afterwards.
    """


@dataclass(frozen=True)
class Polled:
    """Records that a source task returns, and the source offsets after them.

    The worker writes both in one transaction. Offsets without records are stored as well.

    Example:
        Polled([ConnectRecord("orders", {"id": 7})], [({"table": "orders"}, {"id": 7})])
    """

    records: Sequence[ConnectRecord] = ()
    """The records, in order."""
    offsets: Offsets = field(default_factory=list)
    """New offsets of the source partitions that advanced."""
    columns: Sequence[ColumnBatch] = ()
    """Records in columns, which are several times as fast. They follow `records`."""

    def __bool__(self) -> bool:
        return bool(self.records) or bool(self.columns) or bool(self.offsets)


class SourceTask(ABC):
    """Base class of the tasks that read from a source.

    The worker calls `start` once, then `poll` and `commit` in turn, and `stop` at the end, all in
    one thread.

    Example:
        class Count(SourceTask):
            def start(self, offsets: Offsets) -> None:
                self.next = offsets[0][1]["next"] if offsets else 0

            def poll(self, wait_s: float) -> Polled:
                record = ConnectRecord("numbers", self.next)
                self.next += 1
                return Polled([record], [({"counter": "a"}, {"next": self.next})])
    """

    @abstractmethod
    def start(self, offsets: Offsets) -> None:
        """Begin to read.

        Args:
            offsets: Source offsets that were committed last, to continue from; empty means from the
                beginning. All records before them are in their topics, and none after them.

        Raises:
            RetriableError: The source is unavailable; the worker calls the method again.
            UserError: The source cannot be read; the task fails with this message.
        """

    @abstractmethod
    def poll(self, wait_s: float) -> Polled:
        """Return the next records, at most a few megabytes.

        Args:
            wait_s: Time to wait if there is nothing yet, in seconds.

        Returns:
            The records and the source offsets after them. `Polled()` if there is nothing yet.

        Raises:
            RetriableError: The source is unavailable; the worker calls the method again.
            UserError: The source cannot be read; the task fails with this message.
        """

    def commit(self, offsets: Offsets) -> None:
        """Handle that all records before these offsets are stored in their topics.

        Override it if the source can release them, for example acknowledge messages.

        Args:
            offsets: Committed source offsets.

        Raises:
            RetriableError: The source is unavailable; the next commit includes these offsets.
        """
        return

    def stop(self) -> None:
        """Release the resources of the task."""
        return


class SinkTask(ABC):
    """Base class of the tasks that write to a target.

    The worker calls `start` once, then `begin`, `put` and `end` for each batch, and `stop` at the
    end, all in one thread. An interrupted batch is delivered again with the same number and the
    same records.

    Example:
        class Print(SinkTask):
            def start(self, directory: Path) -> None: ...

            def begin(self, batch: int) -> None: ...

            def put(self, records: Sequence[ConnectRecord]) -> None:
                for record in records:
                    print(record.value)

            def end(self) -> None: ...
    """

    takes_columns: ClassVar[bool] = False
    """Whether the worker should call `put_columns`."""
    epoch: int = 0
    """Number of times that the task was started, in any worker. It is set before `start`."""
    is_takeover: bool = False
    """Whether another worker ran the task last."""
    reporter: Callable[[ConnectRecord, Exception], None] | None = None
    """Function that handles rejected records. The worker sets it before `start`."""

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Acquire the resources of the task.

        Args:
            directory: Directory where the task may keep its own state.

        Raises:
            RetriableError: The target is unavailable; the worker calls the method again.
            UserError: The target cannot be written; the task fails with this message.
        """

    @abstractmethod
    def begin(self, batch: int) -> None:
        """Begin a batch. An interrupted batch begins again with the same number and records.

        Args:
            batch: Number of the batch.

        Raises:
            RetriableError: The failure may pass; the worker calls the method again.
        """

    @abstractmethod
    def put(self, records: Sequence[ConnectRecord]) -> None:
        """Write records of the current batch.

        Args:
            records: The records.

        Raises:
            RetriableError: The failure may pass; the worker calls the method again.
        """

    def put_columns(self, columns: Columns) -> None:
        """Write many records of one topic, in columns.

        Args:
            columns: The records.

        Raises:
            NotInColumns: The records must be written one by one; they are passed to `put`. Raise it
                before anything is written.
        """
        raise NotInColumns("the task accepts only single records")

    @abstractmethod
    def end(self) -> None:
        """Complete the batch: when this returns, its records are stored durably.

        Raises:
            RetriableError: The failure may pass; the worker calls the method again.
        """

    def stop(self) -> None:
        """Release the resources of the task."""
        return

    def report(self, record: ConnectRecord, error: Exception) -> None:
        """Report a record of `put` that the target rejects.

        With `errors.tolerance=all` the record is skipped, and goes to the dead letter queue if
        there is one.

        Args:
            record: The rejected record.
            error: Reason for the rejection.

        Raises:
            Exception: Errors are not tolerated.
        """
        if self.reporter is None:
            raise error
        self.reporter(record, error)


class Connector:
    """Base class of connectors: one configured instance.

    Args:
        settings: Values of the properties in `definition`.

    Raises:
        ValueError: Settings exclude each other.
    """

    definition: ClassVar[Definition] = Definition()
    """Properties of the connector."""
    version: ClassVar[str] = ""
    """Version that the worker reports."""
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    """Delivery guarantee that the connector provides."""
    converters: ClassVar[Mapping[str, str]] = {}
    """Converters that take precedence over the worker's, by property."""
    uses_spark_session: bool = False
    """Whether tasks call `spark_session`. With `task.engine=spark`, they then run in the worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class SourceConnector(Connector):
    """Base class of connectors that write records to topics.

    Example:
        class Counter(SourceConnector):
            definition = Definition([key("step", ConfigType.INT, 1, "Difference of two numbers.")])

            def make_task(self, settings: Settings) -> SourceTask:
                return Count(settings["step"])
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """Return the settings of each task.

        Args:
            max_tasks: Maximum number of tasks (`tasks.max`).

        Returns:
            At least one and at most `max_tasks` mappings, each of which is passed to `make_task`.

        Raises:
            RetriableError: The work cannot be divided now, because the source is unavailable.
        """
        return [self.settings]

    @abstractmethod
    def make_task(self, settings: Settings) -> SourceTask:
        """Return a new task.

        Args:
            settings: One of the settings that `task_settings` returned.

        Returns:
            The task. The worker starts it.
        """

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Check an offset that an administrator sets.

        Args:
            partition: Source partition.
            offset: Source offset.

        Raises:
            ValueError: It is not an offset of this connector.
        """
        return


class SinkConnector(Connector):
    """Base class of connectors that read records from topics.

    Example:
        class Printer(SinkConnector):
            def make_task(self, settings: Settings) -> SinkTask:
                return Print()
    """

    shares_partitions: ClassVar[bool] = False
    """Whether several tasks may write at once, each with its own partitions.

    The batches of each task are numbered separately, and each task has its own directory.
    """

    @abstractmethod
    def make_task(self, settings: Settings) -> SinkTask:
        """Return a new task.

        Args:
            settings: Settings of the connector.

        Returns:
            The task. The worker starts it.
        """
