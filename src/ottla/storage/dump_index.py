"""Contents of the files that accompany a log segment, checked against the log (`kafka-dump-log`).

The formats are described in index.py, txn_index.py and producer_state.py. A broker that was killed
may leave an index padded with zeros after its last entry. Any all-zero entry except the first one
therefore marks the end. Complaints list the entries that do not match the log.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from ottla.base.errors import UserError
from ottla.storage.dump import Entry, iter_batches, open_file
from ottla.storage.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    OffsetPosition,
    TimestampOffset,
)
from ottla.storage.producer_state import NO_TXN, MalformedSnapshot, ProducerState
from ottla.wire.records.batch import BatchHeader
from ottla.wire.records.errors import BatchError
from ottla.wire.records.record import iter_records

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_NAME = re.compile(r"(\d{20})\.\w+(?:\.\w+)?")


@dataclass(slots=True)
class IndexDump:
    """The entries of an index, and its disagreements with the log."""

    entries: list[Entry] = field(default_factory=list)
    mismatches: list[tuple[str, list[str]]] = field(default_factory=list)
    """Groups of mismatches: a title and one line per mismatch."""


class CorruptIndex(UserError):
    """An index that a broker would rebuild at startup."""


# --------------------------------------------------------------------------------- offset index


def check_offset_index(path: str) -> int:
    """Run the sanity check that a broker runs at startup, and return the number of entries.

    Raises:
        CorruptIndex: The file cannot be a valid index.
    """
    base_offset, data = _base_offset(path), _read(path)
    if len(data) % OFFSET_ENTRY_SIZE:
        raise CorruptIndex(
            f"Index file {path} is corrupt, found {len(data)} bytes which is neither positive nor "
            f"a multiple of {OFFSET_ENTRY_SIZE}."
        )
    entries = _offset_entries(data, base_offset)
    if entries and entries[-1].offset < base_offset:
        raise CorruptIndex(
            f"Index file {path} is corrupt: its last offset is {entries[-1].offset} which is less "
            f"than the base offset {base_offset}."
        )
    return len(entries)


def dump_offset_index(path: str) -> IndexDump:
    """Read an offset index and compare each entry with the log."""
    dump = IndexDump()
    mismatches = []
    with _open_log_of(path) as log:
        size = os.fstat(log.fileno()).st_size
        for offset, position in _offset_entries(_read(path), _base_offset(path)):
            dump.entries.append({"offset": offset, "position": position})
            batch = next(iter_batches(log, position, size), None)
            found = -1 if batch is None else batch[0].last_offset
            if found != offset:
                mismatches.append(f"Index offset: {offset}, log offset: {found}")
    if mismatches:
        dump.mismatches.append((f"Mismatches in :{os.path.abspath(path)}", mismatches))
    return dump


def _offset_entries(data: bytes, base_offset: int) -> list[OffsetPosition]:
    entries: list[OffsetPosition] = []
    whole = len(data) - len(data) % OFFSET_ENTRY_SIZE
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[:whole]):
        if not relative and (entries or not position):
            break
        entries.append(OffsetPosition(base_offset + relative, position))
    return entries


# ----------------------------------------------------------------------------------- time index


def check_time_index(path: str) -> int:
    """Run the sanity check that a broker runs at startup, and return the number of entries.

    Raises:
        CorruptIndex: The file cannot be a valid index.
    """
    base_offset, data = _base_offset(path), _read(path)
    if len(data) % TIME_ENTRY_SIZE:
        raise CorruptIndex(
            f"Time index file {path} is corrupt, found {len(data)} bytes which is neither positive "
            f"nor a multiple of {TIME_ENTRY_SIZE}."
        )
    entries = _time_entries(data, base_offset)
    if entries and entries[-1].timestamp < entries[0].timestamp:
        raise CorruptIndex(
            f"Time index file {path} is corrupt: its last timestamp is {entries[-1].timestamp} "
            f"which is less than the first, {entries[0].timestamp}."
        )
    if entries and entries[-1].offset < base_offset:
        raise CorruptIndex(
            f"Time index file {path} is corrupt: its last offset is {entries[-1].offset} which is "
            f"less than the base offset {base_offset}."
        )
    return len(entries)


def dump_time_index(path: str) -> IndexDump:
    """Read a time index and compare each entry with the log."""
    dump = IndexDump()
    mismatches, disorder, missing = [], [], []
    previous = NO_TIMESTAMP
    with _open_log_of(path) as log:
        find = _Finder(log, _offsets_beside(path))
        for timestamp, offset in _time_entries(_read(path), _base_offset(path)):
            dump.entries.append({"timestamp": timestamp, "offset": offset})
            last_offset, newest = find.batch_of(offset)
            if last_offset != offset:
                missing.append(f"Indexed offset: {offset}, found log offset: {last_offset}")
            else:
                if newest != timestamp:
                    mismatches.append(f"Index timestamp: {timestamp}, log timestamp: {newest}")
                if previous >= timestamp:
                    disorder.append(
                        f"Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
                    )
            previous = timestamp
    full_path = os.path.abspath(path)
    for title, lines in (
        (f"Found timestamp mismatch in :{full_path}", mismatches),
        (f"Found out of order timestamp in :{full_path}", disorder),
        (f"The following indexed offsets are not found in the log {full_path}.", missing),
    ):
        if lines:
            dump.mismatches.append((title, lines))
    return dump


class _Finder:
    """Lookup of the batches of a log with the help of its offset index."""

    def __init__(self, log: BinaryIO, index: list[OffsetPosition]) -> None:
        self._log = log
        self._size = os.fstat(log.fileno()).st_size
        self._offsets = [entry.offset for entry in index]
        self._positions = [entry.position for entry in index]

    def batch_of(self, offset: int) -> tuple[int, int]:
        """Return the last offset and the largest record timestamp of the batch with `offset`.

        Returns (-1, -1) if the log has no such batch.
        """
        at = bisect_right(self._offsets, offset) - 1
        position = self._positions[at] if at >= 0 else 0
        for header, data in iter_batches(self._log, position, self._size):
            if header.last_offset >= offset:
                return header.last_offset, _newest(header, data)
        return -1, NO_TIMESTAMP


def _newest(header: BatchHeader, data: bytes) -> int:
    try:
        return max((record.timestamp for record in iter_records(data, header)), default=-1)
    except BatchError:
        return NO_TIMESTAMP


def _time_entries(data: bytes, base_offset: int) -> list[TimestampOffset]:
    entries: list[TimestampOffset] = []
    whole = len(data) - len(data) % TIME_ENTRY_SIZE
    for timestamp, relative in _TIME_ENTRY.iter_unpack(data[:whole]):
        if not relative and (entries or not timestamp):
            break
        entries.append(TimestampOffset(timestamp, base_offset + relative))
    return entries


# ------------------------------------------------------------------- transactions and producers


def dump_txn_index(path: str) -> Iterator[Entry]:
    """Yield the aborted transactions in a transaction index."""
    data = _read(path)
    whole = len(data) - len(data) % _TXN_ENTRY.size
    for version, producer_id, first, last, last_stable in _TXN_ENTRY.iter_unpack(data[:whole]):
        yield {
            "version": version,
            "producerId": producer_id,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": last_stable,
        }
    if whole != len(data):
        raise UserError(f"{path} ends in the middle of an entry.")


def dump_snapshot(path: str) -> Iterator[Entry]:
    """Yield the producers in a producer snapshot."""
    state = ProducerState()
    try:
        state.restore(_read(path))
    except MalformedSnapshot as error:
        raise UserError(f"Snapshot {path} is corrupt: {error}.") from None
    for producer in state.producers.values():
        open_txn = producer.txn_first_offset
        entry: Entry = {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": None if open_txn == NO_TXN else open_txn,
            "lastTimestamp": producer.last_timestamp,
        }
        for batch in producer.batches:
            entry["firstSequence"] = batch.first_sequence
            entry["lastSequence"] = batch.last_sequence
            entry["lastOffset"] = batch.last_offset
            entry["offsetDelta"] = batch.offset_delta
            entry["timestamp"] = batch.timestamp
        yield entry


# ---------------------------------------------------------------------------------------- files


def _read(path: str) -> bytes:
    with open_file(path) as file:
        return file.read()


def _base_offset(path: str) -> int:
    name = _NAME.fullmatch(os.path.basename(path))
    if name is None:
        raise UserError(
            f"{path} is not named after its segment: the name must start with the base "
            "offset in 20 digits."
        )
    return int(name[1])


def _beside(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), f"{_base_offset(path):020d}.{suffix}")


def _open_log_of(path: str) -> BinaryIO:
    return open_file(_beside(path, "log"))


def _offsets_beside(path: str) -> list[OffsetPosition]:
    """Return the entries of the offset index, or none if the file does not exist.

    The log is then scanned from the beginning.
    """
    index = _beside(path, "index")
    return _offset_entries(_read(index), _base_offset(path)) if os.path.exists(index) else []
