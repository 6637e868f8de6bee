"""`JdbcSource`, also known as io.confluent.connect.jdbc.JdbcSourceConnector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, Between, NonEmpty, OneOf
from ottla.connect.api import Guarantee, SourceConnector, SourceTask
from ottla.connect.connectors.jdbc.modes import BOTH, BULK, INCREMENTING, MODES, TIMESTAMP
from ottla.connect.connectors.jdbc.source_task import JdbcSourceTask
from ottla.connect.connectors.jdbc.url import parse_url
from ottla.connect.definition import Definition, Settings, key

STRING, INT, LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST, BOOLEAN, PASSWORD = ConfigType.LIST, ConfigType.BOOLEAN, ConfigType.PASSWORD
HIGH = Importance.HIGH
MAX_PARTITIONS = 1_000
TASK_NUMBER, TASK_COUNT = "task.number", "task.count"

CONNECTION = Definition(
    [
        key("connection.url", STRING, None,
            "URL of the database: jdbc:postgresql://host/database, jdbc:mariadb://…, "
            "jdbc:mysql://… or jdbc:sqlite:FILE.", NonEmpty(), HIGH),
        key("connection.user", STRING, "", "User name for the connection.", None, HIGH),
        key("connection.password", PASSWORD, "", "Password of the user.", None, HIGH),
        key("db.timezone", STRING, "UTC",
            "Time zone of the session, which applies to timestamps without one.", NonEmpty()),
    ],
    required=["connection.url"],
)  # fmt: skip

DEFINITION = CONNECTION + Definition(
    [
        key("mode", STRING, None, "Method of finding new rows.", OneOf(MODES), HIGH),
        key("incrementing.column.name", STRING, "",
            "Column whose values increase with every new row.", None, HIGH),
        key("timestamp.column.name", LIST, [],
            "Columns with the time of the last change. The first one that is not null is used.",
            None, HIGH),
        key("timestamp.delay.interval.ms", LONG, 0,
            "Minimum age of a row's timestamp, in milliseconds, so that transactions still open "
            "can commit first.", AtLeast(0)),
        key("timestamp.initial", LONG, None,
            "Timestamp to start at, in milliseconds; -1 for the current time."),
        key("validate.non.null", BOOLEAN, True,
            "Whether the incrementing and timestamp columns must be NOT NULL."),
        key("query", STRING, "", "Query to read instead of tables."),
        key("query.suffix", STRING, "", "Text to append to each statement."),
        key("table.whitelist", LIST, [], "Tables to read; all if empty.", None, HIGH),
        key("table.blacklist", LIST, [], "Tables not to read."),
        key("schema.pattern", STRING, "",
            "Schema of the tables. The connection's default schema if empty."),
        key("topic.prefix", STRING, "",
            "Prefix of topics, before the table's name. With query, the name of the topic.", None,
            HIGH),
        key("poll.interval.ms", INT, 5_000,
            "Interval between queries for new rows, in milliseconds.", AtLeast(0)),
        key("table.poll.interval.ms", LONG, 60_000,
            "Interval between searches for new tables, in milliseconds.", AtLeast(1)),
        key("batch.max.rows", INT, 5_000, "Maximum number of rows per poll.", AtLeast(1)),
        key("num.partitions", INT, 1, "Number of Spark tasks that read a bulk load in parallel.",
            Between(1, MAX_PARTITIONS)),
        key("partition.column", STRING, "",
            "Column of numbers or times that divides a bulk load among Spark tasks. The first "
            "column of the primary key if empty."),
        key("checkpoint.location", STRING, "",
            "Directory, shared by workers and Spark, for the rows of a bulk load that are not in "
            "topics yet."),
        key("numeric.mapping", STRING, "none", "Representation of numeric columns.",
            OneOf(("none", "precision_only", "best_fit", "best_fit_eager_double"))),
        key("timestamp.granularity", STRING, "connect_logical",
            "Representation of timestamp columns.",
            OneOf(("connect_logical", "micros_long", "micros_iso_datetime_string"))),
        key("quote.sql.identifiers", STRING, "always",
            "Whether to quote names of tables and columns.",
            OneOf(("always", "never"), ignore_case=True)),
    ],
    required=["mode"],
)  # fmt: skip


class JdbcSource(SourceConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = DEFINITION

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        parse_url(settings["connection.url"])
        mode = settings["mode"]
        if mode in (INCREMENTING, BOTH) and not settings["incrementing.column.name"]:
            raise ValueError(f"mode={mode} requires incrementing.column.name")
        if mode in (TIMESTAMP, BOTH) and not settings["timestamp.column.name"]:
            raise ValueError(f"mode={mode} requires timestamp.column.name")
        lists = bool(settings["table.whitelist"]), bool(settings["table.blacklist"])
        if all(lists):
            raise ValueError("table.whitelist and table.blacklist exclude each other")
        if settings["query"] and any(lists):
            raise ValueError("table.whitelist and table.blacklist cannot be combined with query")
        if settings["query"] and not settings["topic.prefix"]:
            raise ValueError("query requires topic.prefix, which is the name of the topic")
        if settings["query"] and re.search(r";\s*$", settings["query"]):
            raise ValueError("query must not end with a semicolon")

        self._check_parts(settings)
        # Parallel loads are Spark jobs, which only the worker can submit.
        self.uses_spark_session = settings["num.partitions"] > 1

    def _check_parts(self, settings: Settings) -> None:
        if settings["num.partitions"] == 1:
            if settings["partition.column"]:
                raise ValueError("partition.column requires num.partitions of at least 2")
            return
        if settings["mode"] != BULK:
            raise ValueError(f"num.partitions requires mode=bulk, not mode={settings['mode']}")
        if settings["query"] and not settings["partition.column"]:
            raise ValueError("query with num.partitions requires partition.column")
        if not settings["checkpoint.location"]:
            raise ValueError(
                "num.partitions requires checkpoint.location, a directory for the rows that were "
                "read"
            )

    def task_settings(self, max_tasks: int) -> list[Settings]:
        """Return the settings of each task; the tables are divided among the tasks by name."""
        count = 1 if self.settings["query"] else max_tasks
        if self.settings["table.whitelist"]:
            count = min(count, len(self.settings["table.whitelist"]))
        return [
            {**self.settings, TASK_NUMBER: number, TASK_COUNT: count} for number in range(count)
        ]

    def make_task(self, settings: Settings) -> SourceTask:
        number, count = settings.get(TASK_NUMBER, 0), settings.get(TASK_COUNT, 1)
        return JdbcSourceTask(settings, number, count)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        if "table" not in partition and "query" not in partition:
            raise ValueError(
                'a source partition of this connector must have the form {"protocol": "1", '
                '"table": …} or {"query": "query"}'
            )
        numbers = ("incrementing", "timestamp", "timestamp_nanos", "turn", "rows")
        for name in numbers:
            if not isinstance(offset.get(name, 0), int):
                raise ValueError(f"{name} in a source offset must be a number")
