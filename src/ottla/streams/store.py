"""Interactive queries: look-ups in a table that an application writes.

    app.store("totals").get("tea")

A store is the table that a sink writes. Every change of the query's state is a record of its topic,
so the topic is the changelog of the state, as in Kafka Streams. A store reads the topic into an
indexed file (`store_file`), from the offset that it reached last, and thereby plays the role of a
standby replica. It works in the process of the application or in any other, whether the query is
running, restarting or stopped.

A result includes everything that was committed before the call: each look-up first reads the new
records of the topic. It reads committed records only. The cost is that of catching up, and arises
only on look-ups.

Windows are kept for a day after stream time has passed them (or for their size and grace period, if
that is longer), as in Kafka Streams. The topic of a table without windows should be compacted: if
old records are deleted, a store that has to be rebuilt holds only what is left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.streams.application import Application
from ottla.streams.checkpoint import STORE, local_directory
from ottla.streams.errors import listed
from ottla.streams.operators.aggregations import windows_of
from ottla.streams.operators.topics import Printed, Sink
from ottla.streams.serdes import split_windowed_key
from ottla.streams.store_file import NO_WINDOW, StoreChange, StoreFile, StoreRow

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.consumer.record import Record

logger = logging.getLogger(__name__)

Time = datetime | int
"""A datetime, or milliseconds since the epoch. A datetime without a time zone is in UTC."""

DAY_MS = 24 * 60 * 60 * 1000
POLL_S = 1.0
CATCH_UP_TIMEOUT_S = 30.0
"""Maximum time without progress while records are known to be available."""
POLL_RECORDS = 10_000
EXPIRE_INTERVAL_MS = 60 * 60 * 1000
"""Stream time between two removals of expired windows."""
_TOPIC_ID = "topic id"


@dataclass(frozen=True)
class Entry:
    """An entry of a store."""

    key: Any
    """Key of the entry, without its window."""
    value: Any
    """Decoded value."""
    timestamp_ms: int
    """Timestamp of the record that wrote the entry, in milliseconds since the epoch."""
    window_ms: tuple[int, int] | None = None
    """Start and end of the window, or None. A session ends with its last record."""


@dataclass(frozen=True)
class WindowedKeyFormat:
    """Format of the windows in the keys of a topic."""

    size_ms: int
    retention_ms: int
    are_sessions: bool

    def split(self, key: bytes) -> tuple[bytes, tuple[int, int]]:
        """Separate a key from the start and the end of its window."""
        plain, numbers = split_windowed_key(key, is_session=self.are_sessions)
        start = numbers[-1]
        return plain, (start, numbers[0] if self.are_sessions else start + self.size_ms)


def windowed_key_format(sink: Sink) -> WindowedKeyFormat | None:
    """Return the format of the windows in a sink's keys, or None if they have none."""
    window = next(iter(windows_of(sink)), None)
    if window is None or not sink.has_window_in_key:
        return None
    kept_ms = max(DAY_MS, window.size_ms + window.grace_ms)
    return WindowedKeyFormat(window.size_ms, kept_ms, window.is_session)


def store_names(app: Application) -> list[str]:
    """Return the topics of all sinks except those that print."""
    return [sink.topic for sink in app.sinks if not isinstance(sink, Printed)]


def find_sink(app: Application, name: str) -> Sink:
    if name in store_names(app):
        return next(sink for sink in app.sinks if sink.topic == name)
    raise UserError(f"App {app.name!r} has no store {name!r}; stores: {listed(store_names(app))}")


class Store:
    """A table that an application writes, for look-ups. Any number of threads may share it.

    Every look-up first reads what the application has committed since the last one.
    """

    def __init__(
        self,
        sink: Sink,
        path: Path,
        consumer: Callable[[], Consumer],
        topic_id: Callable[[], str],
    ) -> None:
        self.name = sink.topic
        self.key_serde = sink.key_serde
        self._sink = sink
        self._windows = windowed_key_format(sink)
        self._file = StoreFile(path)
        self._make_consumer = consumer
        self._topic_id = topic_id
        self._consumer: Consumer | None = None
        self._partitions: list[TopicPartition] = []
        self._stream_time_ms = 0
        self._expired_at_ms = 0
        self._lock = threading.Lock()

    @property
    def is_windowed(self) -> bool:
        """Whether the keys have windows."""
        return self._windows is not None

    # ---------------------------------------------------------------------------- looking up

    def get(self, key: Any, at: Time | None = None) -> Any:
        """Return the value of a key, or None.

        Args:
            key: The key.
            at: Start of the window, in a windowed table: a datetime, or milliseconds since the
                epoch. None takes the latest window of the key.

        Raises:
            UserError: The key cannot be encoded, or the table has no windows.
        """
        entry = self.entry(key, at)
        return None if entry is None else entry.value

    def entry(self, key: Any, at: Time | None = None) -> Entry | None:
        """Return the entry of a key with its window and timestamp, or None.

        Args:
            key: The key.
            at: Start of the window; see `get`.

        Raises:
            UserError: The key cannot be encoded, or the table has no windows.
        """
        self.refresh()
        wanted = self._key(key)
        if at is None:
            found = self._file.latest(wanted)
        else:
            self._require_windows("at")
            start_ms = milliseconds(at)
            rows = self._file.of_key(wanted, start_ms, start_ms, limit=1, is_reverse=True)
            found = rows[0] if rows else None
        return None if found is None else self._entry(found)

    def windows(
        self, key: Any, since: Time | None = None, until: Time | None = None
    ) -> list[Entry]:
        """Return the windows of a key in the order of their start.

        Args:
            key: The key.
            since: Earliest start, included. None has no limit.
            until: Latest start, included. None has no limit.

        Raises:
            UserError: The key cannot be encoded, or the table has no windows.
        """
        self._require_windows("windows()")
        self.refresh()
        bounds = [None if each is None else milliseconds(each) for each in (since, until)]
        return [self._entry(each) for each in self._file.of_key(self._key(key), *bounds)]

    def range(
        self, first: Any = None, last: Any = None, *, reverse: bool = False
    ) -> Iterator[Entry]:
        """Return an iterator over the entries of a range of keys, in the order of the keys' bytes.

        Args:
            first: First key, included. None has no limit.
            last: Last key, included. None has no limit.
            reverse: Begin with the last key.

        Raises:
            UserError: A key cannot be encoded.
        """
        self.refresh()
        bounds = [None if each is None else self._key(each) for each in (first, last)]
        return map(self._entry, self._file.range(*bounds, is_reverse=reverse))

    def all(self) -> Iterator[Entry]:
        """Return an iterator over all entries, in the order of the keys' bytes."""
        return self.range()

    def __len__(self) -> int:
        self.refresh()
        return self._file.count()

    def __iter__(self) -> Iterator[Entry]:
        return self.range()

    def _key(self, key: Any) -> bytes:
        try:
            data = self.key_serde.encode(key)
        except (TypeError, ValueError, OverflowError):
            data = None
        if data is None:
            raise UserError(
                f"store {self.name!r}: {key!r} is not a valid key; keys are {self.key_serde} "
                f"{self._sink.key}"
            )
        return self.key_serde.canonical(data)

    def _require_windows(self, what: str) -> None:
        if self._windows is None:
            raise UserError(f"store {self.name!r} has no windows; remove {what}")

    def _entry(self, row: StoreRow) -> Entry:
        return Entry(
            self.key_serde.decode(row.key),
            self._sink.value_serde.decode(row.value),
            row.timestamp_ms,
            row.window if self._windows is not None else None,
        )

    # ---------------------------------------------------------------------------- following

    def refresh(self) -> None:
        """Read what the application has committed since the last look-up.

        Raises:
            UserError: The records could not be read in time.
        """
        with self._lock:
            if self._consumer is None:
                self._open()
            assert self._consumer is not None
            ends = self._consumer.end_offsets(*self._partitions)
            deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
            while self._is_behind(ends):
                records = self._consumer.poll(POLL_S, POLL_RECORDS)
                if records:
                    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise UserError(
                        f"store {self.name!r} received no records of its topic for "
                        f"{CATCH_UP_TIMEOUT_S:.0f} s"
                    )
                self._file.apply(
                    [each for each in map(self._change, records) if each is not None],
                    {tp.partition: self._consumer.position(tp) for tp in self._partitions},
                )
                self._expire_windows()

    def _is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        assert self._consumer is not None
        return any(self._consumer.position(tp) < end for tp, end in ends.items())

    def _open(self) -> None:
        consumer = self._make_consumer()
        try:
            partitions = consumer.partitions_for(self.name)
            consumer.assign(partitions)
            first = consumer.beginning_offsets(*partitions)
            ends = consumer.end_offsets(*partitions)
            positions, topic_id = self._file.positions(), self._topic_id()
            is_same_topic = self._file.fact(_TOPIC_ID) == topic_id
            if not is_same_topic or any(
                not first[tp] <= positions.get(tp.partition, 0) <= ends[tp] for tp in partitions
            ):
                self._file.clear({_TOPIC_ID: topic_id})
                positions = {}
                if any(first.values()) and self._windows is None:
                    logger.warning(
                        "store %s: the oldest records of its topic were deleted, so the store is "
                        "incomplete; cleanup.policy=compact keeps the last record of each key",
                        self.name,
                    )
            for tp in partitions:
                consumer.seek(tp, positions.get(tp.partition, first[tp]))
        except BaseException:
            consumer.close()
            raise
        self._consumer, self._partitions = consumer, partitions

    def _change(self, record: Record) -> StoreChange | None:
        if record.key is None:
            return None  # a record without a key belongs to no table
        key, window = record.key, NO_WINDOW
        if self._windows is not None:
            key, window = self._windows.split(key)
        self._stream_time_ms = max(self._stream_time_ms, record.timestamp)
        return StoreChange(self.key_serde.canonical(key), window, record.value, record.timestamp)

    def _expire_windows(self) -> None:
        now_ms = self._stream_time_ms
        if self._windows is None or now_ms - self._expired_at_ms < EXPIRE_INTERVAL_MS:
            return
        self._expired_at_ms = now_ms
        self._file.delete_windows_before(now_ms - self._windows.retention_ms)

    def close(self) -> None:
        """Close the file and the connection of the store."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
            self._file.close()


def milliseconds(at: Time) -> int:
    if isinstance(at, datetime):
        return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    return at


def open_store(app: Application, name: str) -> Store:
    sink = find_sink(app, name)
    profile = {"default.api.timeout.ms": "30000", **app.client}

    def consumer() -> Consumer:
        from ottla.client.consumer.consumer import Consumer

        return Consumer(app.bootstrap, profile=profile, isolation_level="read_committed")

    def topic_id() -> str:
        from ottla.client.admin import Admin

        with Admin(app.bootstrap, profile=profile) as admin:
            return str(admin.describe_topics(name)[name].topic_id)

    path = local_directory(app.state_dir, app.name) / f"{sink.topic}{STORE}"
    return Store(sink, path, consumer, topic_id)


class Stores:
    """Stores of an application that are open."""

    def __init__(self) -> None:
        self._open: dict[str, Store] = {}

    def open(self, app: Application, name: str) -> Store:
        """Return a store, opened on first use.

        Raises:
            UserError: The application does not write the topic.
        """
        if name not in self._open:
            self._open[name] = open_store(app, name)
        return self._open[name]

    def close(self) -> None:
        """Close the files and connections of all stores. They open again on the next look-up."""
        while self._open:
            self._open.popitem()[1].close()
