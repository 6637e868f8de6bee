"""Aborted transactions of a segment (`.txnindex`), so that read_committed consumers can skip them.

    34 bytes an entry: version i16 (0), producerId i64, firstOffset i64, lastOffset i64,
    lastStableOffset i64

Entries are in the order of their abort markers. There are few; they are kept in memory and written
at once, since recovery can only find again those behind its starting point."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.ports import FileSystem

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """Of the partition, once this transaction was over: nothing below it is undecided."""


class TransactionIndex:
    __slots__ = ("_entries", "_fs", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path
        self._entries: list[AbortedTxn] | None = None

    def append(self, entry: AbortedTxn) -> None:
        entries = self.entries()
        file = self._fs.open(self.path, create=True)
        try:
            file.write(len(entries) * _ENTRY.size, [_ENTRY.pack(_VERSION, *entry)])
        finally:
            file.close()
        entries.append(entry)

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = list(self._read())
        return self._entries

    def overlapping(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """(those that touch [first_offset, end_offset), whether no later segment has more)."""
        found = []
        for entry in self.entries():
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def is_sane(self, base_offset: int) -> bool:
        if not self._fs.exists(self.path):
            return True
        if self._fs.size(self.path) % _ENTRY.size:
            return False
        return all(entry.last_offset >= base_offset for entry in self.entries())

    def truncate_to(self, offset: int) -> None:
        """Keep transactions that were over before `offset`."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) == len(entries):
            return
        file = self._fs.open(self.path, create=True)
        try:
            file.truncate(len(kept) * _ENTRY.size)
        finally:
            file.close()
        self._entries = kept

    def reset(self) -> None:
        self._fs.remove(self.path)
        self._entries = []

    def remove(self) -> None:
        self._fs.remove(self.path)

    def rename(self, path: str) -> None:
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
