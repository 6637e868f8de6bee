"""Bulk loads by Spark: its tasks read the parts of a table in parallel and write them to the spool.

Each task uses its own connection; `parts` defines the parts. On PostgreSQL all tasks see the same
snapshot, which the worker exports and holds until the load is complete. Other databases have no
such feature, and each part reflects the time at which it was read. If a part fails, the whole load
fails and the worker starts it again; Spark does not retry tasks.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, bindparam, column, text
from sqlalchemy.types import TypeEngine

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.connectors.jdbc.columns import Encode, Mapped, encoded
from ottla.connect.connectors.jdbc.database import (
    DatabaseUnavailable,
    make_engine,
    translated_errors,
)
from ottla.connect.connectors.jdbc.parts import TablePart, split
from ottla.connect.connectors.jdbc.spool import Spool, part_name, write_rows
from ottla.connect.data import DataError, Schema
from ottla.connect.session import spark_session
from ottla.connect.spark_errors import reason_of

FETCHED_ROWS = 2_000
"""Number of rows to fetch from the database at once."""
STOP_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Load:
    """Description of a load that is sent to each Spark task."""

    name: str
    url: URL
    zone: str
    source: str
    """Table or subquery for the FROM clause."""
    suffix: str
    names: str
    """Columns for the SELECT clause."""
    columns: Mapping[str, TypeEngine[Any]]
    """Types of the columns; empty for a query."""
    split_by: str
    """Quoted name of the partition column."""
    split_type: TypeEngine[Any] | None
    mapping: Mapping[str, Mapped]
    schema: Schema
    folder: str = ""
    snapshot: str | None = None

    @contextmanager
    def connected(self) -> Iterator[Any]:
        engine = make_engine(self.url, self.zone, reads_only=True)
        try:
            with translated_errors(engine), engine.connect() as connection:
                if engine.dialect.name == "postgresql":
                    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    if self.snapshot is not None:
                        # Safe to quote: PostgreSQL's name consists of letters, digits and dashes.
                        snapshot = f"SET TRANSACTION SNAPSHOT '{self.snapshot}'"
                        connection.exec_driver_sql(snapshot)
                yield connection
        finally:
            engine.dispose()

    def bounds(self, connection: Any) -> tuple[Any, Any]:
        bounds_sql = f"MIN({self.split_by}) AS least, MAX({self.split_by}) AS greatest"
        made: Any = text(f"SELECT {bounds_sql} FROM {self.source}")
        kind = self.split_type
        if kind is not None:
            made = made.columns(column("least", kind), column("greatest", kind))
        least, greatest = connection.execute(made).one()
        return least, greatest


def read_part(load: Load, part: TablePart) -> tuple[int, str, bool]:
    """Read a part, within a Spark task.

    Returns:
        Number of rows, error message ('' if none), and whether the error is retriable.
    """
    try:
        return _written(load, part), "", False
    except (UserError, DataError) as error:
        return 0, str(error), isinstance(error, RetriableError)
    except OSError as error:
        return 0, f"Cannot write to {load.folder}: {error.strerror or error}.", False


def _written(load: Load, part: TablePart) -> int:
    query = part.query(load.split_by)
    made: Any = text(query.statement(load.names, load.source, load.suffix, None))
    if load.split_type is not None:
        kinds = (bindparam(name, type_=load.split_type) for name in query.parameters)
        made = made.bindparams(*kinds)
    if load.columns:
        made = made.columns(*(column(name, kind) for name, kind in load.columns.items()))
    target = Path(load.folder) / part_name(part.number)
    aside = target.with_name(f"_{target.name}-{uuid.uuid4().hex}")
    count = 0
    with load.connected() as connection, open(aside, "wb") as file:
        streamed = connection.execution_options(yield_per=FETCHED_ROWS)
        result = streamed.execute(made, query.parameters)
        order = [list(result.keys()).index(name) for name in load.mapping]
        encoders = [each.encode for each in load.mapping.values()]
        for rows in result.partitions():
            write_rows(file, [_row(load, row, order, encoders) for row in rows])
            count += len(rows)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, target)
    return count


def _row(load: Load, row: Any, order: list[int], encoders: list[Encode]) -> tuple[Any, ...] | str:
    try:
        return tuple(
            None if (value := row[at]) is None else encode(value)
            for at, encode in zip(order, encoders, strict=True)
        )
    except (DataError, ValueError, TypeError, ArithmeticError):
        return _row_error(load, row)


def _row_error(load: Load, row: Any) -> str:
    try:
        encoded(load.name, load.mapping, row._mapping)
    except DataError as error:
        return str(error)
    return f"a row of {load.name} cannot be read"


class Loading:
    """Running load, in a thread of its own."""

    def __init__(self, spool: Spool, load_id: int, count: int, load: Load) -> None:
        self._spool, self._turn, self._count = spool, load_id, count
        self._group = f"ottla-load-{uuid.uuid4().hex}"
        self._failure: Exception | None = None
        self._context: Any = None
        self._is_stopped = False
        self._thread = threading.Thread(
            target=self._run, args=(load,), name=self._group, daemon=True
        )
        self._thread.start()

    def is_done(self, wait_s: float) -> bool:
        """Return whether the load is complete; raise its error if it failed."""
        self._thread.join(wait_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        self._is_stopped = True
        if self._context is not None and self._thread.is_alive():
            self._context.cancelJobGroup(self._group)
        self._thread.join(STOP_PATIENCE_S)

    def _run(self, load: Load) -> None:
        try:
            self._load(load)
        except (UserError, RetriableError) as error:
            self._failure = error
        except Exception as error:
            # Py4J and Spark raise exceptions with no common base class below Exception.
            self._failure = UserError(f"Spark could not load the rows: {reason_of(str(error))}")

    def _load(self, load: Load) -> None:
        folder = self._spool.begin(self._turn)
        self._context = spark_session().sparkContext
        with load.connected() as connection:
            snapshot = None
            if load.url.drivername.startswith("postgresql"):
                exported = connection.exec_driver_sql("SELECT pg_export_snapshot()")
                snapshot = exported.scalar_one()
            parts = self._parts(load, connection)
            shared_load = replace(load, folder=str(folder.absolute()), snapshot=snapshot)
            if self._is_stopped:
                return
            self._context.setJobGroup(self._group, f"load of {load.name}", True)
            reading = self._context.parallelize(parts, len(parts))
            outcomes = reading.map(partial(read_part, shared_load)).collect()
        for _, message, may_pass in outcomes:
            if message:
                raise (DatabaseUnavailable if may_pass else UserError)(message)
        self._spool.finish(self._turn, folder, load.schema, [rows for rows, _, _ in outcomes])

    def _parts(self, load: Load, connection: Any) -> list[TablePart]:
        try:
            return split(*load.bounds(connection), self._count)
        except TypeError as error:
            raise UserError(
                f"{load.name} cannot be split by {load.split_by}: {error}. Set partition.column to "
                "a column of numbers or times, or num.partitions=1."
            ) from None
