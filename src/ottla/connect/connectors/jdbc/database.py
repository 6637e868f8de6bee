"""SQLAlchemy connections and the classification of their errors.

There are three kinds of errors: the database is unavailable, full or busy (Gone, a RetriableError);
the database rejects a row (RowError); or a statement cannot be executed at all (UserError).
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ottla.base.errors import UserError
from ottla.base.installation import install_package
from ottla.connect.api import RetriableError
from ottla.connect.data import DataError

PASSING_STATES = ("08", "53", "57", "40", "55P03", "58")
"""Prefixes of PostgreSQL SQLSTATEs: connections, resources, shutdowns, deadlocks, locks."""
PASSING_CODES = {
    1021, 1037, 1038, 1040, 1041, 1053, 1077, 1079, 1114, 1152, 1158, 1159, 1160, 1161, 1205, 1213,
    1290, 1836, 1927, 2002, 2003, 2006, 2013, 2014, 2026, 2027, 2055,
}  # fmt: skip
"""MySQL error codes: disk full, connections, shutdown, locks and deadlocks, read-only."""
FILE_CODES = {3, 1004, 1005, 1026, 1030}
NO_SPACE = re.compile(r"\b(?:error|errno|Errcode): *28\b|\berror 28\b")
"""MySQL error codes for failed file operations, and the message if the disk is full."""
PASSING_SQLITE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip


class RowError(DataError):
    """The database rejects a row. The message is one sentence."""


class DatabaseUnavailable(UserError, RetriableError):
    """The database is unavailable, full or busy."""


def make_engine(url: URL, zone: str = "UTC", *, reads_only: bool = False) -> Engine:
    """Return an engine, which opens connections on demand.

    Args:
        url: Address of the database.
        zone: Time zone of the sessions.
        reads_only: Whether transactions only read, so that SQLite need not lock out writers.

    Raises:
        UserError: The driver is not installed.
    """
    arguments = _arguments(url, zone)
    try:
        engine = create_engine(url.set(query={}), poolclass=NullPool, connect_args=arguments)
    except (ImportError, NoSuchModuleError) as error:
        name = getattr(error, "name", None) or url.drivername
        raise UserError(
            f"{url.drivername} needs the package {name}. Install it with: {install_package(name)}"
        ) from None
    # psycopg logs rejected rows within a pipeline as well; the task reports them itself.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    if engine.dialect.name == "sqlite":
        _let_sqlite_have_transactions(engine, "BEGIN" if reads_only else "BEGIN IMMEDIATE")
    return engine


def _arguments(url: URL, zone: str) -> dict[str, Any]:
    properties: dict[str, Any] = {n: v for n, v in url.query.items() if isinstance(v, str)}
    kind = _kind(url)
    if kind == "sqlite":
        return properties
    made: dict[str, Any] = {"connect_timeout": 10} | properties
    made["connect_timeout"] = int(made["connect_timeout"])
    if kind == "postgresql":
        made["options"] = f"{properties.get('options', '')} -c timezone={zone}".strip()
        made.setdefault("application_name", "ottla")
    else:
        name = "+00:00" if zone == "UTC" else zone.replace("'", "")
        # Strict mode: values that do not fit raise an error instead of being truncated.
        made["init_command"] = (
            f"SET time_zone = '{name}', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        )
        made.setdefault("charset", "utf8mb4")
    return made


def _kind(url: URL) -> str:
    return url.drivername.partition("+")[0]


def _let_sqlite_have_transactions(engine: Engine, begin: str) -> None:
    """Control transactions explicitly, because the driver's implicit ones break savepoints."""

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 10000")

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(begin)


def describe_database(engine: Engine) -> str:
    url = engine.url
    if engine.dialect.name == "sqlite":
        return f"SQLite ({url.database or 'in memory'})"
    return f"{engine.dialect.name} ({url.database or ''} at {url.host}:{url.port})"


@contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Convert the driver's errors to ours."""
    try:
        yield
    except DBAPIError as error:
        raise error_message(engine, error) from None
    except SQLAlchemyError as error:
        raise UserError(f"{describe_database(engine)}: {_line(str(error))}.") from None


def error_message(engine: Engine, error: DBAPIError) -> DatabaseUnavailable | RowError:
    message = f"{describe_database(engine)}: {_line(_text(error))}."
    return (
        DatabaseUnavailable(message)
        if is_transient(engine.dialect.name, error)
        else RowError(message)
    )


def is_transient(dialect: str, error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    original: Any = error.orig
    if dialect == "postgresql":
        state = getattr(original, "sqlstate", None)
        if state is None:
            return type(original).__name__ in ("OperationalError", "InterfaceError")
        return str(state).startswith(PASSING_STATES) or str(state).startswith("28")
    if dialect in ("mysql", "mariadb"):
        if type(original).__name__ == "InterfaceError":
            return True
        code = original.args[0] if original.args else 0
        # 1044, 1045 and 1049 are wrong credentials or databases, which an administrator may fix.
        is_full = code in FILE_CODES and bool(NO_SPACE.search(str(original)))
        return code in PASSING_CODES or code in (1044, 1045, 1049) or is_full
    # The code, not the text, is decisive: a constraint may be named "full".
    return getattr(original, "sqlite_errorcode", 0) & 0xFF in PASSING_SQLITE


def _text(error: DBAPIError) -> str:
    original: Any = error.orig
    if original is not None and len(original.args) == 2 and isinstance(original.args[0], int):
        return str(original.args[1])
    return str(original)


def _line(text: str) -> str:
    line = (text.strip().splitlines() or ["no error details"])[0]
    return line.rpartition("FATAL:  ")[2].strip().rstrip(".")
