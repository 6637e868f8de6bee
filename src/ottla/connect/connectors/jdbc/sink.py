"""`JdbcSink`, also known as io.confluent.connect.jdbc.JdbcSinkConnector."""

from __future__ import annotations

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty, OneOf
from ottla.connect.api import Guarantee, SinkConnector, SinkTask
from ottla.connect.connectors.jdbc.rows import KAFKA_FIELDS
from ottla.connect.connectors.jdbc.sink_task import JdbcSinkTask
from ottla.connect.connectors.jdbc.source import CONNECTION
from ottla.connect.connectors.jdbc.url import parse_url
from ottla.connect.definition import Definition, Settings, key

STRING, INT, LIST, BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.LIST, ConfigType.BOOLEAN
HIGH = Importance.HIGH

DEFINITION = CONNECTION + Definition(
    [
        key("name", STRING, None, "The connector's name, its own in the worker.", NonEmpty(), HIGH),
        key("insert.mode", STRING, "insert", "How rows are written.",
            OneOf(("insert", "upsert", "update")), HIGH),
        key("table.name.format", STRING, "${topic}", "The table of a topic; ${schema} and ${table} "
            "are the last two parts of its name.", NonEmpty()),
        key("pk.mode", STRING, "none", "What tells rows apart.",
            OneOf(("none", "kafka", "record_key", "record_value")), HIGH),
        key("pk.fields", LIST, [], "The columns of the key."),
        key("fields.whitelist", LIST, [], "Fields that are written; none: all."),
        key("field.mapping", LIST, [], "FIELD:COLUMN, for columns of other names."),
        key("delete.enabled", BOOLEAN, False, "Whether a record without a value deletes a row."),
        key("truncate.enabled", BOOLEAN, False, "Whether an envelope of op t empties a table."),
        key("auto.create", BOOLEAN, False, "Whether missing tables are made.", None, HIGH),
        key("auto.evolve", BOOLEAN, False, "Whether missing columns are added.", None, HIGH),
        key("batch.size", INT, 3_000, "The most rows of one statement.", AtLeast(1)),
        key("quote.sql.identifiers", STRING, "always", "Whether names are quoted.",
            OneOf(("always", "never"), ignore_case=True)),
        key("offsets.table", STRING, "ottla_sink_offsets", "Where in the database it is noted what "
            "has been written.", NonEmpty()),
    ]
)  # fmt: skip


class JdbcSink(SinkConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = DEFINITION

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        parse_url(settings["connection.url"])
        mode, pk_mode, fields = settings["insert.mode"], settings["pk.mode"], settings["pk.fields"]
        if mode != "insert" and pk_mode == "none":
            raise ValueError(f"insert.mode={mode} needs a key: set pk.mode")
        if settings["delete.enabled"] and pk_mode != "record_key":
            raise ValueError("delete.enabled needs pk.mode=record_key: a tombstone has only a key")
        if pk_mode == "kafka" and fields and len(fields) != len(KAFKA_FIELDS):
            raise ValueError("pk.mode=kafka needs three pk.fields: topic, partition and offset")
        for each in settings["field.mapping"]:
            if not all(part.strip() for part in each.split(":", 1)) or ":" not in each:
                raise ValueError(f"field.mapping must be a list of FIELD:COLUMN, not {each!r}")

    def make_task(self, settings: Settings) -> SinkTask:
        return JdbcSinkTask(settings)
