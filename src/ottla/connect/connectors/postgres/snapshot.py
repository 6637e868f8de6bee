"""The rows that are there before the first change: a snapshot, table by table.

The first snapshot is the one that PostgreSQL exports when the slot is made: what it shows and what
the stream tells are all there is, without a gap and without an overlap. It ends with its
connection.
Tables are read in the order of their keys, and the offset says how far:

    {"lsn": of the slot, "snapshot": {"pending": ["public.a", "public.b"], "after": ["42"]}}

so a snapshot that was interrupted goes on after the last key, as the database is then. Rows that
changed in between are read in their new state, and the stream, which begins where the slot was
made, tells of those changes again: whoever applies records in their order ends with the same table.
A table without a key cannot be gone on with: a truncate (op `t`) comes first, then all its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.connect.connectors.postgres.copy_text import split_line
from ottla.connect.connectors.postgres.link import Database, RawLink, literal, quoted
from ottla.connect.connectors.postgres.pgoutput import Relation, Row


@dataclass(frozen=True, slots=True)
class Progress:
    """What is left of a snapshot."""

    pending: tuple[str, ...] = ()
    """The first one is under way."""
    after: tuple[str, ...] = ()
    """The key of its last row that is out."""
    is_begun: bool = False
    """Rows of it are out."""
    is_anew: bool = False
    """Topics have rows of an earlier time: each table begins with a truncate."""

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"pending": list(self.pending)}
        if self.after:
            told["after"] = list(self.after)
        if self.is_begun:
            told["begun"] = True
        if self.is_anew:
            told["anew"] = True
        return told

    @classmethod
    def of(cls, told: dict[str, Any] | None) -> Progress:
        told = told or {}
        return cls(
            tuple(told.get("pending", ())),
            tuple(told.get("after", ())),
            bool(told.get("begun", False)),
            bool(told.get("anew", False)),
        )

    def next_table(self) -> Progress:
        return Progress(self.pending[1:], is_anew=self.is_anew)


def select(relation: Relation, key: Sequence[str], after: Sequence[str]) -> str:
    """COPY of all rows, or of those after a key, in the order of the key."""
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
    """The rows of one table after another, in one snapshot."""

    def __init__(self, database: Database, snapshot: str | None) -> None:
        """`snapshot`: the name of an exported one; None: as the database is now."""
        self._link: RawLink = database.raw()
        self._is_open = False
        self._link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            self._link.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        else:
            # A snapshot is taken by the first statement that needs one.
            self._link.execute("SELECT FROM pg_class LIMIT 0")

    def close(self) -> None:
        self._link.close()

    @property
    def is_open(self) -> bool:
        """A table is being read."""
        return self._is_open

    def open(self, relation: Relation, key: Sequence[str], after: Sequence[str]) -> None:
        self._link.copy_out(select(relation, key, after))
        self._is_open = True

    def next_row(self) -> Row | None:
        """None: that was the table's last."""
        line = self._link.next_row()
        if line is None:
            self._is_open = False
            return None
        return split_line(line)
