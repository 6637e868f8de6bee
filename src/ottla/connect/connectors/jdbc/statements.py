"""SQL statements of the sink.

Parameters are positional, in the driver's style: all columns in order, followed by the key columns
if the statement has a condition. The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.connect.connectors.jdbc.values import MYSQL, SQLITE

OFFSET_COLUMNS = ("connector", "topic", "partition_number", "next_offset")


@dataclass(frozen=True)
class Language:
    """SQL dialect of a database."""

    dialect: str
    is_quoting: bool = True

    @property
    def mark(self) -> str:
        return "?" if self.dialect == SQLITE else "%s"

    def quote(self, name: str) -> str:
        sign = "`" if self.dialect == MYSQL else '"'
        quoted = f"{sign}{name.replace(sign, sign * 2)}{sign}" if self.is_quoting else name
        # Percent signs are the driver's parameter markers.
        return quoted.replace("%", "%%") if self.mark == "%s" else quoted

    def table(self, name: Sequence[str]) -> str:
        return ".".join(self.quote(each) for each in name)

    def _marks(self, count: int) -> str:
        return ", ".join([self.mark] * count)

    def _where(self, key: Sequence[str]) -> str:
        return " AND ".join(f"{self.quote(each)} = {self.mark}" for each in key)

    # ------------------------------------------------------------------------------------ rows

    def insert(self, table: Sequence[str], columns: Sequence[str]) -> str:
        listed = ", ".join(self.quote(each) for each in columns)
        return f"INSERT INTO {self.table(table)} ({listed}) VALUES ({self._marks(len(columns))})"

    def upsert(
        self,
        table: Sequence[str],
        columns: Sequence[str],
        key: Sequence[str],
        kept: Sequence[str] = (),
    ) -> str:
        """Return an upsert; columns in `kept` are not updated in an existing row."""
        changed = [each for each in columns if each not in key and each not in kept]
        insert = self.insert(table, columns)
        names = [self.quote(each) for each in changed]
        if self.dialect == MYSQL:
            first = self.quote(key[0])
            sets = [f"{each} = VALUES({each})" for each in names] or [f"{first} = {first}"]
            return f"{insert} ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        target = ", ".join(self.quote(each) for each in key)
        if not names:
            return f"{insert} ON CONFLICT ({target}) DO NOTHING"
        sets = [f"{each} = excluded.{each}" for each in names]
        return f"{insert} ON CONFLICT ({target}) DO UPDATE SET {', '.join(sets)}"

    def update(self, table: Sequence[str], columns: Sequence[str], key: Sequence[str]) -> str:
        """Return an update, with the parameters `columns`, then `key`."""
        sets = ", ".join(f"{self.quote(each)} = {self.mark}" for each in columns)
        return f"UPDATE {self.table(table)} SET {sets} WHERE {self._where(key)}"

    def delete(self, table: Sequence[str], key: Sequence[str]) -> str:
        return f"DELETE FROM {self.table(table)} WHERE {self._where(key)}"

    def delete_all(self, table: Sequence[str]) -> str:
        return f"DELETE FROM {self.table(table)}"

    # ---------------------------------------------------------------------------------- tables

    def create(
        self,
        table: Sequence[str],
        columns: Sequence[tuple[str, str, bool]],
        key: Sequence[str],
    ) -> str:
        """Return CREATE TABLE; `columns` are (name, type, whether it may be null)."""
        lines = [
            f"{self.quote(name)} {kind}{'' if can_be_null else ' NOT NULL'}"
            for name, kind, can_be_null in columns
        ]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(self.quote(each) for each in key)})")
        end = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4" if self.dialect == MYSQL else ""
        return f"CREATE TABLE {self.table(table)} ({', '.join(lines)}){end}"

    def add_column(self, table: Sequence[str], name: str, kind: str) -> str:
        return f"ALTER TABLE {self.table(table)} ADD COLUMN {self.quote(name)} {kind} NULL"

    # --------------------------------------------------------------------------------- offsets

    def create_offsets(self, table: Sequence[str]) -> str:
        text = "VARCHAR(249)" if self.dialect == MYSQL else "VARCHAR(300)"
        columns = (
            f"connector {text} NOT NULL, topic {text} NOT NULL, partition_number INTEGER NOT NULL, "
            "next_offset BIGINT NOT NULL, PRIMARY KEY (connector, topic, partition_number)"
        )
        end = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4" if self.dialect == MYSQL else ""
        return f"CREATE TABLE IF NOT EXISTS {self.table(table)} ({columns}){end}"

    def lock_offsets(self, table: Sequence[str]) -> str:
        """Select the rows of a connector and lock them until the end of the transaction."""
        lock = "" if self.dialect == SQLITE else " FOR UPDATE"
        return (
            f"SELECT topic, partition_number, next_offset FROM {self.table(table)} "
            f"WHERE connector = {self.mark}{lock}"
        )

    def write_offsets(self, table: Sequence[str]) -> str:
        return self.upsert(table, OFFSET_COLUMNS, OFFSET_COLUMNS[:3])

    def first_offset(self, table: Sequence[str]) -> str:
        """Return an insert that leaves an existing row unchanged."""
        return self.upsert(table, OFFSET_COLUMNS, OFFSET_COLUMNS[:3], OFFSET_COLUMNS[3:])
