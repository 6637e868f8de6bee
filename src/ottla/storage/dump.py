"""Contents of log segments and KRaft snapshots in readable form (`kafka-dump-log`).

Unlike every other reader in Ottla, this one also shows damaged batches and reports the damage.
Entries are dictionaries with the names, and in the order, that Apache Kafka's tool prints. See
dump_index.py for the index files of a segment.

Files are opened for reading only; a broker may be writing them at the same time.

Deviations from Kafka's tool: batches from before Kafka 0.11 (magic 0 and 1) are not read. Where
Kafka's tool fails with an exception on damage, this one continues, or reports how many bytes it
could not read.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from ottla.base.errors import UserError
from ottla.wire.records import internal
from ottla.wire.records.batch import (
    CHECKED_FROM,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    BatchHeader,
    read_header,
)
from ottla.wire.records.builder import ControlType
from ottla.wire.records.compression import NAMES
from ottla.wire.records.crc import crc32c
from ottla.wire.records.errors import BatchError
from ottla.wire.records.record import BatchRecord, iter_records

Entry: TypeAlias = dict[str, Any]
Parser: TypeAlias = Callable[[BatchRecord], tuple[Any, Any]]
"""Function that returns the printable key and value of a record; None is not printed."""

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MAX_BATCH_BYTES = 1 << 30
"""Lengths beyond this are treated as damage, so that no memory is allocated for them."""
DELETED = "<DELETE>"

_LOG_NAME = re.compile(r"(\d{20})\.log(?:\.\w+)?")
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_BOOTSTRAP_NAME = "bootstrap.checkpoint"
_CONTROL_KEY = struct.Struct(">hh")
_END_TXN = struct.Struct(">hi")
_KRAFT_TABLES = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: ("KRaftVersion", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", "VotersRecord"),
}
"""Control record types, with the name that Kafka's tool prints and the message schema."""


class DumpedBatch(NamedTuple):
    header: Entry
    records: list[Entry]
    """Records of the batch; empty unless requested."""
    problems: list[str]


class LogDump:
    """The batches of one file. `trailing_bytes` and `gaps` are set while they are iterated over."""

    def __init__(self, path: str, *, max_bytes: int | None = None) -> None:
        self.path = path
        self.trailing_bytes = 0
        """Bytes after the last complete batch; 0 if `max_bytes` was given."""
        self.gaps: list[tuple[int, int]] = []
        """Missing offsets, as (last offset before the gap, first offset after it).

        Found only if the records are iterated over.
        """
        self._max_bytes = max_bytes
        self._last_offset: int | None = None

    def title(self) -> str:
        """Return the heading that Kafka's tool prints for the file, derived from its name.

        Raises:
            UserError: The name is not that of a segment or a snapshot.
        """
        name = os.path.basename(self.path)
        if log := _LOG_NAME.fullmatch(name):
            return f"Log starting offset: {int(log[1])}"
        if name == _BOOTSTRAP_NAME:
            return "KRaft bootstrap snapshot"
        if snapshot := _SNAPSHOT_NAME.fullmatch(name):
            return f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
        raise UserError(
            f"{self.path} is not a segment: its name must be the base offset in 20 digits, "
            "followed by `.log`."
        )

    def batches(self, parser: Parser | None = None, *, deep: bool = False) -> Iterator[DumpedBatch]:
        """Yield the batches of the file.

        Args:
            parser: Formats keys and values. Without it, they are left out.
            deep: Whether to include the records of each batch.
        """
        with open_file(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            limit = size if self._max_bytes is None else min(size, self._max_bytes)
            position = 0
            for header, data in iter_batches(file, 0, limit):
                yield self._dumped(header, data, position, parser, deep=deep)
                position += header.size
        if self._max_bytes is None:
            self.trailing_bytes = size - position

    def _dumped(
        self, header: BatchHeader, data: bytes, position: int, parser: Parser | None, *, deep: bool
    ) -> DumpedBatch:
        entry = _batch_entry(header, position, crc32c(data[CHECKED_FROM:]) == header.crc)
        batch = DumpedBatch(entry, [], [])
        if not deep:
            return batch
        try:
            for record in iter_records(data, header):
                batch.records.append(_record_entry(record, header, parser))
                self._check_gap(record.offset)
        except BatchError as error:
            batch.problems.append(
                f"The records of the batch at position {position} of {self.path} cannot be read: "
                f"{error}"
            )
        return batch

    def _check_gap(self, offset: int) -> None:
        if self._last_offset is not None and offset != self._last_offset + 1:
            self.gaps.append((self._last_offset, offset))
        self._last_offset = offset


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, and raise UserError if that fails."""
    try:
        return open(path, "rb")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UserError(f"Cannot read {path}: {reason}.") from error


def iter_batches(file: BinaryIO, position: int, limit: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the complete batches between `position` and `limit`. Stop at the first invalid one."""
    while position + HEADER_SIZE <= limit:
        file.seek(position)
        head = file.read(HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return
        header = read_header(head)
        if head[MAGIC_AT] != MAGIC or not HEADER_SIZE <= header.size <= MAX_BATCH_BYTES:
            return
        if position + header.size > limit:
            return
        data = head + file.read(header.size - HEADER_SIZE)
        if len(data) < header.size:
            return
        yield header, data
        position += header.size


def _batch_entry(header: BatchHeader, position: int, is_valid: bool) -> Entry:
    compression = header.compression
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon,
        "position": position,
        TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": NAMES[compression] if compression < len(NAMES) else str(compression),
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _record_entry(record: BatchRecord, header: BatchHeader, parser: Parser | None) -> Entry:
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE
    entry: Entry = {
        "offset": record.offset,
        TIMESTAMP_TYPES[header.timestamp_type]: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [key for key, _ in record.headers],
    }
    if header.is_control:
        entry.update(_control_entry(record))
    elif parser is not None:
        key, payload = parser(record)
        entry.update({} if key is None else {"key": key})
        entry.update({} if payload is None else {"payload": payload})
    return entry


def _control_entry(record: BatchRecord) -> Entry:
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY.size:
        return {"controlType": "UNKNOWN(-1)"}
    number = _CONTROL_KEY.unpack_from(key)[1]
    if number in (ControlType.ABORT, ControlType.COMMIT) and len(value) >= _END_TXN.size:
        epoch = _END_TXN.unpack_from(value)[1]
        return {"endTxnMarker": ControlType(number).name, "coordinatorEpoch": epoch}
    if number in _KRAFT_TABLES:
        title, table = _KRAFT_TABLES[ControlType(number)]
        try:
            return {title: internal.control_record(table, value)}
        except ValueError as error:
            return {title: f"malformed: {error}"}
    return {"controlType": f"UNKNOWN({number})"}


# ------------------------------------------------------------------------------------- parsers


def group_parser(record: BatchRecord) -> tuple[Any, Any]:
    """Parse a record of `__consumer_offsets`."""
    return _parsed(internal.group_record, record)


def transaction_parser(record: BatchRecord) -> tuple[Any, Any]:
    """Parse a record of `__transaction_state`."""
    return _parsed(internal.transaction_record, record)


def share_state_parser(record: BatchRecord) -> tuple[Any, Any]:
    """Parse a record of `__share_group_state`."""
    return _parsed(internal.share_state_record, record)


def metadata_parser(record: BatchRecord) -> tuple[Any, Any]:
    """Parse a record of `__cluster_metadata`."""
    try:
        return None, internal.metadata_record(record.value or b"")
    except ValueError as error:
        return None, f"Error at {record.offset}, skipping. {error}"


def decoding_parser(
    decode_key: Callable[[bytes], Any], decode_value: Callable[[bytes], Any]
) -> Parser:
    """Return a parser that decodes keys and values with the given functions."""

    def parse(record: BatchRecord) -> tuple[Any, Any]:
        key, value = record.key, record.value
        return (
            None if key is None else decode_key(key),
            None if value is None else decode_value(value),
        )

    return parse


def _parsed(
    read: Callable[[bytes, bytes | None], internal.KeyAndValue], record: BatchRecord
) -> tuple[Any, Any]:
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key", None
    try:
        found = read(record.key, record.value)
    except internal.UnknownType as error:
        return f"Unknown record type {error.kind} at offset {record.offset}, skipping.", None
    except ValueError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return found.key, DELETED if found.value is None else found.value
