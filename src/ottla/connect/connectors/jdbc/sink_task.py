"""Task of the JDBC sink: each batch and the offsets after it are one database transaction.

    OFFSETS_TABLE    connector, topic, partition_number, next_offset

Records before `next_offset` are in the database already and are skipped, so nothing is written
twice if the worker fails between the commits to the database and to the cluster. To write records
again, also delete the connector's rows from that table.

A row that the database rejects is located by bisection within savepoints and reported; the rest of
the batch is written. Reports precede the commit of the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ottla.connect.api import SinkTask
from ottla.connect.connectors.jdbc.database import (
    DatabaseUnavailable,
    RowError,
    error_message,
    make_engine,
    translated_errors,
)
from ottla.connect.connectors.jdbc.folding import Group, fold
from ottla.connect.connectors.jdbc.rows import Action, Operation, RowRules
from ottla.connect.connectors.jdbc.statements import Language
from ottla.connect.connectors.jdbc.target import Target, Wanted
from ottla.connect.connectors.jdbc.url import parse_url
from ottla.connect.connectors.jdbc.values import family
from ottla.connect.data import ConnectRecord, DataError, Schema
from ottla.connect.definition import Settings

logger = logging.getLogger(__name__)


class JdbcSinkTask(SinkTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = settings["name"]
        self._insert_mode = settings["insert.mode"]
        url = parse_url(
            settings["connection.url"], settings["connection.user"], settings["connection.password"]
        )
        self._engine: Engine = make_engine(url, settings["db.timezone"])
        dialect = family(self._engine.dialect.name)
        is_quoting = settings["quote.sql.identifiers"].lower() == "always"
        self._language = Language(dialect, is_quoting)
        self._offsets_table = tuple(settings["offsets.table"].split("."))
        self._rules = RowRules(
            dialect,
            settings["table.name.format"],
            settings["pk.mode"],
            tuple(settings["pk.fields"]),
            frozenset(settings["fields.whitelist"]),
            dict(each.split(":", 1) for each in settings["field.mapping"]),
            settings["delete.enabled"],
            settings["truncate.enabled"],
        )
        self._target = Target(
            self._engine,
            self._language,
            creates=settings["auto.create"],
            evolves=settings["auto.evolve"],
        )
        self._records: list[ConnectRecord] = []
        self._connection: Any = None

    # ----------------------------------------------------------------------------- lifecycle

    def start(self, directory: Path) -> None:
        connection = self._open()
        with translated_errors(self._engine), connection.begin():
            connection.exec_driver_sql(self._language.create_offsets(self._offsets_table))
            # A row to lock before there are any offsets.
            first = self._language.first_offset(self._offsets_table)
            connection.exec_driver_sql(first, (self._name, "", -1, 0))

    def stop(self) -> None:
        self._close()
        self._engine.dispose()

    def begin(self, batch: int) -> None:
        self._records = []

    def put(self, records: Sequence[ConnectRecord]) -> None:
        self._records.extend(records)

    def end(self) -> None:
        """Write the batch. A retry after a RetriableError skips records that were written."""
        if not self._records:
            return
        try:
            self._end()
        except BaseException:
            self._close()
            self._target.forget()
            raise
        self._records = []

    # --------------------------------------------------------------------------------- batch

    def _end(self) -> None:
        done = self._written()
        new = [each for each in self._records if self._is_new(each, done)]
        if len(new) < len(self._records):
            logger.warning(
                "skipping %d records that are already in the database according to table %s",
                len(self._records) - len(new),
                ".".join(self._offsets_table),
            )
        actions = [each for each in map(self._action, new) if each is not None]
        for table, wanted in self._wanted(actions).items():
            self._target.ensure(table, wanted)
        connection = self._open()
        with translated_errors(self._engine), connection.begin():
            # Check again under the lock: another instance of the task may have written since.
            if self._locked(connection) != done:
                raise DatabaseUnavailable(
                    f"Another task of connector {self._name} writes to the database at the same "
                    "time."
                )
            for group in fold(actions, merges=self._insert_mode == "upsert"):
                self._write(connection, group)
            self._note_offsets(connection)

    def _is_new(self, record: ConnectRecord, done: dict[tuple[str, int], int]) -> bool:
        if record.origin is None:
            return True
        topic, partition, offset = record.origin
        return offset >= done.get((topic, partition), 0)

    def _action(self, record: ConnectRecord) -> Action | None:
        try:
            return self._rules.action(record)
        except DataError as error:
            self.report(record, error)
            return None

    def _wanted(self, actions: list[Action]) -> dict[tuple[str, ...], Wanted]:
        columns: dict[tuple[str, ...], dict[str, Schema]] = {}
        keys: dict[tuple[str, ...], tuple[str, ...]] = {}
        for each in actions:
            if each.operation is not Operation.DELETE_ALL:
                columns.setdefault(each.table, {}).update(each.schemas)
                keys[each.table] = each.key
        return {table: Wanted(found, keys[table]) for table, found in columns.items()}

    # ------------------------------------------------------------------------------- offsets

    def _written(self) -> dict[tuple[str, int], int]:
        connection = self._open()
        with translated_errors(self._engine), connection.begin():
            return self._locked(connection)

    def _locked(self, connection: Any) -> dict[tuple[str, int], int]:
        statement = self._language.lock_offsets(self._offsets_table)
        rows = connection.exec_driver_sql(statement, (self._name,))
        return {(topic, number): offset for topic, number, offset in rows}

    def _note_offsets(self, connection: Any) -> None:
        ends: dict[tuple[str, int], int] = {}
        for each in self._records:
            if each.origin is not None:
                topic, partition, offset = each.origin
                ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
        rows = [(self._name, topic, number, end) for (topic, number), end in sorted(ends.items())]
        if rows:
            connection.exec_driver_sql(self._language.write_offsets(self._offsets_table), rows)

    # ------------------------------------------------------------------------------- writing

    def _write(self, connection: Any, group: Group) -> None:
        statement, key_last = self._statement(group)
        size = self._settings["batch.size"]
        for first in range(0, len(group.actions), size):
            part = group.actions[first : first + size]
            self._run(connection, statement, group, part, key_last)

    def _statement(self, group: Group) -> tuple[str, bool]:
        language, table = self._language, group.table
        if group.operation is Operation.DELETE_ALL:
            return language.delete_all(table), False
        if group.operation is Operation.DELETE:
            return language.delete(table, group.key), False
        if self._insert_mode == "insert":
            return language.insert(table, group.columns), False
        if self._insert_mode == "upsert":
            return language.upsert(table, group.columns, group.key, group.kept), False
        return language.update(table, group.columns, group.key), True

    def _run(
        self,
        connection: Any,
        statement: str,
        group: Group,
        actions: Sequence[Action],
        key_last: bool,
    ) -> None:
        """Execute a statement for all rows; locate rejected rows by bisection and report them."""
        rows = [group.parameters(each, key_last=key_last) for each in actions]
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(statement, rows)
            return
        except DBAPIError as error:
            failure = error_message(self._engine, error)
            if not isinstance(failure, RowError):
                raise
        except (TypeError, ValueError, OverflowError) as error:
            failure = RowError(f"a value cannot be passed to the database: {error}")
        if len(actions) == 1:
            self.report(actions[0].record, failure)
            return
        middle = len(actions) // 2
        for half in (actions[:middle], actions[middle:]):
            self._run(connection, statement, group, half, key_last)

    def _open(self) -> Any:
        if self._connection is None:
            with translated_errors(self._engine):
                self._connection = self._engine.connect()
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.invalidate()
            connection.close()
