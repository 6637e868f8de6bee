"""Aborted transactions of a segment (`.txnindex`), so that read_committed consumers can skip them.

    34 bytes an entry: version i16 (0), producerId i64, firstOffset i64, lastOffset i64,
    lastStableOffset i64

Entries are in the order of their abort markers. There are few; they are kept in memory and written
at once, since recovery can only find again those behind its starting point. For the same reason
the file is synced whenever the log is."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

from ottla.base.ports import FileSystem

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_last_offset = attrgetter("last_offset")


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """Of the partition, once this transaction was over: nothing below it is undecided."""


class TransactionIndex:
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
        """The file holds more than the entries that count."""
        self.is_unsynced = False

    def append(self, entry: AbortedTxn) -> None:
        """Never fails: the marker is in the log already. What there is no room for on disk is
        written by the next flush, which does fail, before the log counts as safe."""
        self.entries().append(entry)
        self.is_unsynced = True
        try:
            self.flush()
        except OSError:
            pass

    @property
    def is_loaded(self) -> bool:
        """Whether `entries` need not be read from disk."""
        return self._entries is not None

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            with self._loading:  # readers in other threads must not put back what they found
                if self._entries is None:
                    found = list(self._read())
                    self._persisted = len(found)
                    self._entries = found
        return self._entries

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """(those that touch [first_offset, end_offset), whether no later segment has more)."""
        found, entries = [], self.entries()
        for entry in entries[bisect_left(entries, first_offset, key=_last_offset) :]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def is_sane(self, base_offset: int) -> bool:
        """False if a crash has torn the file or left a hole in it."""
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
        """Keep transactions that were over before `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()):
            self._entries = kept
            self._persisted = min(self._persisted, len(kept))
            self._too_long = self.is_unsynced = True

    def reset(self) -> None:
        """Begin again without entries, whatever the file holds."""
        self._entries = []
        self._persisted = 0
        self._too_long = self.is_unsynced = self._fs.exists(self.path)

    def flush(self) -> None:
        """Write what is only in memory. Without any entry there need be no file."""
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
        """Make what was flushed survive a power cut. If that fails, nobody knows what the file
        holds: the next flush writes all of it."""
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
