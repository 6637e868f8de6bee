"""The sparse indexes of a segment: offset to file position, and timestamp to offset.

    .index      8 bytes per entry: relative offset i32, position i32
    .timeindex  12 bytes per entry: timestamp i64, relative offset i32

Offsets are relative to the base offset of the segment. An offset entry (o, p) means that the batch
at byte p has the last offset o. A time entry (t, o) means that no batch up to the one with the last
offset o has a timestamp larger than t. Both columns of both indexes only increase.

A crash may lose or tear the end of these files. They hold nothing that the log does not, so a file
that does not match its log is discarded and rebuilt. Entries are therefore kept in memory and
written by `flush`, not one by one. The entries of a sealed segment are loaded on demand and can be
unloaded again.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from threading import Lock
from typing import NamedTuple

from ottla.base.ports import FileSystem

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


NO_TIMESTAMP = -1


class _IndexFile:
    """A file of fixed-size entries, loaded on demand and appended to in memory.

    `_columns` is replaced as a whole, so that a reader in another thread sees both columns or
    neither. Files are opened by name while holding `_naming`, so that no thread opens a file that
    is being renamed, or another one that has just taken its name.
    """

    __slots__ = (
        "_columns",
        "_count",
        "_naming",
        "_persisted",
        "_too_long",
        "base_offset",
        "fs",
        "is_rewritten",
        "path",
    )
    entry_size: int

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, new: bool = False) -> None:
        self.fs = fs
        self.path = path
        self.base_offset = base_offset
        self._naming = Lock()
        self._columns: tuple[array[int], array[int]] | None = self._decode(b"") if new else None
        self._count = self._persisted = 0 if new else self._stored_entries()
        self._too_long = False
        """Whether the file holds more than the valid entries and must be truncated."""
        self.is_rewritten = False
        """Whether entries were changed since the last `sync`.

        After a power failure, the file could then hold entries that are no longer true.
        """

    def _stored_entries(self) -> int:
        try:
            return self.fs.size(self.path) // self.entry_size
        except FileNotFoundError:
            return 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_loaded(self) -> bool:
        return self._columns is not None

    def load(self) -> tuple[array[int], array[int]]:
        columns = self._columns
        return self._read() if columns is None else columns

    def _read(self) -> tuple[array[int], array[int]]:
        with self._naming:
            if self._columns is None:
                size = self._persisted * self.entry_size
                data = self.fs.read_bytes(self.path)[:size] if size else b""
                self._columns = self._decode(data)
            return self._columns

    def _append(self, left: int, right: int) -> None:
        """Append to the right column first, because concurrent readers search the left one."""
        lefts, rights = self.load()
        rights.append(right)
        lefts.append(left)
        self._count += 1

    def _last_entry(self) -> tuple[int, int] | None:
        lefts, rights = self.load()
        count = len(lefts)
        return (lefts[count - 1], rights[count - 1]) if count else None

    def _keep(self, count: int) -> None:
        lefts, rights = self.load()
        self._columns = lefts[:count], rights[:count]
        self._count = count
        if count < self._persisted:
            self._persisted = count
            self._too_long = self.is_rewritten = True

    def reset(self) -> None:
        """Discard all entries, including those in the file."""
        self._columns = self._decode(b"")
        self._count = self._persisted = 0
        self._too_long = self.is_rewritten = self.fs.exists(self.path)

    def flush(self) -> None:
        """Write the entries that are only in memory. Call `sync` to make them durable."""
        with self._naming:
            self._write()

    def _write(self) -> None:
        is_written = self._persisted == self._count and not self._too_long
        if is_written and self.fs.exists(self.path):
            return
        file = self.fs.open(self.path, create=True)
        try:
            start = self._persisted * self.entry_size
            file.truncate(start)
            if self._count > self._persisted:
                file.write(start, [self._encode(self._persisted)])
        finally:
            file.close()
        self._persisted = self._count
        self._too_long = False

    def sync(self) -> None:
        """Make flushed entries durable.

        If the sync fails, the contents of the file are unknown and the next flush rewrites it.
        """
        with self._naming:
            if not self.fs.exists(self.path):
                self.is_rewritten = False
                return
            was_rewritten, self.is_rewritten = self.is_rewritten, False
            try:
                file = self.fs.open(self.path)
                try:
                    file.sync()
                finally:
                    file.close()
            except OSError:
                self.is_rewritten = was_rewritten
                if self._columns is not None:
                    self._persisted = 0
                raise

    def unload(self) -> None:
        """Drop the entries from memory if the file has all of them."""
        if self._persisted == self._count and not self._too_long:
            self._columns = None

    def remove(self) -> None:
        self.fs.remove(self.path)

    def rename(self, path: str) -> None:
        with self._naming:
            if self.fs.exists(self.path):
                self.fs.rename(self.path, path)
            self.path = path

    def _has_whole_entries(self) -> bool:
        try:
            return self.fs.size(self.path) % self.entry_size == 0
        except FileNotFoundError:
            return False

    def _last_stored(self) -> tuple[int, int] | None:
        """Return the last entry without loading the others."""
        if self._columns is not None or not self._persisted:
            return self._last_entry()
        with self._naming:
            file = self.fs.open(self.path)
            try:
                start = (self._persisted - 1) * self.entry_size
                lefts, rights = self._decode(file.read(start, self.entry_size))
            finally:
                file.close()
        return lefts[0], rights[0]

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        raise AssertionError("an index knows its format")

    def _encode(self, start: int) -> bytes:
        raise AssertionError("an index knows its format")


class OffsetIndex(_IndexFile):
    """The offset index. Its columns are relative offsets and positions."""

    __slots__ = ()
    entry_size = OFFSET_ENTRY_SIZE

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or before `offset`, or the beginning of the segment."""
        offsets, positions = self.load()
        slot = bisect_right(offsets, offset - self.base_offset) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(offsets[slot] + self.base_offset, positions[slot])

    def lookup_position(self, position: int) -> OffsetPosition:
        """Return the last entry at or before `position`, or the beginning of the segment."""
        offsets, positions = self.load()
        slot = bisect_right(positions, position, hi=len(offsets)) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(offsets[slot] + self.base_offset, positions[slot])

    def last(self) -> OffsetPosition:
        entry = self._last_entry()
        if entry is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(entry[0] + self.base_offset, entry[1])

    def truncate_to(self, offset: int) -> None:
        """Keep only entries with an offset below `offset`."""
        self._keep(bisect_right(self.load()[0], offset - self.base_offset - 1))

    def is_sane(self, log_size: int) -> bool:
        """Return False if the stored file cannot belong to a log of this size."""
        if not self._has_whole_entries():
            return False
        last = self._last_stored()
        return last is None or (last[0] >= 0 and 0 <= last[1] < max(log_size, 1))

    def is_rising(self) -> bool:
        """Return whether all entries increase strictly. A hole left by a power failure does not."""
        offsets, positions = self.load()
        has_hole = len(positions) > 0 and not positions[0]
        return not has_hole and _rises(offsets) and _rises(positions)

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        raw = _from_big_endian(data)
        return raw[0::2], raw[1::2]

    def _encode(self, start: int) -> bytes:
        offsets, positions = self.load()
        raw = array("i", bytes(self.entry_size * (len(offsets) - start)))
        raw[0::2] = offsets[start:]
        raw[1::2] = positions[start:]
        return _to_big_endian(raw)


class TimeIndex(_IndexFile):
    """The time index. Its columns are timestamps and relative offsets."""

    __slots__ = ()
    entry_size = TIME_ENTRY_SIZE

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless its timestamp is not larger than that of the last one."""
        last = self.last()
        if timestamp > last.timestamp and offset >= last.offset:
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry at or before `timestamp`, or the beginning of the segment."""
        timestamps, offsets = self.load()
        slot = bisect_right(timestamps, timestamp) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(timestamps[slot], offsets[slot] + self.base_offset)

    def last(self) -> TimestampOffset:
        entry = self._last_entry()
        if entry is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(entry[0], entry[1] + self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Keep only entries with an offset below `offset`."""
        self._keep(bisect_right(self.load()[1], offset - self.base_offset - 1))

    def is_sane(self) -> bool:
        if not self._has_whole_entries():
            return False
        last = self._last_stored()
        return last is None or last[1] >= 0

    def is_rising(self) -> bool:
        """Return whether all entries are in order. A hole left by a power failure is not."""
        timestamps, offsets = self.load()
        has_hole = len(timestamps) > 0 and not (timestamps[0] or offsets[0])
        return not has_hole and _rises(timestamps) and list(offsets) == sorted(offsets)

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        raw = _from_big_endian(data)
        halves = zip(raw[0::3], raw[1::3], strict=True)
        return array("q", (high << 32 | low & 0xFFFFFFFF for high, low in halves)), raw[2::3]

    def _encode(self, start: int) -> bytes:
        timestamps, offsets = self.load()
        raw = array("i", bytes(self.entry_size * (len(offsets) - start)))
        raw[0::3] = array("i", (timestamp >> 32 for timestamp in timestamps[start:]))
        low = array("I", (timestamp & 0xFFFFFFFF for timestamp in timestamps[start:]))
        raw[1::3] = array("i", low.tobytes())
        raw[2::3] = offsets[start:]
        return _to_big_endian(raw)


def _rises(column: array[int]) -> bool:
    """Return whether a column increases strictly.

    The comparison runs in C, because an index may have 200,000 entries.
    """
    values = list(column)
    return values == sorted(set(values))


def _from_big_endian(data: bytes) -> array[int]:
    raw = array("i")
    raw.frombytes(data)
    if sys.byteorder == "little":
        raw.byteswap()
    return raw


def _to_big_endian(raw: array[int]) -> bytes:
    if sys.byteorder == "little":
        raw.byteswap()
    return raw.tobytes()
