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
        key("name", STRING, None, "Name of the connector, unique in the Connect cluster.",
            NonEmpty(), HIGH),
        key("insert.mode", STRING, "insert", "Statement that writes the rows.",
            OneOf(("insert", "upsert", "update")), HIGH),
        key("table.name.format", STRING, "${topic}",
            "Table of a topic. ${topic} is the topic's name; ${schema} and ${table} are the last "
            "two parts of it.", NonEmpty()),
        key("pk.mode", STRING, "none", "Origin of the primary key.",
            OneOf(("none", "kafka", "record_key", "record_value")), HIGH),
        key("pk.fields", LIST, [], "Columns of the primary key."),
        key("fields.whitelist", LIST, [], "Fields to write; all if empty."),
        key("field.mapping", LIST, [],
            "Columns whose names differ from the fields, as FIELD:COLUMN."),
        key("delete.enabled", BOOLEAN, False, "Whether a tombstone deletes a row."),
        key("truncate.enabled", BOOLEAN, False,
            "Whether a Debezium envelope with op=t truncates the table."),
        key("auto.create", BOOLEAN, False, "Whether to create missing tables.", None, HIGH),
        key("auto.evolve", BOOLEAN, False, "Whether to add missing columns.", None, HIGH),
        key("batch.size", INT, 3_000, "Maximum number of rows per statement.", AtLeast(1)),
        key("quote.sql.identifiers", STRING, "always",
            "Whether to quote names of tables and columns.",
            OneOf(("always", "never"), ignore_case=True)),
        key("offsets.table", STRING, "ottla_sink_offsets",
            "Table in the database that stores the offsets of written records.", NonEmpty()),
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
            raise ValueError(f"insert.mode={mode} requires a primary key; set pk.mode")
        if settings["delete.enabled"] and pk_mode != "record_key":
            raise ValueError(
                "delete.enabled requires pk.mode=record_key, because a tombstone has only a key"
            )
        if pk_mode == "kafka" and fields and len(fields) != len(KAFKA_FIELDS):
            raise ValueError("pk.mode=kafka requires three pk.fields: topic, partition and offset")
        for each in settings["field.mapping"]:
            if not all(part.strip() for part in each.split(":", 1)) or ":" not in each:
                raise ValueError(f"field.mapping must be a list of FIELD:COLUMN, not {each!r}")

    def make_task(self, settings: Settings) -> SinkTask:
        return JdbcSinkTask(settings)
