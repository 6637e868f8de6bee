"""Task of the JDBC source: queries its tables in turn and returns new rows.

The source offset is the position after the last row (`modes`). An interrupted bulk load continues
if the table's key consists of integers or strings; otherwise it starts over. With `num.partitions`
Spark reads the load (`part_reader`).
"""

from __future__ import annotations

import datetime
import logging
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, bindparam, column, inspect, text
from sqlalchemy.types import Date, DateTime, Integer, Numeric, TypeEngine

from ottla.base.errors import UserError
from ottla.connect.api import Json, Offsets, Polled, SourceTask
from ottla.connect.connectors.jdbc.columns import (
    Mapped,
    TypeMapping,
    encoded,
    inferred,
    mapped,
)
from ottla.connect.connectors.jdbc.database import (
    RowError,
    describe_database,
    make_engine,
    translated_errors,
)
from ottla.connect.connectors.jdbc.modes import BULK, Mode, Query, write_moment
from ottla.connect.connectors.jdbc.part_reader import PartReader
from ottla.connect.connectors.jdbc.spark_read import Load
from ottla.connect.connectors.jdbc.spool import Spool
from ottla.connect.connectors.jdbc.url import parse_url
from ottla.connect.data import ConnectRecord, DataError, FailedRecord, Field, Schema, Type
from ottla.connect.definition import Settings

logger = logging.getLogger(__name__)

PAUSE_S = 0.02
SAMPLE_ROWS = 1_000
"""Number of rows of a query from which its column types are inferred."""
CAN_BE_SPLIT = (Integer, Numeric, Date, DateTime)
NOW = {
    "postgresql": "SELECT {now}",
    "mysql": "SELECT NOW(6)",
    "mariadb": "SELECT NOW(6)",
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
}


@dataclass
class TableReader:
    """State of a table or of the query."""

    name: str
    topic: str
    partition: Json
    source: str
    """Table or subquery for the FROM clause."""
    mode: Mode
    columns: dict[str, TypeEngine[Any]] = field(default_factory=dict)
    mapping: dict[str, Mapped] = field(default_factory=dict)
    schema: Schema | None = None
    offset: Json = field(default_factory=dict)
    next_at: float = 0.0
    has_zone: bool = False
    parts: PartReader | None = None
    """Reader of the spooled load, if Spark reads the table."""


class JdbcSourceTask(SourceTask):
    def __init__(self, settings: Settings, number: int, count: int) -> None:
        self._settings = settings
        self._number, self._count = number, count
        self._url = parse_url(
            settings["connection.url"], settings["connection.user"], settings["connection.password"]
        )
        self._engine: Engine = make_engine(self._url, settings["db.timezone"], reads_only=True)
        self._dialect = self._engine.dialect.name
        self._types = TypeMapping(settings["numeric.mapping"], settings["timestamp.granularity"])
        self._connection: Any = None
        self._known: Offsets = []
        self._asked: dict[str, TableReader] = {}
        self._tables_at = 0.0
        self._turn = 0

    def start(self, offsets: Offsets) -> None:
        self._known = list(offsets)
        self._find_tables()

    def stop(self) -> None:
        for each in self._asked.values():
            if each.parts is not None:
                each.parts.stop()
        self._close()
        self._engine.dispose()

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while True:
            now = time.monotonic()
            if now >= self._tables_at:
                self._find_tables()
            for each in self._due(now):
                polled = self._run_query(each)
                if polled:
                    return polled
            if time.monotonic() >= until:
                return Polled()
            time.sleep(PAUSE_S)

    def commit(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            for each in self._asked.values():
                if each.parts is not None and each.partition == partition:
                    each.parts.spool.drop_before(offset.get("turn", 0))

    def _due(self, now: float) -> list[TableReader]:
        """Return the tables that are due, in round-robin order."""
        due = [each for each in self._asked.values() if now >= each.next_at]
        self._turn += 1
        at = self._turn % len(due) if due else 0
        return due[at:] + due[:at]

    # -------------------------------------------------------------------------------- tables

    def _find_tables(self) -> None:
        self._tables_at = time.monotonic() + self._settings["table.poll.interval.ms"] / 1000
        if self._settings["query"]:
            if not self._asked:
                self._add_query()
            return
        schema = self._settings["schema.pattern"] or None
        with self._connected() as connection:
            there = inspect(connection).get_table_names(schema)
        wanted, unwanted = (
            {each.rpartition(".")[2] for each in self._settings[f"table.{kind}"]}
            for kind in ("whitelist", "blacklist")
        )
        missing = sorted(wanted - set(there))
        if missing and not self._asked:
            raise UserError(f"{describe_database(self._engine)} has no table {', '.join(missing)}.")
        for name in sorted(there):
            is_wanted = name in wanted if wanted else name not in unwanted
            is_mine = zlib.crc32(name.encode()) % self._count == self._number
            if is_wanted and is_mine and name not in self._asked:
                self._add_table(name, schema)
        for name in self._asked.keys() - set(there):
            logger.warning("table %s no longer exists", name)
            del self._asked[name]

    def _add_query(self) -> None:
        # An alias for the subquery, which some databases require.
        source = f"({_without_binds(self._settings['query'])}) ottla_query"
        topic = self._settings["topic.prefix"]
        made = TableReader("query", topic, {"query": "query"}, source, self._mode(()))
        self._split(made, self._settings["partition.column"])
        self._poll_table(made)

    def _add_table(self, name: str, schema: str | None) -> None:
        with self._connected() as connection:
            inspector = inspect(connection)
            found = inspector.get_columns(name, schema)
            key = tuple(inspector.get_pk_constraint(name, schema)["constrained_columns"])
        columns: dict[str, TypeEngine[Any]] = {each["name"]: each["type"] for each in found}
        self._check(name, found)
        source = ".".join(self._quoted(each) for each in (schema, name) if each)
        kinds = [mapped(columns[each], self._types, self._dialect).schema for each in key]
        can_go_on = all(
            each.name is None and each.type in (Type.INT16, Type.INT32, Type.INT64, Type.STRING)
            for each in kinds
        )
        partition = {"protocol": "1", "table": f"{schema}.{name}" if schema else name}
        topic = self._settings["topic.prefix"] + name
        mode = self._mode(key if can_go_on else ())
        made = TableReader(name, topic, partition, source, mode, columns)
        made.mapping = {
            each: mapped(kind, self._types, self._dialect) for each, kind in columns.items()
        }
        moments = [columns.get(each) for each in mode.timestamps]
        made.has_zone = any(getattr(each, "timezone", False) for each in moments)
        self._split(made, self._settings["partition.column"] or next(iter(key), ""))
        self._poll_table(made)

    def _split(self, reader: TableReader, by: str) -> None:
        """Set up reading in parts, if it is configured."""
        count = self._settings["num.partitions"]
        if count == 1:
            return
        if reader.columns and not isinstance(reader.columns.get(by), CAN_BE_SPLIT):
            reason = f"has no column {by}"
            if by in reader.columns:
                reason = f"has neither numbers nor times in column {by}"
            message = reason if by else "has no primary key"
            raise UserError(
                f"Table {reader.name} cannot be read in parallel because it {message}. Set "
                "partition.column to a column of numbers or times, or num.partitions=1."
            )
        location = Path(self._settings["checkpoint.location"])
        name = str(reader.partition.get("table", "query"))
        reader.parts = PartReader(
            Spool(location, name, reader.topic), count, lambda: self._load(reader, by)
        )

    def _load(self, reader: TableReader, by: str) -> Load | None:
        if not reader.columns:
            some = self._rows(reader, Query(), SAMPLE_ROWS)
            if not some:
                return None
            if by not in some[0]:
                raise UserError(f"The query returns no column {by}, which partition.column names.")
            self._infer(reader, some)
        return Load(
            reader.name, self._url, self._settings["db.timezone"], reader.source,
            _without_binds(self._settings["query.suffix"]), self._names(reader), reader.columns,
            self._quoted(by), reader.columns.get(by), reader.mapping, self._schema(reader),
        )  # fmt: skip

    def _mode(self, key: tuple[str, ...]) -> Mode:
        settings = self._settings
        return Mode(
            settings["mode"],
            settings["incrementing.column.name"],
            tuple(settings["timestamp.column.name"]),
            key,
        )

    def _check(self, table: str, found: list[Any]) -> None:
        mode, can_be_null = self._mode(()), {each["name"]: each["nullable"] for each in found}
        wanted = [mode.incrementing] if mode.has_incrementing else []
        wanted += mode.timestamps if mode.has_timestamp else []
        for name in wanted:
            if name not in can_be_null:
                raise UserError(f"Table {table} has no column {name}.")
        moments = mode.timestamps if mode.has_timestamp else ()
        bad = [mode.incrementing] if mode.has_incrementing and can_be_null[wanted[0]] else []
        if moments and all(can_be_null[each] for each in moments):
            bad += moments
        if bad and self._settings["validate.non.null"]:
            raise UserError(
                f"Column {bad[0]} of table {table} can be null, and rows with null are never read. "
                "Make it NOT NULL, or set validate.non.null=false."
            )

    def _poll_table(self, reader: TableReader) -> None:
        known = (offset for partition, offset in self._known if partition == reader.partition)
        reader.offset = dict(next(known, {}))
        if reader.parts is not None and not reader.offset:
            # The spool belongs to offsets that were reset.
            reader.parts.spool.drop()
        initial = self._settings["timestamp.initial"]
        if not reader.offset and reader.mode.has_timestamp and initial is not None:
            if initial < 0:
                reader.offset = write_moment(self._now(reader))
            else:
                zone = {"zoned": 1} if reader.has_zone else {}
                reader.offset = {"timestamp": initial, **zone}
        self._asked[reader.name] = reader

    # ------------------------------------------------------------------------------ queries

    def _run_query(self, reader: TableReader) -> Polled:
        limit = self._settings["batch.max.rows"]
        is_bulk = reader.mode.name == BULK
        if reader.parts is not None and not reader.offset.get("after"):
            return self._from_parts(reader, reader.parts, limit)
        if reader.offset.get("rows"):
            raise UserError(
                f"A parallel load of {reader.name} is incomplete. Set num.partitions to more than "
                "1 until it is complete, or reset the connector's offsets."
            )
        if is_bulk and not reader.mode.key:
            return self._whole(reader)
        now = self._now(reader) if reader.mode.has_timestamp else None
        query = reader.mode.query(reader.offset, now, self._quoted)
        rows = self._rows(reader, query, limit + 1)
        handed = self._cut(reader, query, rows, limit)
        if not handed:
            self._wait(reader)
            if is_bulk and reader.offset.get("after"):
                reader.offset = {"turn": reader.offset.get("turn", 0) + 1}
                return Polled([], [(reader.partition, dict(reader.offset))])
            return Polled()
        if len(rows) <= limit and not is_bulk:
            self._wait(reader)
        records = self._records(reader, handed)
        try:
            reader.offset = reader.mode.offset_after(handed[-1], reader.offset)
        except ValueError as error:
            raise UserError(f"{reader.name}: {error}.") from None
        return Polled(records, [(reader.partition, dict(reader.offset))])

    def _from_parts(self, reader: TableReader, parts: PartReader, limit: int) -> Polled:
        found = parts.next(reader.offset, limit)
        if found is None:
            return Polled()
        records, reader.offset = found
        if "rows" not in reader.offset:
            self._wait(reader)
        return Polled(records, [(reader.partition, dict(reader.offset))])

    def _cut(
        self, reader: TableReader, query: Query, rows: list[dict[str, Any]], limit: int
    ) -> list[dict[str, Any]]:
        try:
            handed = reader.mode.whole_moments(rows, limit)
            if rows and not handed:
                # More rows with one timestamp than fit in a batch: read all of them at once.
                last = reader.mode.moment_of(rows[-1]) + datetime.timedelta(microseconds=1)
                parameters = {**query.parameters, "now": last}
                all_of_it = Query(query.where, query.order, parameters)
                return self._rows(reader, all_of_it, None)
        except ValueError as error:
            raise UserError(f"{reader.name}: {error}.") from None
        return handed

    def _whole(self, reader: TableReader) -> Polled:
        """Read a whole table or query without a key."""
        rows = self._rows(reader, Query(), None)
        self._wait(reader)
        reader.offset = {"turn": reader.offset.get("turn", 0) + 1}
        return Polled(self._records(reader, rows), [(reader.partition, dict(reader.offset))])

    def _wait(self, reader: TableReader) -> None:
        reader.next_at = time.monotonic() + self._settings["poll.interval.ms"] / 1000

    def _rows(self, reader: TableReader, query: Query, limit: int | None) -> list[dict[str, Any]]:
        names = self._names(reader)
        suffix = _without_binds(self._settings["query.suffix"])
        made = text(query.statement(names, reader.source, suffix, limit))
        moments = [name for name in ("now", "since") if name in query.parameters]
        zoned = DateTime(timezone=reader.has_zone)
        if moments:
            made = made.bindparams(*(bindparam(name, type_=zoned) for name in moments))
        typed: Any = made
        if reader.columns:
            typed = made.columns(*(column(name, kind) for name, kind in reader.columns.items()))
        with self._connected() as connection:
            result = connection.execute(typed, query.parameters)
            return [dict(each) for each in result.mappings()]

    def _names(self, reader: TableReader) -> str:
        return ", ".join(self._quoted(each) for each in reader.columns) or "*"

    def _now(self, reader: TableReader) -> datetime.datetime:
        now = "CURRENT_TIMESTAMP" if reader.has_zone else "LOCALTIMESTAMP"
        statement = NOW[self._dialect].format(now=now)
        with self._connected() as connection:
            found = connection.exec_driver_sql(statement).scalar_one()
        moment = datetime.datetime.fromisoformat(found) if isinstance(found, str) else found
        delay = datetime.timedelta(milliseconds=self._settings["timestamp.delay.interval.ms"])
        made: datetime.datetime = moment - delay
        return made

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Provide the connection for one transaction."""
        try:
            with translated_errors(self._engine):
                if self._connection is None:
                    self._connection = self._engine.connect()
                yield self._connection
                self._connection.rollback()
        except RowError as error:
            self._close()
            raise UserError(str(error)) from None
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()

    def _quoted(self, name: str) -> str:
        if self._settings["quote.sql.identifiers"].lower() == "never":
            return name
        quoted = self._engine.dialect.identifier_preparer.quote_identifier(name)
        return _without_binds(quoted)

    # ------------------------------------------------------------------------------ records

    def _records(self, reader: TableReader, rows: list[dict[str, Any]]) -> list[ConnectRecord]:
        if not reader.columns:
            self._infer(reader, rows)
        schema = self._schema(reader)
        return [self._record(reader, row, schema) for row in rows]

    def _schema(self, reader: TableReader) -> Schema:
        if reader.schema is None:
            fields = tuple(Field(name, each.schema) for name, each in reader.mapping.items())
            reader.schema = Schema(Type.STRUCT, name=reader.name, fields=fields)
        return reader.schema

    def _infer(self, reader: TableReader, rows: list[dict[str, Any]]) -> None:
        """Infer the types of a query's columns; a column with only nulls so far is a string."""
        names = list(rows[0]) if rows else []
        found = {}
        for name in names:
            value = next((row[name] for row in rows if row[name] is not None), None)
            known = reader.mapping.get(name)
            found[name] = known if known and value is None else inferred(value, self._types)
        if found and {n: m.schema for n, m in found.items()} != {
            n: m.schema for n, m in reader.mapping.items()
        }:
            reader.mapping, reader.schema = found, None

    def _record(self, reader: TableReader, row: Mapping[str, Any], schema: Schema) -> ConnectRecord:
        try:
            return ConnectRecord(reader.topic, encoded(reader.name, reader.mapping, row), schema)
        except DataError as error:
            return FailedRecord(reader.topic, None, error=str(error), source="JdbcSource")


def _without_binds(statement: str) -> str:
    """Escape colons, which SQLAlchemy would take for parameters."""
    return statement.replace(":", r"\:")
