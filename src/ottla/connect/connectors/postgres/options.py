"""Properties of the connector, with Debezium's names where it has them, in parsed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, Between, EachOneOf, NonEmpty, OneOf
from ottla.connect.connectors.postgres.connection import Database
from ottla.connect.connectors.postgres.slot import LagPolicy
from ottla.connect.connectors.postgres.snapshot_modes import SnapshotMode, snapshot_mode
from ottla.connect.connectors.postgres.tables import KeyColumns, Selection
from ottla.connect.connectors.postgres.types import TypeModes
from ottla.connect.definition import Definition, key

STRING, INT, LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST, BOOLEAN, PASSWORD = ConfigType.LIST, ConfigType.BOOLEAN, ConfigType.PASSWORD
HIGH = Importance.HIGH
MiB = 1024 * 1024

DEFINITION = Definition(
    [
        key("database.hostname", STRING, None,
            "Host of PostgreSQL, or the directory of its Unix socket.", NonEmpty(), HIGH),
        key("database.port", INT, 5432, "Port of PostgreSQL.", Between(1, 65535)),
        key("database.user", STRING, None,
            "Role to connect as; it needs REPLICATION, and SELECT on the tables.",
            NonEmpty(), HIGH),
        key("database.password", PASSWORD, "", "Password of the role.", None, HIGH),
        key("database.dbname", STRING, None, "Name of the database.", NonEmpty(), HIGH),
        key("database.sslmode", STRING, "prefer", "TLS mode of connections, as in libpq.",
            OneOf(("disable", "allow", "prefer", "require", "verify-ca", "verify-full"))),
        key("database.sslrootcert", STRING, "",
            "File with the certificate of the certificate authority."),
        key("database.sslcert", STRING, "", "File with the client's certificate."),
        key("database.sslkey", STRING, "",
            "File with the private key of the client's certificate."),
        key("topic.prefix", STRING, None, "Prefix of topics, which are named PREFIX.SCHEMA.TABLE.",
            NonEmpty(), HIGH),
        key("schema.include.list", LIST, [], "Regular expressions of the schemas to capture."),
        key("schema.exclude.list", LIST, [], "Regular expressions of the schemas not to capture."),
        key("table.include.list", LIST, [],
            "Regular expressions of the tables to capture, as SCHEMA.TABLE.", None, HIGH),
        key("table.exclude.list", LIST, [],
            "Regular expressions of the tables not to capture, as SCHEMA.TABLE."),
        key("column.include.list", LIST, [],
            "Regular expressions of the columns to capture, as SCHEMA.TABLE.COLUMN."),
        key("column.exclude.list", LIST, [],
            "Regular expressions of the columns not to capture, as SCHEMA.TABLE.COLUMN."),
        key("message.key.columns", STRING, "",
            "Columns of record keys, as SCHEMA.TABLE:COLUMN,COLUMN;…"),
        key("plugin.name", STRING, "pgoutput",
            "Logical decoding plugin. Only PostgreSQL's own, pgoutput, is supported.",
            OneOf(("pgoutput",))),
        key("slot.name", STRING, "ottla",
            "Name of the replication slot. Each connector needs its own.", NonEmpty(), HIGH),
        key("publication.name", STRING, "",
            "Name of the publication; the name of the slot if empty."),
        key("publication.autocreate.mode", STRING, "filtered",
            "Management of the publication. filtered adds captured tables that it lacks, "
            "all_tables creates it for all tables, disabled never changes it.",
            OneOf(("filtered", "all_tables", "disabled"))),
        key("snapshot.mode", STRING, "initial",
            "When existing rows are read. initial: at the first start; when_needed: also when "
            "changes were lost; always: at each start; initial_only: at the first start, without "
            "changes afterwards; no_data: never.", NonEmpty()),
        key("tombstones.on.delete", BOOLEAN, True,
            "Whether to write a tombstone after each delete."),
        key("skipped.operations", LIST, [],
            "Operations to skip: c (create), u (update), d (delete) and t (truncate).",
            EachOneOf(("c", "u", "d", "t", "none"))),
        key("provide.transaction.metadata", BOOLEAN, False,
            "Whether to write transaction boundaries to PREFIX.transaction, and the transaction "
            "to each record."),
        key("decimal.handling.mode", STRING, "precise", "Representation of numeric columns.",
            OneOf(("precise", "double", "string"))),
        key("time.precision.mode", STRING, "adaptive",
            "Representation of date, time and timestamp columns.",
            OneOf(("adaptive", "adaptive_time_microseconds", "connect"))),
        key("interval.handling.mode", STRING, "string", "Representation of interval columns.",
            OneOf(("string", "numeric"))),
        key("array.handling.mode", STRING, "array", "Representation of array columns.",
            OneOf(("array", "string"))),
        key("unavailable.value.placeholder", STRING, "__debezium_unavailable_value",
            "Placeholder for a large value that an update did not change."),
        key("heartbeat.interval.ms", INT, 0,
            "Interval between records in the heartbeat topic, in milliseconds; 0 for none. WAL "
            "is released for idle tables in either case.", AtLeast(0)),
        key("heartbeat.action.query", STRING, "", "SQL statement to run with each heartbeat."),
        key("topic.heartbeat.prefix", STRING, "__debezium-heartbeat",
            "Prefix of the heartbeat topic's name."),
        key("status.update.interval.ms", INT, 2_000,
            "Interval between status updates to PostgreSQL, in milliseconds. After three missed "
            "updates, another worker may take over the slot.", AtLeast(1)),
        key("slot.lag.check.interval.ms", INT, 10_000,
            "Interval between checks of the WAL that the slot retains, in milliseconds.",
            AtLeast(10)),
        key("slot.lag.warn.bytes", LONG, 1024 * MiB,
            "Amount of retained WAL above which a warning is logged, in bytes; 0 for no warning.",
            AtLeast(0)),
        key("slot.lag.max.bytes", LONG, 0,
            "Amount of retained WAL above which slot.lag.policy applies, in bytes; 0 for no "
            "limit.", AtLeast(0)),
        key("slot.lag.policy", STRING, "warn",
            "Action when slot.lag.max.bytes is exceeded: log a warning, pause the connector, or "
            "drop the slot.", OneOf(("warn", "pause", "drop"))),
        key("max.batch.size", INT, 20_000, "Maximum number of records per poll.", AtLeast(1)),
        key("max.batch.size.in.bytes", LONG, 16 * MiB, "Maximum size of a poll, in bytes.",
            AtLeast(1)),
    ],
    required=["database.hostname", "database.user", "database.dbname", "topic.prefix"],
)  # fmt: skip

LOOK_EVERY_S = 10.0
"""Interval between checks for new tables and idle progress if there is no heartbeat."""


@dataclass(frozen=True)
class Options:
    prefix: str
    database: Database
    database_name: str
    selection: Selection
    key_columns: KeyColumns
    slot_name: str
    publication_name: str
    publication_mode: str
    snapshot: SnapshotMode
    has_tombstones: bool
    skipped: frozenset[str]
    marks_transactions: bool
    modes: TypeModes
    placeholder: str
    beats: bool
    heartbeat_s: float
    heartbeat_query: str
    heartbeat_topic: str
    status_s: float
    lag_check_s: float
    lag_policy: LagPolicy
    batch_records: int
    batch_bytes: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Options:
        """Parse the settings; raise ValueError with a one-sentence message if they are invalid."""
        interval_s = settings["heartbeat.interval.ms"] / 1000
        return cls(
            prefix=settings["topic.prefix"],
            database=_database(settings),
            database_name=settings["database.dbname"],
            selection=Selection.of(settings),
            key_columns=KeyColumns.of(settings["message.key.columns"]),
            slot_name=_slot_name(settings["slot.name"]),
            publication_name=settings["publication.name"] or settings["slot.name"],
            publication_mode=settings["publication.autocreate.mode"],
            snapshot=snapshot_mode(settings["snapshot.mode"]),
            has_tombstones=settings["tombstones.on.delete"],
            skipped=frozenset(settings["skipped.operations"]) - {"none"},
            marks_transactions=settings["provide.transaction.metadata"],
            modes=TypeModes(
                settings["decimal.handling.mode"],
                settings["time.precision.mode"],
                settings["interval.handling.mode"],
                settings["array.handling.mode"],
            ),
            placeholder=settings["unavailable.value.placeholder"],
            beats=interval_s > 0,
            heartbeat_s=interval_s or LOOK_EVERY_S,
            heartbeat_query=settings["heartbeat.action.query"],
            heartbeat_topic=settings["topic.heartbeat.prefix"],
            status_s=settings["status.update.interval.ms"] / 1000,
            lag_check_s=settings["slot.lag.check.interval.ms"] / 1000,
            lag_policy=LagPolicy(
                settings["slot.lag.warn.bytes"],
                settings["slot.lag.max.bytes"],
                settings["slot.lag.policy"],
            ),
            batch_records=settings["max.batch.size"],
            batch_bytes=settings["max.batch.size.in.bytes"],
        )


def _database(settings: Mapping[str, Any]) -> Database:
    names = {
        "host": "hostname", "port": "port", "dbname": "dbname", "user": "user",
        "password": "password", "sslmode": "sslmode", "sslrootcert": "sslrootcert",
        "sslcert": "sslcert", "sslkey": "sslkey",
    }  # fmt: skip
    properties = {ours: str(settings[f"database.{theirs}"]) for ours, theirs in names.items()}
    prefix = settings["topic.prefix"]
    return Database(
        {"application_name": f"ottla {prefix}"} | {k: v for k, v in properties.items() if v}
    )


def _slot_name(name: str) -> str:
    if not 0 < len(name) <= 63 or not all(each in _SLOT_LETTERS for each in name):
        raise ValueError(
            "slot.name must have at most 63 lower-case letters, digits and underscores, not "
            f"{name!r}"
        )
    return name


_SLOT_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
