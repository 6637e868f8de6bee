"""Connectors as a user would write them, configured by their import path.

They expose their state, so that tests can inspect it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ottla.connect import (
    ConfigType,
    ConnectRecord,
    Definition,
    Offsets,
    Polled,
    RetriableError,
    Schema,
    Settings,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
    Type,
    UserError,
    key,
)

STRING = Schema(Type.STRING)

PLACE = "tests.connect.own_connectors"


class Numbers(SourceConnector):
    """Source that emits 0, 1, 2 … up to `count`, and fails once after `fail.at` records."""

    definition = Definition([
        key("topic", ConfigType.STRING, "numbers", "Topic to write to."),
        key("count", ConfigType.INT, 100, "Number of records."),
        key("fail.at", ConfigType.INT, -1, "Number of records before the failure; -1 for none."),
        key("tables", ConfigType.INT, 1, "Source partitions, a task for each."),
    ])  # fmt: skip
    failed: ClassVar[set[str]] = set()

    def task_settings(self, max_tasks: int) -> list[Settings]:
        return [
            {**self.settings, "table": n} for n in range(min(max_tasks, self.settings["tables"]))
        ]

    def make_task(self, settings: Settings) -> SourceTask:
        return _Numbers(settings)


class _Numbers(SourceTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._next = 0

    def start(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition == {"table": self._settings["table"]}:
                self._next = offset["next"]

    def poll(self, wait_s: float) -> Polled:
        topic, fail_at = self._settings["topic"], self._settings["fail.at"]
        if 0 <= fail_at <= self._next and topic not in Numbers.failed:
            Numbers.failed.add(topic)
            raise UserError("the source is out of order")
        if self._next >= self._settings["count"]:
            time.sleep(wait_s)
            return Polled()
        first, self._next = self._next, min(self._next + 7, self._settings["count"])
        records = [ConnectRecord(topic, str(n), STRING) for n in range(first, self._next)]
        return Polled(records, [({"table": self._settings["table"]}, {"next": self._next})])


class Unmade(SourceConnector):
    """Source that cannot configure its tasks, like one whose database is down."""

    is_away: ClassVar[bool] = True

    def task_settings(self, max_tasks: int) -> list[Settings]:
        if Unmade.is_away:
            raise UserError("the database is away")
        return [{"topic": "unmade", "count": 0, "fail.at": -1, "table": 0}]

    def make_task(self, settings: Settings) -> SourceTask:
        return _Numbers(settings)


class Noted(SinkConnector):
    """Sink that keeps its batches in memory, under the name in `list`.

    `given` has every attempt as (batch, values), `done` the batches that ended without an error."""

    definition = Definition(
        [key("list", ConfigType.STRING, "noted", "Name of the list that records the batches.")]
    )
    shares_partitions = True
    given: ClassVar[dict[str, list[tuple[int, list[Any]]]]] = {}
    done: ClassVar[dict[str, list[int]]] = {}
    trouble: ClassVar[dict[str, Callable[[int], None]]] = {}
    """Functions to call at the end of a batch, by name; they may raise."""
    lock: ClassVar[threading.Lock] = threading.Lock()

    def make_task(self, settings: Settings) -> SinkTask:
        return _Noted(settings["list"])

    @classmethod
    def values(cls, name: str) -> list[Any]:
        """Return the delivered values: those of the last attempt of each batch."""
        with cls.lock:
            last = dict(cls.given.get(name, []))
            return [value for batch in sorted(last) for value in last[batch]]


class _Noted(SinkTask):
    def __init__(self, name: str) -> None:
        self._name = name
        self._batch = -1
        self._values: list[Any] = []

    def start(self, directory: Path) -> None: ...

    def begin(self, batch: int) -> None:
        self._batch, self._values = batch, []

    def put(self, records: Sequence[ConnectRecord]) -> None:
        self._values += [each.value for each in records]

    def end(self) -> None:
        with Noted.lock:
            Noted.given.setdefault(self._name, []).append((self._batch, self._values))
        trouble = Noted.trouble.get(self._name)
        if trouble is not None:
            trouble(self._batch)
        with Noted.lock:
            Noted.done.setdefault(self._name, []).append(self._batch)


def once(error: Exception) -> Callable[[int], None]:
    """Return a function that raises the error at its first call only."""
    left = [error]

    def raise_it(batch: int) -> None:
        if left:
            raise left.pop()

    return raise_it


def away(times: int) -> Callable[[int], None]:
    left = [times]

    def raise_it(batch: int) -> None:
        if left[0]:
            left[0] -= 1
            raise RetriableError("the target is away")

    return raise_it
