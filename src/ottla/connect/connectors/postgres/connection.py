"""Connections to PostgreSQL: SQL, COPY, and the replication protocol through libpq.

Errors are single sentences: ConnectionLost for a broken connection, ResourcesExhausted for a
server without resources, and PostgresError, with its SQLSTATE, for a request that the server
rejects.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq, sql

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.connectors.postgres.pgoutput import encode_status, format_lsn, parse_lsn

SESSION = (
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex "
    "-c extra_float_digits=1 -c idle_in_transaction_session_timeout=0 -c statement_timeout=0 "
    "-c lock_timeout=0 -c row_security=off"
)
"""Session settings.

Values have the same text form on every server, a snapshot has no time limit, and row-level security
raises an error instead of hiding rows from a snapshot.
"""
CONNECT_TIMEOUT_S = 10
ENDED = ("08", "57P")
"""SQLSTATEs of closed connections, and of servers that are starting or stopping."""
SHORT = ("53", "58")
"""SQLSTATEs of servers that lack disk, memory or files, or whose disk fails."""
REMEDIES = (
    (r"start walsender|start WAL sender", "Run as a superuser: ALTER ROLE {user} REPLICATION;"),
    (r"does not have CONNECT privilege",
     "Run as its owner: GRANT CONNECT ON DATABASE {database} TO {user};"),
    (r"is not permitted to log in", "Run as a superuser: ALTER ROLE {user} LOGIN;"),
    (r"password authentication failed|role .* does not exist",
     "Check database.user and database.password; create a missing role with "
     "CREATE ROLE {user} LOGIN REPLICATION PASSWORD '...';"),
    (r"no password supplied", "Set database.password."),
    (r"database .* does not exist", "Check database.dbname; SELECT datname FROM pg_database; "
     "lists the databases of this server."),
    (r"no pg_hba.conf entry",
     "Add a line 'host {database} {user} ADDRESS/MASK scram-sha-256' to pg_hba.conf, then run as a "
     "superuser: SELECT pg_reload_conf();"),
    (r"exceeds max_wal_senders",
     "Run as a superuser: ALTER SYSTEM SET max_wal_senders = 20; and restart PostgreSQL."),
    (r"all replication slots are in use",
     "List them with SELECT slot_name, active FROM pg_replication_slots; and drop an unused one "
     "with SELECT pg_drop_replication_slot('NAME'); or run as a superuser: "
     "ALTER SYSTEM SET max_replication_slots = 20; and restart PostgreSQL."),
)  # fmt: skip
"""Patterns of PostgreSQL's messages, and the statement that removes each cause."""
_KEYWORDS = (
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check "
    "collate collation column concurrently constraint create cross current_catalog current_date "
    "current_role current_schema current_time current_timestamp current_user default deferrable "
    "desc distinct do else end except false fetch for foreign freeze from full grant group having "
    "ilike in initially inner intersect into is isnull join lateral leading left like limit "
    "localtime localtimestamp natural not notnull null offset on only or order outer overlaps "
    "placing primary references returning right select session_user similar some symmetric "
    "system_user table tablesample then to trailing true union unique user using variadic verbose "
    "when where window with"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that PostgreSQL accepts as a name only in quotes."""
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PREFIX = re.compile(r"^.*?(?:FATAL|ERROR|PANIC): +", re.DOTALL)


class PostgresError(UserError):
    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """SQLSTATE of the error."""


class ConnectionLost(PostgresError, RetriableError):
    """The connection broke; a new one may succeed."""


class ResourcesExhausted(PostgresError, RetriableError):
    """The server lacks a resource that may become available again."""


def error_for(message: str, code: str) -> PostgresError:
    return (ResourcesExhausted if code.startswith(SHORT) else PostgresError)(message, code)


class Database:
    """Address and credentials of a database."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Initialize with libpq's parameters: host, port, dbname, user, password, sslmode, …"""
        self._parameters = dict(parameters)
        port = parameters.get("port", "5432")
        self.name = parameters["dbname"]
        self.place = f"{self.name} at {parameters['host']}:{port}"
        self.user = parameters.get("user", "")

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        with self.translated_errors():
            return psycopg.connect(autocommit=True, **self._all())

    def replication(self) -> ReplicationConnection:
        text = psycopg.conninfo.make_conninfo(**self._all(replication="database"))
        connection = pq.PGconn.connect(text.encode())
        if connection.status != pq.ConnStatus.OK:
            raise self._connect_error(connection.get_error_message())
        return ReplicationConnection(connection, self)

    def raw(self) -> RawConnection:
        """Open a connection for reading COPY row by row."""
        text = psycopg.conninfo.make_conninfo(**self._all())
        connection = pq.PGconn.connect(text.encode())
        if connection.status != pq.ConnStatus.OK:
            raise self._connect_error(connection.get_error_message())
        return RawConnection(connection, self)

    def _all(self, **more: str) -> Any:
        return {
            "connect_timeout": str(CONNECT_TIMEOUT_S),
            "client_encoding": "UTF8",
            "options": SESSION,
            "keepalives_idle": "30",
            "tcp_user_timeout": "60000",
            **self._parameters,
            **more,
        }

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Convert psycopg's errors to ours."""
        try:
            yield
        except psycopg.OperationalError as error:
            if error.sqlstate is None or error.sqlstate.startswith(ENDED):
                raise self._connect_error(str(error)) from None
            raise error_for(self.error_message(str(error)), error.sqlstate) from None
        except psycopg.Error as error:
            raise error_for(self.error_message(str(error)), error.sqlstate or "") from None

    def error_message(self, text: str) -> str:
        return f"PostgreSQL ({self.place}): {first_line(text)}.{self._remedy(text)}"

    def _connect_error(self, text: str) -> ConnectionLost:
        what = "refuses the connection" if "FATAL:" in text else "cannot be reached"
        message = f"PostgreSQL ({self.place}) {what}: {first_line(text)}.{self._remedy(text)}"
        return ConnectionLost(message)

    def _remedy(self, text: str) -> str:
        """Return what to do about an error, with a leading space, or '' if that is unknown."""
        for pattern, remedy in REMEDIES:
            if re.search(pattern, text):
                return " " + remedy.format(
                    user=identifier(self.user), database=identifier(self.name)
                )
        return ""


def first_line(text: str) -> str:
    lines = _PREFIX.sub("", text.strip()).splitlines() or [""]
    return lines[0].strip().rstrip(".")


class RawConnection:
    """Connection through libpq's own functions."""

    def __init__(self, connection: Any, database: Database) -> None:
        self._connection = connection
        self._database = database
        self._poll = select.poll()
        self._poll.register(connection.socket, select.POLLIN)

    def close(self) -> None:
        self._connection.finish()

    def execute(self, statement: str) -> list[tuple[str | None, ...]]:
        """Execute with the simple query protocol, which replication connections require."""
        result = self._connection.exec_(statement.encode())
        if result.status == pq.ExecStatus.TUPLES_OK:
            return [
                tuple(_decoded(result.get_value(row, column)) for column in range(result.nfields))
                for row in range(result.ntuples)
            ]
        self._check(result, pq.ExecStatus.COMMAND_OK)
        return []

    def copy_out(self, statement: str) -> None:
        self._check(self._connection.exec_(statement.encode()), pq.ExecStatus.COPY_OUT)

    def next_row(self) -> bytes | None:
        """Wait for and return the next line of COPY, or None at its end."""
        size, data = self._connection.get_copy_data(0)
        if size > 0:
            return bytes(data)
        if size == -1:
            self._check(self._connection.get_result(), pq.ExecStatus.COMMAND_OK)
            while self._connection.get_result() is not None:
                pass
            return None
        raise self._broken()

    def _check(self, result: Any, wanted: pq.ExecStatus) -> None:
        if result is None or self._connection.status != pq.ConnStatus.OK:
            raise self._broken()
        if result.status != wanted:
            code = _decoded(result.error_field(pq.DiagnosticField.SQLSTATE)) or ""
            text = result.get_error_message()
            raise error_for(self._database.error_message(text), code)

    def _broken(self) -> ConnectionLost:
        message = first_line(self._connection.get_error_message())
        if not message or message.startswith("no error details"):
            message = "it was closed"
        return ConnectionLost(
            f"PostgreSQL ({self._database.place}) ended the connection: {message}."
        )


class ReplicationConnection(RawConnection):
    def create_slot(self, name: str) -> tuple[int, str]:
        """Create a slot; return its first LSN and a snapshot, valid until the next command."""
        statement = f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        ((_, lsn, snapshot, _),) = self.execute(statement)
        assert lsn is not None
        assert snapshot is not None
        return parse_lsn(lsn), snapshot

    def start(self, slot: str, lsn: int, publications: list[str]) -> None:
        names = literal(",".join(quoted(each) for each in publications))
        statement = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {format_lsn(lsn)} "
            f"(proto_version '1', publication_names {names})"
        )
        self._check(self._connection.exec_(statement.encode()), pq.ExecStatus.COPY_BOTH)

    def receive(self, wait_s: float) -> bytes | None:
        """Return the next message, or None after a timeout.

        Raises:
            ConnectionLost: The stream ended.
        """
        connection = self._connection
        size, data = connection.get_copy_data(1)
        if size == 0:
            if not self._poll.poll(wait_s * 1000):
                return None
            try:
                connection.consume_input()
            except psycopg.OperationalError:
                raise self._broken() from None
            size, data = connection.get_copy_data(1)
        if size > 0:
            return bytes(data)
        if size == 0:
            return None
        result = connection.get_result() if size == -1 else None
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            self._check(result, pq.ExecStatus.COMMAND_OK)
        raise self._broken()

    def send_status(self, flushed: int) -> None:
        try:
            self._connection.put_copy_data(encode_status(flushed, time.time_ns() // 1000))
            self._connection.flush()
        except psycopg.OperationalError:
            raise self._broken() from None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def identifier(name: str) -> str:
    """Return a name as SQL needs it: in quotes only where PostgreSQL requires them."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in KEYWORDS else quoted(name)


def literal(text: str) -> str:
    return sql.Literal(text).as_string()


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
