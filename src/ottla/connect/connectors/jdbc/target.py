"""Tables of the sink: created (`auto.create`) and extended (`auto.evolve`) as records require.

New columns are nullable. Columns are never changed or dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, inspect

from ottla.base.errors import UserError
from ottla.connect.connectors.jdbc.database import RowError, describe_database, translated_errors
from ottla.connect.connectors.jdbc.statements import Language
from ottla.connect.connectors.jdbc.values import column_type
from ottla.connect.data import Schema

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """Columns and key that records require of a table."""

    columns: Mapping[str, Schema]
    key: tuple[str, ...]


class Target:
    def __init__(self, engine: Engine, language: Language, *, creates: bool, evolves: bool) -> None:
        self._engine = engine
        self._language = language
        self._creates = creates
        self._evolves = evolves
        self._columns: dict[tuple[str, ...], set[str]] = {}

    def ensure(self, table: tuple[str, ...], wanted: Wanted) -> None:
        """Create or extend a table as required; raise UserError if that is not allowed or fails."""
        known = self._columns.get(table)
        if known is not None and wanted.columns.keys() <= known:
            return
        found = self._read_columns(table)
        if found is None:
            self._create(table, wanted)
            found = self._read_columns(table) or set()
        missing = [name for name in wanted.columns if name not in found]
        if missing:
            self._widen(table, wanted, missing)
            found |= set(missing)
        self._columns[table] = found

    def forget(self) -> None:
        self._columns.clear()

    def _read_columns(self, table: tuple[str, ...]) -> set[str] | None:
        schema = table[0] if len(table) > 1 else None
        with translated_errors(self._engine):
            inspector = inspect(self._engine)
            if not inspector.has_table(table[-1], schema):
                return None
            return {each["name"] for each in inspector.get_columns(table[-1], schema)}

    def _create(self, table: tuple[str, ...], wanted: Wanted) -> None:
        name = ".".join(table)
        if not self._creates:
            raise UserError(
                f"{describe_database(self._engine)} has no table {name}. Create it, or set "
                "auto.create=true."
            )
        columns = [
            (each, self._type(schema, each in wanted.key), schema.optional)
            for each, schema in wanted.columns.items()
        ]
        self._run(table, self._language.create(table, columns, wanted.key))
        logger.info("created table %s", name)

    def _widen(self, table: tuple[str, ...], wanted: Wanted, missing: list[str]) -> None:
        name = ".".join(table)
        if not self._evolves:
            raise UserError(
                f"Table {name} has no column {', '.join(missing)}. Add it, or set auto.evolve=true."
            )
        for each in missing:
            kind = self._type(wanted.columns[each], False)
            self._run(table, self._language.add_column(table, each, kind))
            logger.info("added to table %s the column %s %s", name, each, kind)

    def _type(self, schema: Schema, is_key: bool) -> str:
        return column_type(schema, self._language.dialect, is_key=is_key)

    def _run(self, table: tuple[str, ...], statement: str) -> None:
        try:
            with translated_errors(self._engine), self._engine.begin() as connection:
                self._execute(connection, statement)
        except RowError as error:
            name = ".".join(table)
            raise UserError(f"Table {name} cannot be created or altered: {error}") from None

    def _execute(self, connection: Any, statement: str) -> None:
        connection.exec_driver_sql(statement.replace("%%", "%"))
