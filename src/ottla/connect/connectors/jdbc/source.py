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
        key("connection.url", STRING, None, "jdbc:postgresql://host/database, jdbc:mariadb://…, "
            "jdbc:mysql://…, jdbc:sqlite:FILE.", NonEmpty(), HIGH),
        key("connection.user", STRING, "", "User name for the connection.", None, HIGH),
        key("connection.password", PASSWORD, "", "Password of the user.", None, HIGH),
        key("db.timezone", STRING, "UTC", "The time zone of the session: timestamps without one "
            "are of it.", NonEmpty()),
    ],
    required=["connection.url"],
)  # fmt: skip

DEFINITION = CONNECTION + Definition(
    [
        key("mode", STRING, None, "How new rows are found.", OneOf(MODES), HIGH),
        key("incrementing.column.name", STRING, "", "The column that only grows.", None, HIGH),
        key("timestamp.column.name", LIST, [], "Columns of the last change; the first that is not "
            "null counts.", None, HIGH),
        key("timestamp.delay.interval.ms", LONG, 0, "How old a timestamp must be: what is not "
            "committed yet may come later.", AtLeast(0)),
        key("timestamp.initial", LONG, None, "Timestamps before it (ms) do not count at first; -1: "
            "before now."),
        key("validate.non.null", BOOLEAN, True, "Whether those columns must be NOT NULL."),
        key("query", STRING, "", "A query instead of tables."),
        key("query.suffix", STRING, "", "Put at the end of each statement."),
        key("table.whitelist", LIST, [], "Tables that are read; none: all.", None, HIGH),
        key("table.blacklist", LIST, [], "Tables that are not."),
        key("schema.pattern", STRING, "", "The schema of the tables; else the connection's."),
        key("topic.prefix", STRING, "", "Topics are PREFIX and the table's name; of a query it is "
            "the whole name.", None, HIGH),
        key("poll.interval.ms", INT, 5_000, "How often it is looked for new rows.", AtLeast(0)),
        key("table.poll.interval.ms", LONG, 60_000, "And for new tables.", AtLeast(1)),
        key("batch.max.rows", INT, 5_000, "The most rows at once.", AtLeast(1)),
        key("num.partitions", INT, 1, "More: a bulk load is read by so many tasks of Spark at "
            "once.", Between(1, MAX_PARTITIONS)),
        key("partition.column", STRING, "", "The column of numbers or times whose ranges they "
            "read; else the first of the primary key."),
        key("checkpoint.location", STRING, "", "A folder that workers and Spark share, for rows "
            "that were read so and are not in topics yet."),
        key("numeric.mapping", STRING, "none", "Representation of numeric columns.",
            OneOf(("none", "precision_only", "best_fit", "best_fit_eager_double"))),
        key("timestamp.granularity", STRING, "connect_logical",
            "Representation of timestamp columns.",
            OneOf(("connect_logical", "micros_long", "micros_iso_datetime_string"))),
        key("quote.sql.identifiers", STRING, "always", "Whether names are quoted.",
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
            raise ValueError(f"mode={mode} needs incrementing.column.name")
        if mode in (TIMESTAMP, BOTH) and not settings["timestamp.column.name"]:
            raise ValueError(f"mode={mode} needs timestamp.column.name")
        lists = bool(settings["table.whitelist"]), bool(settings["table.blacklist"])
        if all(lists):
            raise ValueError("table.whitelist and table.blacklist exclude each other")
        if settings["query"] and any(lists):
            raise ValueError("a query has no table.whitelist and no table.blacklist")
        if settings["query"] and not settings["topic.prefix"]:
            raise ValueError("a query needs topic.prefix: it is the topic")
        if settings["query"] and re.search(r";\s*$", settings["query"]):
            raise ValueError("the query must not end in a semicolon")

        self._check_parts(settings)

    def _check_parts(self, settings: Settings) -> None:
        if settings["num.partitions"] == 1:
            if settings["partition.column"]:
                raise ValueError("partition.column needs num.partitions, of 2 or more")
            return
        if settings["mode"] != BULK:
            raise ValueError(f"num.partitions is for mode=bulk, not mode={settings['mode']}")
        if settings["query"] and not settings["partition.column"]:
            raise ValueError("a query in parts needs partition.column")
        if not settings["checkpoint.location"]:
            raise ValueError("num.partitions needs checkpoint.location, a folder for what is read")

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
                'a partition of a JDBC source is {"protocol": "1", "table": …} '
                'or {"query": "query"}'
            )
        numbers = ("incrementing", "timestamp", "timestamp_nanos", "turn", "rows")
        for name in numbers:
            if not isinstance(offset.get(name, 0), int):
                raise ValueError(f"{name} of an offset must be a number")
