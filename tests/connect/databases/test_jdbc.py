"""The JDBC source and sink on real databases: SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.connect.databases.servers import MariaDb, Postgres

from ottla.base.errors import UserError
from ottla.connect.api import Offsets, RetriableError
from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.connectors.jdbc.source import JdbcSource
from ottla.connect.data import (
    INT32,
    STRING,
    TIMESTAMP_SCHEMA,
    ConnectRecord,
    DataError,
    Schema,
    Type,
    check,
    decimal_schema,
    struct_schema,
)
from ottla.connect.offsets import merged

PATIENCE_S = 60.0


@dataclass
class Target:
    """A database with its connector properties, and a function that runs statements on it."""

    kind: str
    properties: dict[str, str]
    run: Callable[..., list[tuple[Any, ...]]]


def sqlite_at(path: Path) -> Target:
    def run(*statements: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(path, timeout=30)
        rows: list[tuple[Any, ...]] = []
        for each in statements:
            rows = connection.execute(each).fetchall()
        connection.commit()
        connection.close()
        return rows

    return Target("sqlite", {"connection.url": f"jdbc:sqlite:{path}"}, run)


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("mariadb", marks=pytest.mark.chaos)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Yield each kind of database; MariaDB only in the long runs, to save time.

    Tests of behaviour that differs on MariaDB use `every_target`."""
    yield from made_target(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def every_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    yield from made_target(request, tmp_path)


def made_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "sqlite":
        yield sqlite_at(tmp_path / "test.db")
        return
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        name: str = request.getfixturevalue("database")
        yield Target(
            "postgresql",
            {"connection.url": postgres.url(name), "connection.user": "postgres",
             "connection.password": postgres.password},
            lambda *statements: postgres.run(*statements, database=name),
        )  # fmt: skip
        return
    mariadb: MariaDb = request.getfixturevalue("mariadb")
    mariadb.run("DROP DATABASE shop", "CREATE DATABASE shop CHARACTER SET utf8mb4")
    properties = {"connection.url": mariadb.url, "connection.user": "ottla"}
    yield Target("mariadb", {**properties, "connection.password": mariadb.password}, mariadb.run)


# ---------------------------------------------------------------------------------------- source


class Source:
    def __init__(self, target: Target, **given: str) -> None:
        properties = {
            **target.properties,
            "topic.prefix": "t-",
            "poll.interval.ms": "10",
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        problems = JdbcSource.definition.problems(properties)
        assert not problems, problems
        self._connector = JdbcSource(JdbcSource.definition.settings(properties))
        self.offsets: Offsets = []
        self.records: list[ConnectRecord] = []
        self.start()

    def start(self) -> None:
        (settings,) = self._connector.task_settings(1)
        self.task = self._connector.make_task(settings)
        self.task.start(list(self.offsets))

    def restart(self) -> None:
        self.task.stop()
        self.start()

    def until(self, count: int, *, restarts: bool = False) -> list[Any]:
        until = time.monotonic() + PATIENCE_S
        while len(self.records) < count:
            assert time.monotonic() < until, self.records
            polled = self.task.poll(0.05)
            for each in polled.records:
                assert each.value_schema is not None
                check(each.value_schema, each.value)
            self.records += polled.records
            self.offsets = merged(self.offsets, polled.offsets)
            if restarts and polled:
                self.restart()
        assert len(self.records) == count
        return [each.value for each in self.records]


ROWS = "INSERT INTO items VALUES {}"


def make_items(target: Target, numbers: Sequence[int]) -> None:
    values = ", ".join(f"({n}, 'item {n}')" for n in numbers)
    target.run(ROWS.format(values))


@pytest.mark.parametrize("mode", ["incrementing", "bulk"])
def test_new_rows_are_read_once_whatever_restarts(target: Target, mode: str) -> None:
    target.run("CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
    make_items(target, range(1, 26))
    source = Source(
        target, mode=mode, incrementing_column_name="id", batch_max_rows="7",
        poll_interval_ms="60000" if mode == "bulk" else "10",
    )  # fmt: skip
    found = source.until(25, restarts=True)
    assert [row["id"] for row in found] == list(range(1, 26))
    assert source.records[0].topic == "t-items"
    assert source.records[0].key is None
    if mode == "incrementing":
        make_items(target, [30, 31])
        assert [row["id"] for row in source.until(27)][-2:] == [30, 31]
    source.task.stop()


def moments(target: Target, *rows: tuple[int, str]) -> None:
    for number, moment in rows:
        # In SQLite this is the text format that SQLAlchemy writes.
        target.run(f"INSERT INTO events VALUES ({number}, '{moment}')")


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_changed_rows_are_found_by_their_timestamp(target: Target, mode: str) -> None:
    kind = "DATETIME(6)" if target.kind == "mariadb" else "TIMESTAMP"
    target.run(f"CREATE TABLE events (id INTEGER NOT NULL PRIMARY KEY, at {kind} NOT NULL)")
    same = "2024-01-02 03:04:05.678901"
    moments(target, *((n, same) for n in range(5)), (9, "2024-01-02 03:04:05.678902"))
    source = Source(
        target, mode=mode, timestamp_column_name="at", incrementing_column_name="id",
        batch_max_rows="2", timestamp_granularity="micros_long",
    )  # fmt: skip
    found = source.until(6, restarts=True)
    assert sorted(row["id"] for row in found) == [0, 1, 2, 3, 4, 9]
    moments(target, (10, "2024-01-02 03:04:05.678903"), (11, "2999-01-01 00:00:00.000000"))
    found = source.until(7)
    assert found[-1] == {"id": 10, "at": 1704164645678903}
    source.task.stop()


def test_a_query_is_read_like_a_table(target: Target) -> None:
    target.run("CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
    make_items(target, [1, 2, 3])
    query = "SELECT id AS number, 'a:b' AS text FROM items WHERE id <> 2"
    source = Source(
        target, mode="incrementing", incrementing_column_name="number", query=query,
        topic_prefix="numbers",
    )  # fmt: skip
    assert source.until(2) == [{"number": 1, "text": "a:b"}, {"number": 3, "text": "a:b"}]
    assert source.records[0].topic == "numbers"
    assert source.offsets == [({"query": "query"}, {"incrementing": 3})]
    source.task.stop()


def test_what_a_source_cannot_do_is_reported(target: Target) -> None:
    target.run("CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(20), at DATE)")
    with pytest.raises(UserError, match="has no table nothing"):
        Source(target, mode="bulk", table_whitelist="nothing")
    with pytest.raises(UserError, match="items has no column number"):
        Source(target, mode="incrementing", incrementing_column_name="number")
    with pytest.raises(UserError, match="can be null"):
        Source(target, mode="timestamp", timestamp_column_name="at")
    with pytest.raises(ValueError, match=r"requires incrementing\.column\.name"):
        Source(target, mode="incrementing")
    nowhere = {"connection.url": f"{target.properties['connection.url']}_nowhere/x"}
    secret = {"connection.password": "a secret"}
    broken = replace(target, properties={**target.properties, **nowhere, **secret})
    with pytest.raises(UserError, match=f"{target.kind}|SQLite") as raised:
        Source(broken, mode="bulk")
    assert "\n" not in str(raised.value)
    assert "a secret" not in str(raised.value)


# ------------------------------------------------------------------------------------------ sink

KEY = struct_schema(("id", INT32))
PERSON = struct_schema(
    ("id", INT32), ("name", STRING.as_optional()), ("paid", decimal_schema(2, optional=True)),
    ("at", TIMESTAMP_SCHEMA.as_optional()), ("data", Schema(Type.BYTES, optional=True)),
)  # fmt: skip
MOMENT = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=datetime.UTC)


class Sink:
    """A JDBC sink task that receives one batch at a time, as from a worker."""

    def __init__(self, target: Target, **given: str) -> None:
        properties = {
            **target.properties,
            "name": "people-sink",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "delete.enabled": "true",
            "auto.create": "true",
            "auto.evolve": "true",
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        problems = JdbcSink.definition.problems(properties)
        assert not problems, problems
        self._connector = JdbcSink(JdbcSink.definition.settings(properties))
        self.reported: list[tuple[ConnectRecord, str]] = []
        self.tolerates = True
        self.start()

    def start(self) -> None:
        self.task = self._connector.make_task(self._connector.settings)
        self.task.reporter = self._report
        self.task.start(Path())

    def _report(self, record: ConnectRecord, error: Exception) -> None:
        if not self.tolerates:
            raise error
        self.reported.append((record, str(error)))

    def give(self, *records: ConnectRecord, batch: int = 0) -> None:
        self.task.begin(batch)
        self.task.put(list(records))
        self.task.end()


def person(offset: int, number: int, **fields: Any) -> ConnectRecord:
    value = {**dict.fromkeys(("name", "paid", "at", "data")), "id": number, **fields}
    return ConnectRecord(
        "people", value, PERSON, {"id": number}, KEY, 0, offset, origin=("people", 0, offset)
    )


def gone(offset: int, number: int) -> ConnectRecord:
    return ConnectRecord(
        "people", None, None, {"id": number}, KEY, 0, offset, origin=("people", 0, offset)
    )


def test_rows_are_made_changed_and_deleted(every_target: Target) -> None:
    sink = Sink(every_target)
    sink.give(
        person(0, 1, name="Ä'\"%", paid=decimal.Decimal("1.50"), at=MOMENT, data=b"\0\xff"),
        person(1, 2, name="b"),
        person(2, 3, name="c"),
    )
    sink.give(person(3, 2, name="B"), gone(4, 3), gone(5, 99))
    rows = every_target.run("SELECT id, name, paid, at, data FROM people ORDER BY id")
    assert [(row[0], row[1]) for row in rows] == [(1, "Ä'\"%"), (2, "B")]
    assert decimal.Decimal(str(rows[0][2])) == decimal.Decimal("1.5")
    assert str(rows[0][3])[:23] == "2024-02-29 12:34:56.789"
    assert rows[0][4] == b"\0\xff"
    assert sink.reported == []
    sink.task.stop()


def test_a_batch_that_comes_again_is_not_written_again(target: Target) -> None:
    sink = Sink(target, insert_mode="insert", pk_mode="none", delete_enabled="false")
    first, second = [person(0, 1), person(1, 2)], [person(2, 3)]
    sink.give(*first)
    sink.task.stop()
    sink.start()
    sink.give(*first, *second)
    sink.give(*second)
    assert target.run("SELECT id FROM people ORDER BY id") == [(1,), (2,), (3,)]
    offsets = target.run("SELECT * FROM ottla_sink_offsets WHERE topic <> ''")
    assert offsets == [("people-sink", "people", 0, 3)]
    sink.task.stop()


def test_a_new_field_is_a_new_column(target: Target) -> None:
    sink = Sink(target)
    sink.give(person(0, 1, name="a"))
    wider = struct_schema(*((each.name, each.schema) for each in PERSON.fields),
                          ("city", STRING.as_optional()))  # fmt: skip
    raised = person(1, 2, name="b")
    sink.give(raised.with_(value={**raised.value, "city": "Brno"}, value_schema=wider))
    assert target.run("SELECT id, city FROM people ORDER BY id") == [(1, None), (2, "Brno")]
    sink.task.stop()


def test_a_row_that_is_refused_is_reported_and_the_rest_is_written(every_target: Target) -> None:
    every_target.run(
        "CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE, "
        "paid NUMERIC(10,2) CHECK (paid >= 0))"
    )
    sink = Sink(every_target, fields_whitelist="name,paid")
    records = [person(n, n, name=f"name {n}") for n in range(20)]
    records[3] = person(3, 3)
    records[7] = person(7, 7, name="name 2")
    records[11] = person(11, 11, name="x", paid=decimal.Decimal("-1"))
    sink.give(*records)
    refused = [record.key["id"] for record, _ in sink.reported]
    # MariaDB's upsert treats a conflict on any unique key as the same row, so 7 is not refused.
    assert refused == ([3, 11] if every_target.kind == "mariadb" else [3, 7, 11])
    written = {number for (number,) in every_target.run("SELECT id FROM people")}
    assert written == set(range(20)) - {3, 7, 11}
    assert "\n" not in sink.reported[0][1]
    sink.tolerates = False
    with pytest.raises(DataError, match=r"(?i)null"):
        sink.give(person(30, 30, name="fine"), person(31, 31))
    assert every_target.run("SELECT id FROM people WHERE id >= 30") == []
    sink.task.stop()


def test_what_a_sink_cannot_do_is_reported(target: Target) -> None:
    with pytest.raises(ValueError, match=r"requires a primary key; set pk\.mode"):
        Sink(target, pk_mode="none", delete_enabled="false")
    sink = Sink(target, auto_create="false")
    with pytest.raises(UserError, match=r"has no table people.*auto\.create=true"):
        sink.give(person(0, 1))
    sink.task.stop()
    target.run("CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY)")
    sink = Sink(target, auto_evolve="false")
    with pytest.raises(UserError, match=r"no column name, paid, at, data.*auto\.evolve=true"):
        sink.give(person(0, 1))
    sink.task.stop()


def test_updates_change_rows_that_are_there_and_make_none(target: Target) -> None:
    target.run(
        "CREATE TABLE people (number INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO people VALUES (1, 'a')",
    )
    sink = Sink(target, insert_mode="update", field_mapping="id:number", fields_whitelist="name")
    sink.give(person(0, 1, name="A"), person(1, 2, name="B"))
    assert target.run("SELECT number, name FROM people") == [(1, "A")]
    sink.task.stop()


def test_a_record_that_is_no_row_is_reported(target: Target) -> None:
    sink = Sink(target)
    plain = ConnectRecord("people", "text", STRING, {"id": 1}, KEY, 0, 0, origin=("people", 0, 0))
    sink.give(plain, person(1, 2))
    assert "the value is not a struct" in sink.reported[0][1]
    assert target.run("SELECT id FROM people") == [(2,)]
    sink.task.stop()


def test_values_of_every_type_come_back_from_the_other_side(
    every_target: Target, tmp_path: Path
) -> None:
    """Values copied from a table to records and back to a table are the same."""
    kinds = {
        "sqlite": ("INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC(10,2)", "DATE", "DATETIME", "TEXT"),
        "postgresql": ("BIGINT", "DOUBLE PRECISION", "TEXT", "BYTEA", "NUMERIC(10,2)", "DATE",
                       "TIMESTAMP", "UUID"),
        "mariadb": ("BIGINT", "DOUBLE", "TEXT", "BLOB", "DECIMAL(10,2)", "DATE", "DATETIME(6)",
                    "CHAR(36)"),
    }[every_target.kind]  # fmt: skip
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    every_target.run(f"CREATE TABLE every_type (id INTEGER NOT NULL PRIMARY KEY, {columns})")
    data = {"postgresql": "'\\x00ff'"}.get(every_target.kind, "x'00ff'")
    values = (f"(1, {2**62}, 1.25, 'ž', {data}, 12.50, '2024-02-29', "
              f"'2024-02-29 12:34:56.789012', '{uuid.UUID(int=5)}')")  # fmt: skip
    every_target.run(f"INSERT INTO every_type VALUES {values}",
               "INSERT INTO every_type (id) VALUES (2)")  # fmt: skip
    source = Source(every_target, mode="incrementing", incrementing_column_name="id",
                    timestamp_granularity="micros_long", topic_prefix="copy_of_",
                    table_whitelist="every_type")  # fmt: skip
    source.until(2)
    source.task.stop()
    sink = Sink(every_target, pk_mode="record_value", pk_fields="id", delete_enabled="false")
    sink.give(*source.records)
    assert sink.reported == []
    select = "SELECT * FROM {} ORDER BY id"
    assert every_target.run(select.format("copy_of_every_type")) == every_target.run(
        select.format("every_type")
    )
    sink.task.stop()


def test_a_sink_continues_when_the_database_comes_back(postgres: Postgres, database: str) -> None:
    properties = {"connection.url": postgres.url(database), "connection.user": "postgres"}
    made = Target(
        "postgresql", {**properties, "connection.password": postgres.password}, postgres.run
    )
    sink = Sink(made, insert_mode="insert", pk_mode="none", delete_enabled="false")
    sink.give(person(0, 1))
    postgres.stop(crash=True)
    sink.task.begin(1)
    sink.task.put([person(1, 2), person(2, 3)])
    with pytest.raises(RetriableError, match="postgresql"):
        sink.task.end()
    postgres.start()
    sink.task.end()
    sink.task.end()
    rows = postgres.run("SELECT id FROM people ORDER BY id", database=database)
    assert rows == [(1,), (2,), (3,)]
    sink.task.stop()
