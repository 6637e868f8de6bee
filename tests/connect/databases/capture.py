"""A source task that a test drives as a worker would, and whose records it keeps."""

from __future__ import annotations

import time
from typing import Any

from tests.connect.databases.servers import Postgres

from ottla.connect.api import Offsets
from ottla.connect.connectors.postgres.connector import PostgresSource
from ottla.connect.data import ConnectRecord
from ottla.connect.debezium import unchanged_columns
from ottla.connect.offsets import merged

PATIENCE_S = 60.0
HEARTBEAT_TOPICS = "__debezium-heartbeat."
Row = dict[str, Any]


def connector(postgres: Postgres, database: str, **given: str) -> PostgresSource:
    properties = {
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": postgres.password,
        "database.dbname": database,
        "topic.prefix": "shop",
        "slot.name": f"slot_{database}",
        "table.include.list": "public\\..*",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    problems = PostgresSource.definition.problems(properties)
    assert not problems, problems
    return PostgresSource(PostgresSource.definition.settings(properties))


class Capture:
    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self.offsets: Offsets = []
        self.records: list[ConnectRecord] = []
        self.task: Any = None

    def start(self) -> Capture:
        self.task = self._source.make_task(self._source.settings)
        self.task.start([(dict(partition), dict(offset)) for partition, offset in self.offsets])
        return self

    def crash(self) -> None:
        """Stop the task as if the worker had died: connections close and no offset is confirmed."""
        self.task.stop()

    def poll(self, *, commits: bool = True) -> list[ConnectRecord]:
        polled = self.task.poll(0.05)
        if polled:
            self.records += polled.records
            self.offsets = merged(self.offsets, polled.offsets)
            if commits:
                self.task.commit(polled.offsets)
        return list(polled.records)

    def until(self, count: int) -> list[ConnectRecord]:
        """Poll until there are `count` records in total, and check that no more follow at once."""
        until = time.monotonic() + PATIENCE_S
        while len(self.records) < count:
            assert time.monotonic() < until, [each.value for each in self.records]
            self.poll()
        self.poll()
        assert len(self.records) == count, [each.value for each in self.records[count:]]
        return self.records

    @property
    def offset(self) -> Row:
        return dict(self.offsets[0][1])

    def ops(self) -> str:
        return "".join(each.value["op"] if each.value else "-" for each in self.records)

    def rows(self, table: str) -> list[Row]:
        """Return the rows of the table after all records are applied."""
        return replay(self.records).get(f"shop.public.{table}", [])


def replay(records: list[ConnectRecord]) -> dict[str, list[Row]]:
    """Return the rows of each table's topic after all changes. Heartbeats change nothing."""
    tables: dict[str, dict[Any, Row]] = {}
    for number, record in enumerate(records):
        if record.topic.startswith(HEARTBEAT_TOPICS):
            continue
        table = tables.setdefault(record.topic, {})
        if record.value is None:
            continue
        op, row = record.value["op"], record.value["after"]
        key = tuple(record.key.values()) if record.key is not None else ("row", number)
        if op == "t":
            table.clear()
        elif op == "d":
            table.pop(key, None)
        else:
            before = table.get(key, {})
            table[key] = {
                name: before.get(name) if name in unchanged_columns(record) else value
                for name, value in row.items()
            }
    return {topic: list(rows.values()) for topic, rows in tables.items()}
