"""The transaction index of a segment (`.txnindex`): its aborted transactions.

Fetch responses list them, so that read_committed consumers can skip their records.

    34 bytes per entry: version i16 (0), producerId i64, firstOffset i64, lastOffset i64,
    lastStableOffset i64

Entries are ordered by the offsets of their abort markers. There are few of them, so they are kept
in memory. Each entry is also written to the file immediately, because recovery can rebuild only the
entries after its starting point. For the same reason the file is synced whenever the log is.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

from ottla.base.ports import FileSystem
from ottla.storage.producer_state import CompletedTxn, ProducerState

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_last_offset = attrgetter("last_offset")


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """Last stable offset of the partition immediately after this transaction ended."""


class TransactionIndex:
    """The aborted transactions of one segment, in memory and on disk."""

    __slots__ = (
        "_entries",
        "_fs",
        "_loading",
        "_naming",
        "_persisted",
        "_too_long",
        "is_unsynced",
        "path",
    )

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path
        self._naming = Lock()
        self._loading = Lock()
        self._entries: list[AbortedTxn] | None = None
        self._persisted = 0
        self._too_long = False
        """Whether the file holds more than the valid entries and must be truncated."""
        self.is_unsynced = False

    def append(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction. Never raises, because its marker is already in the log.

        If the disk is full, the next flush writes the entry. That flush does raise, before the log
        counts as safe.
        """
        self.entries().append(entry)
        self.is_unsynced = True
        try:
            self.flush()
        except OSError:
            pass

    @property
    def is_loaded(self) -> bool:
        """Whether `entries` can be returned without reading the disk."""
        return self._entries is not None

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            with self._loading:  # a concurrent reader must not overwrite entries added since
                if self._entries is None:
                    found = list(self._read())
                    self._persisted = len(found)
                    self._entries = found
        return self._entries

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Return the transactions that overlap [first_offset, end_offset), and whether that is all.

        The second value is False if later segments may hold more of them.
        """
        found, entries = [], self.entries()
        for entry in entries[bisect_left(entries, first_offset, key=_last_offset) :]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def is_sane(self, base_offset: int) -> bool:
        """Return False if a crash has torn the file or left a hole in it."""
        if not self._fs.exists(self.path):
            return True
        if self._fs.size(self.path) != len(self.entries()) * _ENTRY.size:
            return False
        marker = base_offset - 1
        for entry in self.entries():
            if not entry.first_offset < entry.last_offset > marker:
                return False
            marker = entry.last_offset
        return True

    def truncate_to(self, offset: int) -> None:
        """Keep only transactions whose marker lies before `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()):
            self._entries = kept
            self._persisted = min(self._persisted, len(kept))
            self._too_long = self.is_unsynced = True

    def reset(self) -> None:
        """Discard all entries, including those in the file."""
        self._entries = []
        self._persisted = 0
        self._too_long = self.is_unsynced = self._fs.exists(self.path)

    def flush(self) -> None:
        """Write the entries that are only in memory. No file is created for an empty index."""
        entries = self.entries()
        with self._naming:
            count = len(entries)
            if self._persisted != count or self._too_long:
                self._write(entries[:count])
                self._persisted, self._too_long = count, False

    def _write(self, entries: list[AbortedTxn]) -> None:
        start = self._persisted * _ENTRY.size
        file = self._fs.open(self.path, create=True)
        try:
            file.truncate(start)
            added = b"".join(_ENTRY.pack(_VERSION, *e) for e in entries[self._persisted :])
            file.write(start, [added])
        finally:
            file.close()

    def sync(self) -> None:
        """Make flushed entries durable.

        If the sync fails, the contents of the file are unknown and the next flush rewrites it.
        """
        with self._naming:
            if not self.is_unsynced:
                return
            self.is_unsynced = False
            try:
                if self._fs.exists(self.path):
                    file = self._fs.open(self.path)
                    try:
                        file.sync()
                    finally:
                        file.close()
            except OSError:
                self._persisted, self._too_long, self.is_unsynced = 0, True, True
                raise

    def remove(self) -> None:
        self._fs.remove(self.path)

    def rename(self, path: str) -> None:
        with self._naming:
            if self._fs.exists(self.path):
                self._fs.rename(self.path, path)
            self.path = path

    def _read(self) -> Iterable[AbortedTxn]:
        try:
            data = self._fs.read_bytes(self.path)
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % _ENTRY.size
        for version, *fields in _ENTRY.iter_unpack(data[:whole]):
            if version == _VERSION:
                yield AbortedTxn(*fields)


def aborted_txn(completed: CompletedTxn, producers: ProducerState) -> AbortedTxn:
    """Return the index entry for a transaction that has just been aborted."""
    unstable = producers.first_unstable_offset
    stable = completed.last_offset + 1 if unstable is None else unstable
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
