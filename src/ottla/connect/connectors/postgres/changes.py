"""Conversion of replication messages to records and source offsets.

A transaction may be larger than the batch that a poll returns, so a position may lie within one:

    {"lsn": end of the last complete transaction,
     "commit_lsn": current transaction, "changes": number of its changes that were returned}

Decoding the same WAL again yields the same messages, with tables, types and publications as of that
time. A task that restarts at `lsn` and skips the first `changes` of that transaction therefore
resumes exactly where it was. The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla.connect.connectors.postgres.envelope import Envelopes, Where, with_order
from ottla.connect.connectors.postgres.pgoutput import (
    Begin,
    Change,
    Commit,
    Delete,
    Insert,
    Keepalive,
    ProtocolError,
    Relation,
    Truncate,
    Update,
    WalData,
)
from ottla.connect.connectors.postgres.tables import TableSchema
from ottla.connect.data import ConnectRecord, DataError

_CHANGES = (Insert, Update, Delete, Truncate)
ShapeOf = Callable[[Relation], TableSchema | None]
"""Function that returns the shape of a table, or None if the table is not captured."""


@dataclass(frozen=True, slots=True)
class Position:
    lsn: int
    commit_lsn: int = 0
    changes: int = 0

    def to_json(self) -> dict[str, Any]:
        document = {"lsn": self.lsn}
        if self.commit_lsn:
            document |= {"commit_lsn": self.commit_lsn, "changes": self.changes}
        return document

    @classmethod
    def of(cls, document: dict[str, Any]) -> Position:
        return cls(
            int(document["lsn"]),
            int(document.get("commit_lsn", 0)),
            int(document.get("changes", 0)),
        )


class ChangeDecoder:
    """Decoder of the change stream of one connection."""

    def __init__(self, envelopes: Envelopes, shape_of: ShapeOf, start: Position) -> None:
        self.position = start
        """Position after all messages that were fed."""
        self._envelopes = envelopes
        self._shape_of = shape_of
        self._shapes: dict[int, TableSchema | None] = {}
        self._resumed = start
        self._where: Where | None = None
        self._seen = 0
        """Number of changes seen in the current transaction."""
        self._counts: dict[str, int] = {}

    @property
    def is_between(self) -> bool:
        """Whether the stream is between transactions."""
        return self._where is None

    def feed(self, data: WalData | Keepalive, now_ms: int) -> Sequence[ConnectRecord]:
        if isinstance(data, Keepalive):
            # The server has sent everything that was committed before the keepalive, except the
            # rest of a transaction that is being resumed.
            if self.is_between and not self.position.commit_lsn:
                self.position = Position(max(data.wal_end, self.position.lsn))
            return ()
        message = data.message
        if isinstance(message, _CHANGES):
            return self._change(message, data.start, now_ms)
        if isinstance(message, Begin):
            return self._begin(message)
        if isinstance(message, Commit):
            return self._commit(message)
        if isinstance(message, Relation):
            self._shapes[message.oid] = self._shape_of(message)
        return ()

    def _begin(self, message: Begin) -> Sequence[ConnectRecord]:
        self._where = Where(
            message.commit_lsn, self.position.lsn, message.xid, message.commit_time_us // 1000
        )
        self._seen = 0
        self._counts = {}
        if self._is_repeated(0):
            return ()
        self.position = replace(self.position, commit_lsn=message.commit_lsn, changes=0)
        return [self._envelopes.begun(self._where)] if self._envelopes.marks_transactions else ()

    def _commit(self, message: Commit) -> Sequence[ConnectRecord]:
        where = self._where
        self._where = None
        self.position = Position(message.end_lsn)
        if where is not None and self._envelopes.marks_transactions:
            return [self._envelopes.ended(where, self._counts)]
        return ()

    def _is_repeated(self, number: int) -> bool:
        """Return whether this change of the current transaction was returned before a restart."""
        assert self._where is not None
        resumed = self._resumed
        return self._where.commit_lsn == resumed.commit_lsn and number <= resumed.changes

    def _change(self, message: Change, lsn: int, now_ms: int) -> Sequence[ConnectRecord]:
        where = self._where
        if where is None:
            raise ProtocolError("PostgreSQL sent a change outside a transaction")
        self._seen += 1
        is_repeated = self._is_repeated(self._seen)
        if not is_repeated:
            self.position = Position(self.position.lsn, where.commit_lsn, self._seen)
        if isinstance(message, Truncate):
            return [
                record
                for oid in message.oids
                for record in self._records(oid, message, where, lsn, now_ms, is_repeated)
            ]
        return self._records(message.oid, message, where, lsn, now_ms, is_repeated)

    def _records(
        self,
        oid: int,
        message: Change,
        where: Where,
        lsn: int,
        now_ms: int,
        is_repeated: bool,
    ) -> Sequence[ConnectRecord]:
        try:
            shape = self._shapes[oid]
        except KeyError:
            raise ProtocolError(
                "PostgreSQL sent a change of a table that it did not describe"
            ) from None
        marks = self._envelopes.marks_transactions
        if shape is None or (is_repeated and not marks):
            return ()
        made = self._made(shape, message, where, lsn, now_ms)
        if marks:
            made = [self._ordered(shape, record, where) for record in made]
        return () if is_repeated else made

    def _ordered(self, shape: TableSchema, record: ConnectRecord, where: Where) -> ConnectRecord:
        if record.value is None:
            return record
        count = self._counts[shape.full_name] = self._counts.get(shape.full_name, 0) + 1
        return with_order(record, where, sum(self._counts.values()), count)

    def _made(
        self,
        shape: TableSchema,
        message: Change,
        where: Where,
        lsn: int,
        now_ms: int,
    ) -> list[ConnectRecord]:
        envelopes = self._envelopes
        try:
            if isinstance(message, Insert):
                return envelopes.inserted(shape, message, where, lsn, now_ms)
            if isinstance(message, Update):
                return envelopes.updated(shape, message, where, lsn, now_ms)
            if isinstance(message, Delete):
                return envelopes.deleted(shape, message, where, lsn, now_ms)
            return envelopes.truncated(shape, where, lsn, now_ms)
        except DataError as error:
            return [envelopes.failed(shape, error)]
