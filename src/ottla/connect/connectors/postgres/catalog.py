"""Queries of PostgreSQL's system catalogs: tables, keys, types, publications and slots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres.connection import (
    ConnectionLost,
    Database,
    PostgresError,
    identifier,
    literal,
)
from ottla.connect.connectors.postgres.pgoutput import Relation, RelationColumn
from ottla.connect.connectors.postgres.types import BUILT_IN, TypeInfo

OLDEST_VERSION = 130000
IN_USE = "55006"
DROP_TURNS, DROP_PAUSE_S = 50, 0.1
_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relreplident,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
       c.relkind = 'p'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY n.nspname, c.relname"""
_NOT_CAPTURED = """
SELECT n.nspname, c.relname,
       CASE WHEN c.relispartition THEN 'a partition of ' || (
                SELECT format('%s.%s', pn.nspname, p.relname)
                FROM pg_partition_ancestors(c.oid) a JOIN pg_class p ON p.oid = a.relid
                JOIN pg_namespace pn ON pn.oid = p.relnamespace
                WHERE NOT p.relispartition)
            WHEN c.relkind = 'v' THEN 'a view'
            WHEN c.relkind = 'm' THEN 'a materialized view'
            WHEN c.relkind = 'f' THEN 'a foreign table'
            WHEN c.relpersistence = 'u' THEN 'an unlogged table'
            ELSE 'a temporary table' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (c.relkind NOT IN ('r', 'p') OR c.relispartition OR c.relpersistence <> 'p')
ORDER BY n.nspname, c.relname"""
_ACCESS = """
SELECT n.nspname || '.' || c.relname,
       has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (
           SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
           AND NOT a.attisdropped AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')),
       NOT row_security_active(c.oid),
       pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY (ARRAY[{oids}]::oid[])"""
_READER = """
SELECT s.active_pid, a.usename, a.application_name, host(a.client_addr)
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = {name} AND s.active_pid IS NOT NULL"""
_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey)
               AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END),
       c.relname, n.nspname, c.relreplident
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum"""
_TYPES = """
SELECT t.oid, t.typname, t.typtype, t.typbasetype, t.typtypmod,
       CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid
             ORDER BY e.enumsortorder)
FROM pg_type t WHERE t.oid = ANY (ARRAY[{oids}]::oid[])"""
_SLOT = """
SELECT plugin, active_pid, (restart_lsn - '0/0')::bigint, (confirmed_flush_lsn - '0/0')::bigint,
       wal_status, (pg_current_wal_lsn() - restart_lsn)::bigint, database = current_database()
FROM pg_replication_slots WHERE slot_name = {name}"""


_SILENT = """
SELECT pg_terminate_backend(r.pid)
FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
WHERE s.slot_name = {name} AND r.usename = current_user
  AND now() - COALESCE(r.reply_time, r.backend_start) > {seconds} * interval '1 second'"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    oid: int
    schema: str
    name: str
    identity: str
    has_primary_key: bool
    is_partitioned: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    @property
    def has_replica_identity(self) -> bool:
        """Whether the table has a replica identity.

        Without one, PostgreSQL rejects updates of a table whose updates are published.
        """
        return self.identity in "fi" or (self.identity == "d" and self.has_primary_key)


@dataclass(frozen=True, slots=True)
class Access:
    """Privileges of the connector's role on one table."""

    uses_schema: bool
    selects: bool
    sees_all_rows: bool
    """Whether no row-level security policy applies to the role."""
    owns: bool


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    plugin: str
    active_pid: int | None
    restart_lsn: int | None
    confirmed_lsn: int | None
    wal_status: str | None
    kept_bytes: int | None
    """Size of the WAL that PostgreSQL retains for the slot."""
    is_here: bool
    """Whether the slot belongs to this database."""


class Catalog:
    """Connection for catalog queries, which is reopened when it breaks."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection: Any = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        if self._connection is not None and not self._connection.closed:
            try:
                return self._query(statement)
            except ConnectionLost:
                # The database restarted while the connection was idle.
                self.close()
        self._connection = self.database.connect()
        return self._query(statement)

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.database.translated_errors():
            cursor = self._connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    # ---------------------------------------------------------------------------------- server

    def check_server(self) -> None:
        """Raise UserError if the server does not support replication."""
        ((level, version),) = self.query(
            "SELECT current_setting('wal_level'), current_setting('server_version_num')::int"
        )
        if version < OLDEST_VERSION:
            raise UserError(f"{self.database.place} is older than PostgreSQL 13.")
        if level != "logical":
            raise UserError(
                f"{self.database.place} has wal_level={level}, but change capture needs "
                "wal_level=logical. Run as a superuser: ALTER SYSTEM SET wal_level = logical; and "
                "restart PostgreSQL."
            )
        ((can_replicate,),) = self.query(
            "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        )
        if not can_replicate:
            raise UserError(
                f"The role {self.database.user} lacks the REPLICATION attribute in "
                f"{self.database.place}. Run as a superuser: "
                f"ALTER ROLE {identifier(self.database.user)} REPLICATION;"
            )

    def wal_position(self) -> int:
        ((lsn,),) = self.query("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
        return int(lsn)

    # ---------------------------------------------------------------------------------- tables

    def tables(self) -> list[FoundTable]:
        return [FoundTable(*each) for each in self.query(_TABLES)]

    def not_captured(self) -> list[tuple[str, str, str]]:
        """Return schema, name and kind of relations whose changes PostgreSQL does not publish."""
        return [(schema, name, kind) for schema, name, kind in self.query(_NOT_CAPTURED)]

    def access(self, tables: Iterable[FoundTable]) -> dict[str, Access]:
        """Return the role's privileges on each table, by full name."""
        listed = ",".join(str(int(each.oid)) for each in tables)
        rows = self.query(_ACCESS.format(oids=listed))
        return {name: Access(*properties) for name, *properties in rows}

    def may_create_publications(self) -> bool:
        ((may,),) = self.query("SELECT has_database_privilege(current_database(), 'CREATE')")
        return bool(may)

    def relation(self, oid: int) -> Relation | None:
        """Return a table in the form of a replication message, or None if it does not exist."""
        rows = self.query(_COLUMNS.format(oid=int(oid)))
        if not rows:
            return None
        columns = tuple(RelationColumn(*each[:4]) for each in rows)
        _, _, _, _, name, schema, identity = rows[0]
        return Relation(oid, schema, name, identity, columns)

    def primary_key(self, relation: Relation) -> tuple[str, ...]:
        """Return the key columns, which the stream does not contain with REPLICA IDENTITY FULL."""
        if relation.identity in "di":
            return tuple(each.name for each in relation.columns if each.is_identity)
        found = self.relation(relation.oid)
        if found is None:
            return ()
        return tuple(each.name for each in found.columns if each.is_identity)

    def types(self, oids: Iterable[int]) -> dict[int, TypeInfo]:
        """Return the types that are not built in, and the types they consist of."""
        found: dict[int, TypeInfo] = {}
        wanted = {oid for oid in oids if oid not in BUILT_IN}
        while wanted:
            listed = ",".join(str(int(oid)) for oid in sorted(wanted))
            rows = self.query(_TYPES.format(oids=listed))
            new = {
                oid: TypeInfo(name, kind, base, modifier, element, tuple(labels))
                for oid, name, kind, base, modifier, element, labels in rows
            }
            found |= new
            inner = {oid for each in new.values() for oid in (each.base_oid, each.element_oid)}
            wanted = {oid for oid in inner if oid and oid not in BUILT_IN and oid not in found}
        return found

    # ----------------------------------------------------------------------------------- slot

    def slot(self, name: str) -> ReplicationSlot | None:
        rows = self.query(_SLOT.format(name=literal(name)))
        return ReplicationSlot(*rows[0]) if rows else None

    def reader_of(self, name: str) -> tuple[int, str] | None:
        """Return the process ID that reads from a slot and a description of it."""
        rows = self.query(_READER.format(name=literal(name)))
        if not rows:
            return None
        pid, role, application, host = rows[0]
        described = (
            f"PID {pid}",
            role and f"role {role}",
            application and f"application {application!r}",
            host and f"from {host}",
        )
        return int(pid), ", ".join(filter(None, described))

    def drop_slot(self, name: str) -> None:
        """Drop a slot, after terminating a process that uses it."""
        slot = self.slot(name)
        if slot is None:
            return
        if slot.active_pid is not None:
            self.query(f"SELECT pg_terminate_backend({int(slot.active_pid)})")
        for load_id in range(DROP_TURNS):
            try:
                self.query(f"SELECT pg_drop_replication_slot({literal(name)})")
                return
            except PostgresError as error:
                if error.code != IN_USE or load_id == DROP_TURNS - 1:
                    raise
                time.sleep(DROP_PAUSE_S)

    def terminate_silent_reader(self, name: str, silent_s: float) -> bool:
        """Terminate the process that reads from the slot, if it has been silent for too long.

        It belongs to a worker that is suspended or disconnected, whose writes to topics are fenced.
        """
        statement = _SILENT.format(name=literal(name), seconds=float(silent_s))
        return bool(self.query(statement))

    # ---------------------------------------------------------------------------- publications

    def publication(self, name: str) -> set[str] | None:
        """Return the tables of a publication, or None if it does not exist."""
        if not self.query(f"SELECT FROM pg_publication WHERE pubname = {literal(name)}"):
            return None
        rows = self.query(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables "
            f"WHERE pubname = {literal(name)}"
        )
        return {name for (name,) in rows}

    def publishes_all(self, name: str) -> bool:
        rows = self.query(
            f"SELECT puballtables FROM pg_publication WHERE pubname = {literal(name)}"
        )
        return bool(rows and rows[0][0])

    def owns_publication(self, name: str) -> bool:
        rows = self.query(
            f"SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication "
            f"WHERE pubname = {literal(name)}"
        )
        return bool(rows and rows[0][0])

    def publishes_by_root(self, name: str) -> bool:
        """Return whether changes of partitions are published as changes of their root table."""
        rows = self.query(f"SELECT pubviaroot FROM pg_publication WHERE pubname = {literal(name)}")
        return bool(rows and rows[0][0])

    def change_publication(self, statement: str) -> None:
        """Run a statement that creates or alters a publication.

        Raises:
            PostgresError: The role lacks a privilege; the message has the statement.
        """
        try:
            self.query(f"{statement};")
        except PostgresError as error:
            if error.code != "42501":
                raise
            raise PostgresError(f"{error} Run as a superuser: {statement};", error.code) from None


def create_publication(
    name: str, tables: Sequence[FoundTable] | None, *, only_inserts: bool = False
) -> str:
    """Return the statement for a publication of the given tables, or of all if `tables` is None."""
    if tables is None:
        target = " FOR ALL TABLES"
    else:
        listed = ", ".join(each.sql_name for each in tables)
        target = f" FOR TABLE {listed}" if listed else ""
    options = ["publish_via_partition_root = true"]
    if only_inserts:
        options.append("publish = 'insert, truncate'")
    return f"CREATE PUBLICATION {identifier(name)}{target} WITH ({', '.join(options)})"


def add_to_publication(name: str, tables: Sequence[FoundTable]) -> str:
    listed = ", ".join(each.sql_name for each in tables)
    return f"ALTER PUBLICATION {identifier(name)} ADD TABLE {listed}"


def drop_from_publication(name: str, table: FoundTable) -> str:
    return f"ALTER PUBLICATION {identifier(name)} DROP TABLE {table.sql_name}"
