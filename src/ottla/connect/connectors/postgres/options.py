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
        key("database.hostname", STRING, None, "Where PostgreSQL is: a host, or the folder of its "
            "socket.", NonEmpty(), HIGH),
        key("database.port", INT, 5432, "Its port.", Between(1, 65535)),
        key("database.user", STRING, None,
            "Role to connect as; it needs REPLICATION, and SELECT on the tables.",
            NonEmpty(), HIGH),
        key("database.password", PASSWORD, "", "Its password.", None, HIGH),
        key("database.dbname", STRING, None, "The database.", NonEmpty(), HIGH),
        key("database.sslmode", STRING, "prefer", "As libpq has it.",
            OneOf(("disable", "allow", "prefer", "require", "verify-ca", "verify-full"))),
        key("database.sslrootcert", STRING, "", "The certificate authority's file."),
        key("database.sslcert", STRING, "", "The file of our certificate."),
        key("database.sslkey", STRING, "", "The file of its key."),
        key("topic.prefix", STRING, None, "Topics are PREFIX.SCHEMA.TABLE.", NonEmpty(), HIGH),
        key("schema.include.list", LIST, [], "Patterns of schemas that are captured."),
        key("schema.exclude.list", LIST, [], "Patterns of schemas that are not."),
        key("table.include.list", LIST, [], "Patterns of SCHEMA.TABLE that are captured.",
            None, HIGH),
        key("table.exclude.list", LIST, [], "Patterns of SCHEMA.TABLE that are not."),
        key("column.include.list", LIST, [], "Patterns of SCHEMA.TABLE.COLUMN that are captured."),
        key("column.exclude.list", LIST, [], "Patterns of SCHEMA.TABLE.COLUMN that are not."),
        key("message.key.columns", STRING, "", "Keys of tables: SCHEMA.TABLE:COLUMN,COLUMN;…"),
        key("plugin.name", STRING, "pgoutput", "PostgreSQL's own decoder.", OneOf(("pgoutput",))),
        key("slot.name", STRING, "ottla", "The replication slot; each connector has its own.",
            NonEmpty(), HIGH),
        key("publication.name", STRING, "", "The publication; else it is called as the slot."),
        key("publication.autocreate.mode", STRING, "filtered",
            "filtered: add captured tables that the publication lacks; all_tables: create it for "
            "all tables; disabled: leave the publication to somebody else.",
            OneOf(("filtered", "all_tables", "disabled"))),
        key("snapshot.mode", STRING, "initial",
            "initial: the rows that are there first; when_needed: also when changes were lost; "
            "always: at each start; initial_only: rows and no changes; no_data: changes only.",
            NonEmpty()),
        key("tombstones.on.delete", BOOLEAN, True, "Whether a delete is followed by a tombstone."),
        key("skipped.operations", LIST, [], "c, u, d or t: operations that are left out.",
            EachOneOf(("c", "u", "d", "t", "none"))),
        key("provide.transaction.metadata", BOOLEAN, False,
            "Whether transactions are marked, in PREFIX.transaction and each record."),
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
            "Stands for a large value that an update did not touch."),
        key("heartbeat.interval.ms", INT, 0,
            "How often a heartbeat is sent to its topic; 0: never. Idle tables pin no WAL "
            "either way.", AtLeast(0)),
        key("heartbeat.action.query", STRING, "", "A statement to run with each."),
        key("topic.heartbeat.prefix", STRING, "__debezium-heartbeat", "Of that topic's name."),
        key("status.update.interval.ms", INT, 2_000, "How often PostgreSQL is told where we are; "
            "after three of them without a word another worker may take over.", AtLeast(1)),
        key("slot.lag.check.interval.ms", INT, 10_000, "How often it is seen what the slot keeps.",
            AtLeast(10)),
        key("slot.lag.warn.bytes", LONG, 1024 * MiB, "More WAL kept back is warned of; 0: never.",
            AtLeast(0)),
        key("slot.lag.max.bytes", LONG, 0, "More is what slot.lag.policy is for; 0: no bound.",
            AtLeast(0)),
        key("slot.lag.policy", STRING, "warn", "What is done then.",
            OneOf(("warn", "pause", "drop"))),
        key("max.batch.size", INT, 20_000, "The most records at once.", AtLeast(1)),
        key("max.batch.size.in.bytes", LONG, 16 * MiB, "The most bytes at once.", AtLeast(1)),
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
            "slot.name may have small letters, digits and underscores, at most 63 of them; "
            f"not {name!r}"
        )
    return name


_SLOT_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
