"""Table on disk, ordered by key, for the look-ups of `store`. It uses Python's own SQLite.

    entries     key, start and end of the window (0, 0 without windows), value, timestamp
    positions   partition -> next offset
    facts       name -> text: format, topic ID

Entries and positions change in one transaction, so the file always holds the table as of its
positions, even after a crash. Keys are compared as bytes, as in the stores of Kafka Streams.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FORMAT = "1"
READ_ROWS = 1_000
"""Rows per query, so that a long range does not block other readers."""
NO_WINDOW = (0, 0)

_TABLES = """
create table if not exists entries (
    key blob not null, start integer not null, finish integer not null,
    value blob not null, timestamp integer not null, primary key (key, start, finish)
) without rowid;
create table if not exists positions (partition integer primary key, offset integer not null);
create table if not exists facts (name text primary key, text text not null);
"""


class StoreRow(NamedTuple):
    key: bytes
    window: tuple[int, int]
    value: bytes
    timestamp_ms: int


class StoreChange(NamedTuple):
    key: bytes
    window: tuple[int, int]
    value: bytes | None
    """New value; None deletes the entry."""
    timestamp_ms: int


class StoreFile:
    """Store file that any number of threads may share; a lock serializes them."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._path = path
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError:
            # The file has another format or is damaged. Rebuild it from the topic.
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.executescript(_TABLES)
            found = connection.execute("select text from facts where name = 'format'").fetchone()
            if found is None:
                connection.execute("insert into facts values ('format', ?)", (FORMAT,))
            elif found[0] != FORMAT:
                raise sqlite3.DatabaseError(f"format {found[0]}")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        with self._lock:
            self._database.close()

    # ----------------------------------------------------------------------------- changing

    def apply(self, changes: Iterable[StoreChange], positions: Mapping[int, int]) -> None:
        with self._lock, self._transaction() as database:
            for change in changes:
                primary_key = (change.key, *change.window)
                if change.value is None:
                    database.execute(
                        "delete from entries where key = ? and start = ? and finish = ?",
                        primary_key,
                    )
                else:
                    database.execute(
                        "insert or replace into entries values (?, ?, ?, ?, ?)",
                        (*primary_key, change.value, change.timestamp_ms),
                    )
            database.executemany("insert or replace into positions values (?, ?)",
                                 positions.items())  # fmt: skip

    def clear(self, facts: Mapping[str, str]) -> None:
        """Delete all entries and positions, and set facts."""
        with self._lock, self._transaction() as database:
            database.execute("delete from entries")
            database.execute("delete from positions")
            database.executemany("insert or replace into facts values (?, ?)", facts.items())

    def delete_windows_before(self, end_ms: int) -> None:
        """Delete the windows that ended before a time."""
        with self._lock, self._transaction() as database:
            database.execute("delete from entries where finish > 0 and finish < ?", (end_ms,))

    def _transaction(self) -> _Transaction:
        return _Transaction(self._database)

    # ------------------------------------------------------------------------------ reading

    def positions(self) -> dict[int, int]:
        with self._lock:
            return dict(self._database.execute("select partition, offset from positions"))

    def fact(self, name: str) -> str | None:
        with self._lock:
            found = self._database.execute("select text from facts where name = ?", (name,))
            row = found.fetchone()
        return None if row is None else str(row[0])

    def latest(self, key: bytes) -> StoreRow | None:
        """Return the latest window of a key, or its only entry if there are no windows."""
        rows = self.of_key(key, limit=1, is_reverse=True)
        return rows[0] if rows else None

    def of_key(
        self,
        key: bytes,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        limit: int = -1,
        is_reverse: bool = False,
    ) -> list[StoreRow]:
        """Return the windows of a key that start in a range, both ends included."""
        order = "desc" if is_reverse else "asc"
        with self._lock:
            found = self._database.execute(
                "select key, start, finish, value, timestamp from entries where key = :key "
                "and (:since is null or start >= :since) and (:until is null or start <= :until) "
                f"order by start {order}, finish {order} limit :limit",
                {"key": key, "since": since_ms, "until": until_ms, "limit": limit},
            )
            return [_row(each) for each in found]

    def range(
        self, first: bytes | None, last: bytes | None, *, is_reverse: bool = False
    ) -> Iterator[StoreRow]:
        """Return the entries of a range of keys, both ends included."""
        order, sign = ("desc", "<") if is_reverse else ("asc", ">")
        after: dict[str, bytes | int | None] = _position(None, 0, 0)
        while True:
            with self._lock:
                found = self._database.execute(
                    "select key, start, finish, value, timestamp from entries "
                    "where (:first is null or key >= :first) and (:last is null or key <= :last) "
                    "and (:after_key is null "
                    f"or (key, start, finish) {sign} (:after_key, :after_start, :after_finish)) "
                    f"order by key {order}, start {order}, finish {order} limit {READ_ROWS}",
                    {"first": first, "last": last, **after},
                )
                rows = [_row(each) for each in found]
            yield from rows
            if len(rows) < READ_ROWS:
                return
            after = _position(rows[-1].key, *rows[-1].window)

    def count(self) -> int:
        with self._lock:
            return int(self._database.execute("select count(*) from entries").fetchone()[0])


def _position(key: bytes | None, start: int, finish: int) -> dict[str, bytes | int | None]:
    return {"after_key": key, "after_start": start, "after_finish": finish}


class _Transaction:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        self._database.execute("begin immediate")
        return self._database

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._database.execute("commit" if kind is None else "rollback")


def _row(found: tuple[bytes, int, int, bytes, int]) -> StoreRow:
    key, start, finish, value, timestamp_ms = found
    return StoreRow(bytes(key), (start, finish), bytes(value), timestamp_ms)
