"""Kits that run a connector without a worker and without a cluster.

`SourceKit` and `SinkKit` take a connector's class (or its name) and its properties, as in a file,
and do what a worker does: validate the properties, create tasks, pass offsets and batches. They
also simulate what may happen to a worker: `crash` discards everything that was not committed.

    kit = SourceKit(Counter, {"topic": "counts"})
    assert [each.value for each in kit.take(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    kit.crash()
    assert kit.take(1)[0].value == {"n": 3}

`check_source` and `check_sink` interrupt a connector at every possible point, and raise
AssertionError if it does not deliver exactly once.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.connect.api import (
    Connector,
    Offsets,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from ottla.connect.config import ConnectorConfig
from ottla.connect.data import ConnectRecord, FailedRecord
from ottla.connect.offsets import merged
from ottla.connect.pipeline import Row

CONVERTERS = {
    "key.converter": "JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""Default converters, used unless the properties name others."""
POLL_S = 0.05
TIMEOUT_S = 30.0


def configured(connector: type[Connector] | str, properties: Mapping[str, str]) -> ConnectorConfig:
    """Return the validated configuration of a connector.

    A class must be defined at the top level of its module, as for a worker.

    Raises:
        UserError: The configuration is invalid. The message lists all problems, as a worker does.
    """
    if not isinstance(connector, str):
        connector = f"{connector.__module__}:{connector.__qualname__}"
    return ConnectorConfig.of(
        {"name": "test", "connector.class": connector, **properties}, CONVERTERS
    )


class SourceKit:
    """Runner for the tasks of a source connector, without a worker.

    Args:
        connector: Class of the connector, or its name.
        properties: Configuration of the connector.
        max_tasks: Maximum number of tasks (`tasks.max`).
        offsets: Source offsets to start from.

    Raises:
        UserError: The configuration is invalid.
    """

    def __init__(
        self,
        connector: type[SourceConnector] | str,
        properties: Mapping[str, str] | None = None,
        *,
        max_tasks: int = 1,
        offsets: Offsets | None = None,
    ) -> None:
        self.config = configured(connector, properties or {})
        assert isinstance(self.config.connector, SourceConnector), "the connector is not a source"
        self._connector = self.config.connector
        self._max_tasks = max_tasks
        self.offsets: Offsets = list(offsets or [])
        """Committed source offsets; a restarted task continues from them."""
        self._polled: Offsets = list(self.offsets)
        self._left: list[ConnectRecord] = []
        self._tasks: list[SourceTask] = []
        self._start()

    def _start(self) -> None:
        made = self._connector.task_settings(self._max_tasks)
        assert 0 < len(made) <= self._max_tasks, "a source has one to max_tasks tasks"
        self._tasks = [self._connector.make_task(each) for each in made]
        for task in self._tasks:
            task.start([(dict(partition), dict(offset)) for partition, offset in self.offsets])

    def poll(self, *, commit: bool = True) -> list[ConnectRecord]:
        """Poll each task once and return the records.

        Args:
            commit: Commit the offsets, as a worker does.
        """
        found: list[ConnectRecord] = []
        for task in self._tasks:
            polled = task.poll(POLL_S)
            found += polled.records
            found += [record for batch in polled.columns for record in batch.records()]
            self._polled = merged(self._polled, polled.offsets)
            for partition, offset in polled.offsets:
                self._connector.check_offset(partition, offset)
            if commit and polled:
                self.offsets = merged(self.offsets, polled.offsets)
                task.commit(polled.offsets)
        return found

    def take(self, count: int, timeout_s: float = TIMEOUT_S) -> list[ConnectRecord]:
        """Return exactly the next `count` records.

        Polls commit as a whole: further records of the last poll are kept for the next `take`, and
        are lost after a crash.

        Args:
            count: Number of records.
            timeout_s: Seconds to wait.

        Raises:
            AssertionError: Fewer records arrived in time.
        """
        until = time.monotonic() + timeout_s
        while len(self._left) < count:
            self._left += self.poll()
            assert time.monotonic() < until, f"only {len(self._left)} of {count} records arrived"
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def rows(self, records: Sequence[ConnectRecord]) -> list[Row]:
        """Transform and convert records as they would be written to topics.

        Args:
            records: Records of `poll` or `take`.

        Raises:
            DataError: A record cannot be converted.
        """
        done = [self.config.chain.apply(record) for record in records]
        return [self.config.conversion.to_row(each) for each in done if each is not None]

    def restart(self) -> None:
        """Stop the tasks and start new ones, as a worker does in an orderly restart."""
        self.stop()
        self._start()

    def crash(self) -> None:
        """Start new tasks from the committed offsets, without stopping the old ones."""
        self._left = []
        self._polled = list(self.offsets)
        self._tasks = []
        self._start()

    def stop(self) -> None:
        """Stop all tasks."""
        for task in self._tasks:
            task.stop()


class SinkKit:
    """Runner for one task of a sink connector, without a worker.

    Args:
        connector: Class of the connector, or its name.
        properties: Configuration of the connector.
        tolerates: Collect rejected records in `reported` in place of failing.
        directory: Directory for the task's state; a temporary one by default.

    Raises:
        UserError: The configuration is invalid.
    """

    def __init__(
        self,
        connector: type[SinkConnector] | str,
        properties: Mapping[str, str] | None = None,
        *,
        tolerates: bool = False,
        directory: Path | None = None,
    ) -> None:
        with_topics = {"topics": "t", **(properties or {})}
        self.config = configured(connector, with_topics)
        assert isinstance(self.config.connector, SinkConnector), "the connector is not a sink"
        self._connector = self.config.connector
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="ottla-sink-"))
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._directory = directory
        self._tolerates = tolerates
        self.reported: list[tuple[ConnectRecord, Exception]] = []
        """Records that the task rejected, with their errors."""
        self._starts = 0
        self.batch = -1
        """Number of the last batch that was begun."""
        self.task = self._start()

    def _start(self) -> SinkTask:
        task = self._connector.make_task(self._connector.settings)
        self._starts += 1
        task.epoch = self._starts
        if self._tolerates:
            task.reporter = lambda record, error: self.reported.append((record, error))
        task.start(self._directory)
        return task

    def put(self, *records: ConnectRecord | Any) -> None:
        """Write a complete batch.

        Args:
            records: Records, or plain values, which become records of topic `t`.
        """
        self.batch += 1
        self._run(self.batch, self._made(records), None)

    def interrupt(self, *records: ConnectRecord | Any, after: int) -> None:
        """Crash in the middle of a batch, and deliver the batch again.

        Args:
            records: Records, or plain values, which become records of topic `t`.
            after: Number of steps before the crash: 0 is before `begin`, 1 after it, then one for
                each record.
        """
        self.batch += 1
        made = self._made(records)
        self._run(self.batch, made, after)
        self.crash()
        self._run(self.batch, made, None)

    def repeat(self, *records: ConnectRecord | Any) -> None:
        """Deliver the last batch again, as after a crash before its completion was stored.

        Args:
            records: Records of the last batch.
        """
        self.crash()
        self._run(self.batch, self._made(records), None)

    def crash(self) -> None:
        """Start a new task without stopping the old one."""
        del self.task
        self.task = self._start()

    def restart(self) -> None:
        """Stop the task and start a new one."""
        self.task.stop()
        self.task = self._start()

    def stop(self) -> None:
        """Stop the task."""
        self.task.stop()

    def _made(self, records: Sequence[Any]) -> list[ConnectRecord]:
        return [
            each if isinstance(each, ConnectRecord)
            else ConnectRecord(
                "t", each, partition=0, offset=self.batch * 1000 + index, timestamp_ms=0
            )
            for index, each in enumerate(records)
        ]  # fmt: skip

    def _run(self, batch: int, records: Sequence[ConnectRecord], after: int | None) -> None:
        if after == 0:
            return
        self.task.begin(batch)
        if after == 1:
            return
        if after is None:
            if records:
                self.task.put(records)
        else:
            for record in records[: after - 1]:
                self.task.put([record])
            if after <= len(records):
                return
        self.task.end()


def check_source(make: Callable[[Offsets], SourceKit], count: int) -> list[ConnectRecord]:
    """Check that a source returns each record exactly once, with a crash after each poll.

    Args:
        make: Function that returns a kit which starts from the given offsets.
        count: Number of records to read.

    Returns:
        The records.

    Raises:
        AssertionError: A crash adds, loses or changes records.
    """
    whole = make([]).take(count)
    assert not any(isinstance(each, FailedRecord) for each in whole), (
        "some records could not be read"
    )
    kit, found = make([]), list[ConnectRecord]()
    until = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        # Poll without a commit and crash: the same records must be returned again.
        kit.poll(commit=False)
        kit.crash()
        found += kit.poll()
        kit.crash()
        assert time.monotonic() < until, f"only {len(found)} of {count} records arrived"
    assert found[:count] == whole, "a restart changes the records"
    return whole


def check_sink(
    make: Callable[[Path], SinkKit], batches: Sequence[Sequence[Any]], read: Callable[[], Any]
) -> Any:
    """Check that a sink writes each record exactly once, wherever a batch is interrupted.

    Args:
        make: Function that returns a kit with the given directory and an empty target.
        batches: Batches to write.
        read: Function that returns the contents of the target.

    Returns:
        The contents.

    Raises:
        AssertionError: An interruption changes the contents.
    """
    results = []
    longest = max(map(len, batches))
    for after in (None, *range(longest + 3), "repeat"):
        with tempfile.TemporaryDirectory() as folder:
            kit = make(Path(folder))
            for batch in batches:
                if isinstance(after, int):
                    kit.interrupt(*batch, after=after)
                else:
                    kit.put(*batch)
                    if after == "repeat":
                        kit.repeat(*batch)
            kit.stop()
            results.append((after, read()))
    wanted = results[0][1]
    for after, found in results:
        assert found == wanted, f"interrupted after {after} steps: {found!r}, not {wanted!r}"
    return wanted
