"""Selection of captured tables and columns, and the shape of a captured table.

The lists are Debezium's: comma-separated, case-insensitive patterns that match the whole of
`schema`, `schema.table` or `schema.table.column`. An exclude list applies only if there is no
include list. System tables are never captured. The functions do no I/O.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.connectors.postgres.pgoutput import UNCHANGED, Relation, Row
from ottla.connect.connectors.postgres.types import (
    ColumnType,
    TypeInfo,
    TypeModes,
    column_type,
)
from ottla.connect.data import DataError, Field, Schema, Type

OWN_SCHEMAS = ("pg_catalog", "information_schema", "pg_toast")


class Patterns:
    def __init__(self, patterns: Iterable[str]) -> None:
        """Compile the patterns; raise ValueError if one is not a regular expression."""
        self._patterns = []
        for each in patterns:
            try:
                self._patterns.append(re.compile(each.strip(), re.IGNORECASE))
            except re.error as error:
                raise ValueError(f"{each!r} is not a valid regular expression: {error}") from None

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def __str__(self) -> str:
        return ",".join(each.pattern for each in self._patterns)

    def match(self, name: str) -> bool:
        return any(each.fullmatch(name) for each in self._patterns)

    def nearest(self, names: Iterable[str]) -> str | None:
        """Return the name that a mistyped pattern most likely means, by full or last part."""
        by_text = {part: name for name in names for part in (name.rpartition(".")[2], name)}
        for each in self._patterns:
            text = each.pattern.replace("\\", "").lower()
            found = difflib.get_close_matches(text, by_text, n=1, cutoff=0.7)
            if found:
                return by_text[found[0]]
        return None


@dataclass(frozen=True)
class Selection:
    """Include and exclude lists."""

    schemas: Patterns
    no_schemas: Patterns
    tables: Patterns
    no_tables: Patterns
    columns: Patterns
    no_columns: Patterns

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Selection:
        names = ("schema", "table", "column")
        lists = [f"{name}.{kind}.list" for name in names for kind in ("include", "exclude")]
        return cls(*(Patterns(settings[each]) for each in lists))

    def takes_table(self, schema: str, table: str) -> bool:
        if schema in OWN_SCHEMAS or schema.startswith("pg_temp"):
            return False
        name = f"{schema}.{table}"
        in_schema = (
            self.schemas.match(schema) if self.schemas else not self.no_schemas.match(schema)
        )
        in_table = self.tables.match(name) if self.tables else not self.no_tables.match(name)
        return in_schema and in_table

    def why_nothing_matches(
        self, place: str, tables: Sequence[str], others: Sequence[tuple[str, str]]
    ) -> str:
        """Return why no table is captured, and what to set.

        Args:
            place: The database, as messages name it.
            tables: Full names of the tables that the database has.
            others: Names and kinds of the views and so on that the lists do match.
        """
        if others:
            name, kind = others[0]
            root = kind.removeprefix("a partition of ")
            advice = (
                f"set table.include.list={_pattern_for(root)}"
                if root != kind
                else "name tables that write to the WAL"
            )
            return (
                f"{name} of {place} is {kind}, whose changes PostgreSQL does not publish: {advice}."
            )
        if not tables:
            return (
                f"{place} has no tables. Check database.dbname, or create the tables before the "
                "connector starts."
            )
        properties = {
            "schema.include.list": self.schemas,
            "schema.exclude.list": self.no_schemas,
            "table.include.list": self.tables,
            "table.exclude.list": self.no_tables,
        }
        lists = " and ".join(f"{name}={each}" for name, each in properties.items() if each)
        nearest = self.tables.nearest(tables)
        advice = (
            f"the nearest table is {nearest}: set table.include.list={_pattern_for(nearest)}"
            if nearest
            else f"patterns match whole names (SCHEMA.TABLE), and it has {_some(tables)}"
        )
        return f"No table of {place} matches {lists}; {advice}."

    def takes_column(self, schema: str, table: str, column: str) -> bool:
        name = f"{schema}.{table}.{column}"
        return self.columns.match(name) if self.columns else not self.no_columns.match(name)


@dataclass(frozen=True)
class KeyColumns:
    """`message.key.columns`: `schema.table:column,column;…`."""

    rules: tuple[tuple[Patterns, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, text: str) -> KeyColumns:
        rules = []
        for each in filter(None, (part.strip() for part in text.split(";"))):
            table, colon, columns = each.rpartition(":")
            names = tuple(name.strip() for name in columns.split(",") if name.strip())
            if not colon or not names:
                raise ValueError(
                    f"message.key.columns must look like schema.table:column,column;…, not {each!r}"
                )
            rules.append((Patterns([table]), names))
        return cls(tuple(rules))

    def of_table(self, schema: str, table: str) -> tuple[str, ...]:
        name = f"{schema}.{table}"
        return next((columns for rule, columns in self.rules if rule.match(name)), ())


@dataclass(frozen=True)
class TableSchema:
    """Columns and schemas of a table. Columns that are not captured are None."""

    oid: int
    schema: str
    name: str
    columns: tuple[tuple[str, ColumnType] | None, ...]
    key: tuple[str, ...]
    """Names of the key columns; empty if the table has no key."""
    row_schema: Schema
    key_schema: Schema | None
    placeholders: Mapping[str, Any] = field(default_factory=dict)
    """Placeholders for large values that an update did not change, by column."""

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def decode(self, row: Row, previous: Row | None = None) -> tuple[dict[str, Any], list[str]]:
        """Decode a row.

        Returns:
            Values by name, and the columns whose value is unknown: large values that did not change
            and are not in `previous`.
        """
        if UNCHANGED in row and previous is not None:
            row = [
                before if after is UNCHANGED else after
                for before, after in zip(previous, row, strict=True)
            ]
        values: dict[str, Any] = {}
        unchanged: list[str] = []
        for data, column in zip(row, self.columns, strict=True):
            if column is None:
                continue
            name, kind = column
            if data is None:
                values[name] = None
            elif isinstance(data, bytes):
                try:
                    values[name] = kind.decode(data)
                except (DataError, ValueError, ArithmeticError) as error:
                    raise self._unreadable(name, data, error) from None
            else:
                unchanged.append(name)
                values[name] = self.placeholders.get(name)
        return values, unchanged

    def key_of(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        if len(self.key) == 1:
            name = self.key[0]
            return {name: values[name]}
        return {name: values[name] for name in self.key} if self.key else None

    def _unreadable(self, name: str, data: bytes, error: Exception) -> DataError:
        shown = data[:60].decode("utf-8", "replace")
        return DataError(f"cannot convert {shown!r} in column {name} of {self.full_name}: {error}")


def make_table_schema(
    relation: Relation,
    primary_key: Sequence[str],
    prefix: str,
    selection: Selection,
    key_columns: KeyColumns,
    modes: TypeModes,
    catalog: Mapping[int, TypeInfo],
    placeholder: str,
) -> TableSchema:
    """Return the shape of a table; raise DataError if a configured key column does not exist."""
    schema, table = relation.schema, relation.name
    wanted = key_columns.of_table(schema, table)
    names = {each.name for each in relation.columns}
    missing = [each for each in wanted if each not in names]
    if missing:
        raise DataError(
            f"message.key.columns names {missing[0]}, which {schema}.{table} does not have"
        )
    key = [each.name for each in relation.columns if each.name in (wanted or primary_key)]
    columns: list[tuple[str, ColumnType] | None] = []
    for each in relation.columns:
        # Key columns are always captured, whatever the column lists select.
        if each.name in key or selection.takes_column(schema, table, each.name):
            kind = column_type(each.type_oid, each.type_modifier, modes, catalog)
            columns.append((each.name, kind))
        else:
            columns.append(None)
    name = f"{prefix}.{schema}.{table}"
    taken = [each for each in columns if each is not None]
    fields = tuple(
        Field(column, _required(kind.schema) if column in primary_key else kind.schema)
        for column, kind in taken
    )
    key_fields = tuple(each for each in fields if each.name in key)
    return TableSchema(
        relation.oid,
        schema,
        table,
        tuple(columns),
        tuple(key),
        Schema(Type.STRUCT, True, f"{name}.Value", fields=fields),
        Schema(Type.STRUCT, name=f"{name}.Key", fields=key_fields) if key else None,
        {column: _placeholder(kind.schema, placeholder) for column, kind in taken},
    )


def _pattern_for(name: str) -> str:
    """Return a pattern for a name as it is written in a properties file."""
    return re.escape(name).replace("\\", "\\\\")


def _some(names: Sequence[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _required(schema: Schema) -> Schema:
    from dataclasses import replace

    return replace(schema, optional=False)


def _placeholder(schema: Schema, text: str) -> Any:
    if schema.type is Type.STRING:
        return text
    return text.encode() if schema.type is Type.BYTES and schema.name is None else None
