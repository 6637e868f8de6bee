"""Initial snapshot: the rows that exist before the first change, table by table.

PostgreSQL exports a snapshot when the slot is created. Together, that snapshot and the stream cover
everything without gap or overlap. The snapshot ends with its connection. Tables are read in key
order, and the source offset records the progress:

    {"lsn": of the slot, "snapshot": {"pending": ["public.a", "public.b"], "after": ["42"]}}

An interrupted snapshot continues after the last key, with the current state of the database. Rows
that changed in between are read in their new state, and the stream, which begins where the slot was
created, repeats those changes: a consumer that applies the records in order ends with the same
table. A table without a key cannot be continued: it starts over with a truncate (op `t`), followed
by all its rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.connect.connectors.postgres.connection import Database, RawConnection, literal, quoted
from ottla.connect.connectors.postgres.pgoutput import Relation, Row

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_MEANINGS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class Progress:
    """Remaining part of a snapshot."""

    pending: tuple[str, ...] = ()
    """Tables to read; the first one is in progress."""
    after: tuple[str, ...] = ()
    """Key of the last row that was returned from the first table."""
    is_begun: bool = False
    """Whether rows of the first table were returned."""
    is_repeat: bool = False
    """Whether topics have rows of an earlier snapshot; each table then begins with a truncate."""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"pending": list(self.pending)}
        if self.after:
            document["after"] = list(self.after)
        if self.is_begun:
            document["begun"] = True
        if self.is_repeat:
            document["anew"] = True
        return document

    @classmethod
    def of(cls, document: dict[str, Any] | None) -> Progress:
        document = document or {}
        return cls(
            tuple(document.get("pending", ())),
            tuple(document.get("after", ())),
            bool(document.get("begun", False)),
            bool(document.get("anew", False)),
        )

    def next_table(self) -> Progress:
        return Progress(self.pending[1:], is_repeat=self.is_repeat)


def select(relation: Relation, key: Sequence[str], after: Sequence[str]) -> str:
    """Return a COPY statement for all rows, or those after a key, in key order."""
    columns = ", ".join(quoted(each.name) for each in relation.columns)
    statement = f"SELECT {columns} FROM {quoted(relation.schema)}.{quoted(relation.name)}"
    if key:
        keys = ", ".join(quoted(each) for each in key)
        if after:
            values = ", ".join(literal(each) for each in after)
            statement += f" WHERE ({keys}) > ({values})"
        statement += f" ORDER BY {keys}"
    return f"COPY ({statement}) TO STDOUT"


class TableReader:
    """Reader of the rows of tables, one after another, in one snapshot."""

    def __init__(self, database: Database, snapshot: str | None) -> None:
        """Begin a transaction with an exported snapshot, or with the current state if None."""
        self._link: RawConnection = database.raw()
        self._is_open = False
        self._link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            self._link.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        else:
            # PostgreSQL takes the snapshot at the first statement that needs one.
            self._link.execute("SELECT FROM pg_class LIMIT 0")

    def close(self) -> None:
        self._link.close()

    @property
    def is_open(self) -> bool:
        """Whether a table is being read."""
        return self._is_open

    def open(self, relation: Relation, key: Sequence[str], after: Sequence[str]) -> None:
        self._link.copy_out(select(relation, key, after))
        self._is_open = True

    def next_row(self) -> Row | None:
        """Return the next row, or None at the end of the table."""
        line = self._link.next_row()
        if line is None:
            self._is_open = False
            return None
        return split_line(line)


def split_line(line: bytes) -> Row:
    """Parse a row of COPY … TO STDOUT in the text format, with or without its newline.

    Columns are separated by tabs, null is `\\N`, and special characters are escaped by a backslash.
    """
    if line.endswith(b"\n"):
        line = line[:-1]
    values: Row = list(line.split(b"\t"))
    if b"\\" in line:
        return [_unescape(each) for each in line.split(b"\t")]
    return values


def _unescape(value: bytes) -> bytes | None:
    if value == b"\\N":
        return None
    if b"\\" not in value:
        return value
    return _ESCAPED.sub(lambda found: _MEANINGS.get(found[1], found[1]), value)
