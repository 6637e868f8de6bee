"""Decoder for PostgreSQL's logical replication protocol.

The stream consists of two kinds of CopyData:

    w  start LSN, end LSN, time (int64 each), a message of the plugin
    k  current end of WAL, time, whether a reply is requested

The classes below are the messages of `pgoutput`, version 1; the frequent ones are tuples, which are
fastest to create. A transaction arrives as a whole after its commit: Begin, its changes in order,
Commit. A Relation precedes the first change of a table, and is repeated when the table changes.
Values are in PostgreSQL's text format; None is null, and UNCHANGED a large value (TOAST) that an
update did not change. The functions do no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

POSTGRES_EPOCH_US = 946_684_800_000_000
"""PostgreSQL's epoch, 2000-01-01, in microseconds since 1970."""


class Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Value = bytes | None | Unchanged
Row = list[Value]


class ProtocolError(Exception):
    """Bytes that are not a valid message. The text is one sentence."""


class Keepalive(NamedTuple):
    wal_end: int
    wants_reply: bool


class WalData(NamedTuple):
    start: int
    message: Message


@dataclass(frozen=True, slots=True)
class Begin:
    commit_lsn: int
    commit_time_us: int
    """Time of the commit, in microseconds since 1970."""
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int
    """LSN after the transaction, from which to resume."""
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int
    is_identity: bool
    """Whether the column is part of the replica identity."""


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    schema: str
    name: str
    identity: str
    """Replica identity: d (primary key), n (nothing), f (all columns), i (an index)."""
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    oid: int
    new: Row


class Update(NamedTuple):
    oid: int
    old: Row | None
    """All columns with identity f; otherwise the key, if it has changed."""
    new: Row


class Delete(NamedTuple):
    oid: int
    old: Row


class Truncate(NamedTuple):
    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Message that does not change a table: types, origins, additions of later versions."""

    kind: str


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other
Change = Insert | Update | Delete | Truncate

_WAL_DATA = struct.Struct(">QQQ")
_KEEPALIVE = struct.Struct(">QQB")
_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_INT32 = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_INT16 = struct.Struct(">H")
_COLUMN_TAIL = struct.Struct(">Ii")
_STATUS = struct.Struct(">cQQQqB")


def decode(data: bytes) -> WalData | Keepalive:
    try:
        if data[:1] == b"w":
            start = _WAL_DATA.unpack_from(data, 1)[0]
            return WalData(start, decode_message(data, 25))
        if data[:1] == b"k":
            wal_end, _, wants_reply = _KEEPALIVE.unpack_from(data, 1)
            return Keepalive(wal_end, bool(wants_reply))
    except (struct.error, IndexError, ValueError):
        raise ProtocolError(f"PostgreSQL sent a malformed message: {data[:40]!r}") from None
    raise ProtocolError(f"PostgreSQL sent a message of an unknown type: {data[:40]!r}")


def decode_message(data: bytes, at: int = 0) -> Message:
    kind = chr(data[at])
    decoder = _DECODERS.get(kind)
    return decoder(data, at + 1) if decoder is not None else Other(kind)


def encode_status(flushed: int, time_us: int, *, wants_reply: bool = False) -> bytes:
    """Encode a status update: PostgreSQL may discard WAL before `flushed`."""
    return _STATUS.pack(b"r", flushed, flushed, flushed, time_us - POSTGRES_EPOCH_US, wants_reply)


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is not an LSN such as 16/B374D848")
    return int(high, 16) << 32 | int(low, 16)


# -------------------------------------------------------------------------------------- messages


def _begin(data: bytes, at: int) -> Begin:
    lsn, time, xid = _BEGIN.unpack_from(data, at)
    return Begin(lsn, time + POSTGRES_EPOCH_US, xid)


def _commit(data: bytes, at: int) -> Commit:
    _, lsn, end, time = _COMMIT.unpack_from(data, at)
    return Commit(lsn, end, time + POSTGRES_EPOCH_US)


def _relation(data: bytes, at: int) -> Relation:
    (oid,) = _INT32.unpack_from(data, at)
    schema, at = _text(data, at + 4)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _INT16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_identity = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN_TAIL.unpack_from(data, at)
        columns.append(RelationColumn(column, type_oid, modifier, is_identity))
        at += 8
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _insert(data: bytes, at: int) -> Insert:
    (oid,) = _INT32.unpack_from(data, at)
    return Insert(oid, _row(data, at + 5)[0])


def _update(data: bytes, at: int) -> Update:
    (oid,) = _INT32.unpack_from(data, at)
    at += 4
    old = None
    if data[at : at + 1] in (b"K", b"O"):
        old, at = _row(data, at + 1)
    return Update(oid, old, _row(data, at + 1)[0])


def _delete(data: bytes, at: int) -> Delete:
    (oid,) = _INT32.unpack_from(data, at)
    return Delete(oid, _row(data, at + 5)[0])


def _truncate(data: bytes, at: int) -> Truncate:
    (count,) = _INT32.unpack_from(data, at)
    return Truncate(struct.unpack_from(f">{count}I", data, at + 5))


def _row(data: bytes, at: int) -> tuple[Row, int]:
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    values: Row = []
    add = values.append
    length_of = _LENGTH.unpack_from
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (length,) = length_of(data, at)
            at += 4
            end = at + length
            if length < 0 or end > len(data):
                raise ValueError
            add(data[at:end])
            at = end
        elif kind == 0x6E:  # n
            add(None)
        elif kind == 0x75:  # u
            add(UNCHANGED)
        else:
            raise ValueError
    return values, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


_DECODERS: dict[str, Callable[[bytes, int], Message]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
}
