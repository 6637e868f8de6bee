"""Connectors whose database is down or full: the status says so, and other connectors continue.

When the database is back, the pending work is done exactly once. Disks are really full where the
test may mount a file system (as root); elsewhere a trigger in PostgreSQL raises the error."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import MariaDb, Postgres, running
from tests.connect.databases.test_jdbc import Sink, Source, Target, person, sqlite_at
from tests.connect.workers import Standalone, read, send, values, wait_for

from ottla.connect.api import RetriableError
from ottla.connect.connectors.postgres.connection import ResourcesExhausted
from ottla.connect.json_converter import JsonConverter
from ottla.connect.states import State
from ottla.testing.broker_thread import BrokerThread

NAMES = ("capture", "reader", "writer")
NUMBER = b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"n"}]},"payload":{"n":%d}}'
FULL = """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device'
    USING ERRCODE = 'disk_full'; END $$"""


class Shop:
    """A capture, a query source and a sink on one PostgreSQL, and a sink that needs no database."""

    def __init__(self, worker: Standalone, postgres: Postgres, database: str) -> None:
        self.worker, self._postgres, self._database = worker, postgres, database
        self._made = 0
        self.run("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE numbers (n int)")

    def start(self, **more: str) -> None:
        broker, database, postgres = self.worker.bootstrap, self._database, self._postgres
        send(broker, "numbers")
        login = {
            "connection_url": postgres.url(database),
            "connection_user": "postgres",
            "connection_password": postgres.password,
        }
        self.worker.put(
            "capture", "PostgresSource", database_hostname="127.0.0.1",
            database_port=postgres.port, database_user="postgres", database_dbname=database,
            database_password=postgres.password, topic_prefix="shop", slot_name=f"slot_{database}",
            table_include_list="public.orders", **more,
        )  # fmt: skip
        self.worker.put(
            "reader", "JdbcSource", mode="incrementing", incrementing_column_name="id",
            table_whitelist="orders", topic_prefix="read-", poll_interval_ms=20, **login, **more,
        )  # fmt: skip
        self.worker.put("writer", "JdbcSink", topics="numbers", **login, **more)
        self.worker.put(
            "rest", "JdbcSink", topics="numbers", auto_create="true",
            connection_url=f"jdbc:sqlite:{self.worker.folder / 'rest.db'}",
        )  # fmt: skip
        for name in (*NAMES, "rest"):
            self.worker.wait_for_state(name, State.RUNNING)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self._postgres.run(*statements, database=self._database)

    def send(self, count: int) -> None:
        new = range(self._made, self._made + count)
        send(self.worker.bootstrap, "numbers", *(NUMBER % n for n in new))
        self._made += count

    def order(self, count: int) -> None:
        have = self.run("SELECT count(*) FROM orders")[0][0]
        new = range(have, have + count)
        self.run("INSERT INTO orders VALUES " + ", ".join(f"({n})" for n in new))

    def wait_until_the_rest_has_flown(self) -> None:
        wanted = [(n,) for n in range(self._made)]

        def rows() -> list[Any]:
            with sqlite3.connect(self.worker.folder / "rest.db", timeout=30) as connection:
                return connection.execute("SELECT n FROM numbers ORDER BY n").fetchall()

        wait_for(lambda: rows() == wanted, "the rest flows")

    def wait_until_all_is_there(self) -> None:
        """Wait for all rows, and check that each arrived exactly once and in order."""
        orders = [n for (n,) in self.run("SELECT id FROM orders ORDER BY id")]
        for topic in ("shop.public.orders", "read-orders"):
            wait_for(lambda topic=topic: len(ids_in(self.worker.bootstrap, topic)) >= len(orders))  # type: ignore[misc]
            assert ids_in(self.worker.bootstrap, topic) == orders
        wanted = [(n,) for n in range(self._made)]
        wait_for(lambda: len(self.run("SELECT n FROM numbers")) >= len(wanted), "the table")
        assert self.run("SELECT n FROM numbers ORDER BY n") == wanted

    def trace(self, name: str) -> str:
        return self.worker.herder.status(name).tasks[0].trace or ""


def ids_in(bootstrap: str, topic: str) -> list[int]:
    converter = JsonConverter({})
    found = [converter.to_connect(topic, each.value)[1] for each in read(bootstrap, topic)]
    return [(each.get("after") or each)["id"] for each in found]


@pytest.fixture
def shop(tmp_path: Path, postgres: Postgres, database: str) -> Iterator[Shop]:
    with BrokerThread() as broker:
        worker = Standalone(
            broker.bootstrap, tmp_path, key_converter="JsonConverter",
            value_converter="JsonConverter", task_restart_backoff_max_ms="1000",
        )  # fmt: skip
        try:
            yield Shop(worker, postgres, database)
        finally:
            worker.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("away_s", [0, pytest.param(60, marks=pytest.mark.chaos)])
def test_connectors_wait_for_a_database_that_is_away(
    shop: Shop, postgres: Postgres, away_s: float
) -> None:
    shop.start()
    shop.order(50)
    shop.send(50)
    postgres.stop(crash=True)
    try:
        shop.send(50)
        for name in NAMES:
            shop.worker.wait_for_state(name, State.FAILED)
            wait_for(lambda name=name: "Connection refused" in shop.trace(name), name)  # type: ignore[misc]
        shop.wait_until_the_rest_has_flown()
        time.sleep(away_s)
        assert shop.worker.state("rest") is State.RUNNING
    finally:
        postgres.start()
    shop.order(50)
    shop.send(50)
    for name in NAMES:
        shop.worker.wait_for_state(name, State.RUNNING)
    shop.wait_until_all_is_there()


@pytest.mark.timeout(240)
def test_a_task_that_retries_reports_the_reason_and_the_others_run(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that rejects inserts for a while stops neither retrying sinks nor sources.

    A sink that retries without a limit stays RUNNING and shows the reason in its trace. Sources
    that only read continue, and a heartbeat that cannot be written becomes a notice."""
    shop.start(
        errors_retry_timeout="-1", errors_retry_delay_max_ms="300",
        heartbeat_interval_ms="100", heartbeat_action_query="INSERT INTO beats VALUES (1)",
    )  # fmt: skip
    shop.run("CREATE TABLE beats (n int)", FULL)
    for table in ("numbers", "beats"):
        shop.run(f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()")
    shop.send(50)
    shop.order(50)
    wait_for(lambda: "No space left on device" in shop.trace("writer"), "the reason")
    assert shop.trace("writer").startswith("Retrying after an error: postgresql")
    assert shop.worker.state("writer") is State.RUNNING
    wait_for(lambda: len(values(shop.worker.bootstrap, "shop.public.orders")) == 50, "capture")

    def notices() -> str:
        return str(shop.worker.herder.offsets("capture"))

    wait_for(lambda: "heartbeat.action.query failed" in notices(), "a notice")
    assert shop.worker.state("capture") is State.RUNNING
    shop.run("DROP TRIGGER full_disk ON numbers", "DROP TRIGGER full_disk ON beats")
    shop.wait_until_all_is_there()
    wait_for(lambda: shop.trace("writer") == "", "it works")
    wait_for(lambda: "heartbeat.action.query" not in notices(), "no notice")
    assert caplog.text.count("heartbeat.action.query failed") <= 2, "once for each reason"


def test_a_source_continues_when_there_is_room_to_sort_again(
    postgres: Postgres, database: str
) -> None:
    def run(*statements: str) -> list[tuple[Any, ...]]:
        return postgres.run(*statements, database=database)

    run(
        "CREATE TABLE items (id int NOT NULL, name text)",
        "INSERT INTO items SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i",
        f"ALTER DATABASE {database} SET work_mem = '64kB'",
        f"ALTER DATABASE {database} SET temp_file_limit = '0kB'",
    )
    login = {"connection.url": postgres.url(database), "connection.user": "postgres"}
    target = Target("postgresql", {**login, "connection.password": postgres.password}, run)
    try:
        source = Source(target, mode="incrementing", incrementing_column_name="id")
        with pytest.raises(RetriableError, match="temporary file size exceeds"):
            source.until(1)
    finally:
        run(f"ALTER DATABASE {database} RESET ALL")
    assert [row["id"] for row in source.until(3000)] == list(range(1, 3001))
    source.task.stop()


def test_a_table_that_is_full_is_no_fault_of_its_rows(mariadb: MariaDb) -> None:
    mariadb.run(
        "DROP DATABASE shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        "SET SESSION max_heap_table_size = 16384",
        "CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(200)) ENGINE=MEMORY",
    )
    properties = {"connection.url": mariadb.url, "connection.user": "ottla"}
    target = Target("mariadb", {**properties, "connection.password": mariadb.password}, mariadb.run)
    sink = Sink(target, fields_whitelist="name")
    rows = [person(n, n, name=f"name {n}") for n in range(1000)]
    with pytest.raises(RetriableError, match="is full"):
        sink.give(*rows)
    mariadb.run("ALTER TABLE people ENGINE=InnoDB")
    sink.task.end()
    assert mariadb.run("SELECT COUNT(*), COUNT(DISTINCT id) FROM people") == [(1000, 1000)]
    assert sink.reported == []
    sink.task.stop()


def test_a_constraint_that_is_called_full_is_the_rows_fault(tmp_path: Path) -> None:
    target = sqlite_at(tmp_path / "test.db")
    target.run(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, "
        "CONSTRAINT name_is_full_or_locked CHECK (name <> ''))"
    )
    sink = Sink(target, fields_whitelist="name")
    sink.give(person(0, 1, name="a"), person(1, 2, name=""), person(2, 3, name="c"))
    assert [record.key["id"] for record, _ in sink.reported] == [2]
    assert target.run("SELECT id FROM people") == [(1,), (3,)]
    sink.task.stop()


@pytest.mark.chaos
def test_mariadb_that_is_away_is_waited_for(mariadb: MariaDb) -> None:
    mariadb.run(
        "DROP DATABASE shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        "CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY)",
        "INSERT INTO items VALUES (1), (2)",
    )
    login = {"connection.url": mariadb.url, "connection.user": "ottla"}
    target = Target("mariadb", {**login, "connection.password": mariadb.password}, mariadb.run)
    source = Source(target, mode="incrementing", incrementing_column_name="id",
                    table_whitelist="items")  # fmt: skip
    sink = Sink(target, insert_mode="insert", pk_mode="none", delete_enabled="false")
    source.until(2)
    sink.give(person(0, 1))
    for _ in range(2):
        # Stop it cleanly: the MariaDB of these tests may lose its last second in a crash.
        mariadb.stop()
        try:
            sink.task.begin(1)
            sink.task.put([person(1, 2), person(2, 3)])
            for _ in range(2):
                with pytest.raises(RetriableError, match="mariadb"):
                    sink.task.end()
                with pytest.raises(RetriableError, match="mariadb"):
                    source.until(100)
        finally:
            mariadb.start()
        sink.task.end()
    mariadb.run("INSERT INTO items VALUES (3)")
    assert [row["id"] for row in source.until(3)] == [1, 2, 3]
    assert mariadb.run("SELECT id FROM people ORDER BY id") == [(1,), (2,), (3,)]
    source.task.stop()
    sink.task.stop()


# --------------------------------------------------------------------- disks that are really full


@contextmanager
def small_disk(folder: Path, size: str, owner: str = "postgres") -> Iterator[Any]:
    """Mount a file system of this size, and yield a function that enlarges it."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        shutil.chown(folder, owner)
        yield lambda larger: subprocess.run(
            ["mount", "-o", f"remount,size={larger}", str(folder)], check=True
        )
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.chaos
def test_a_capture_continues_when_postgresql_has_room_for_a_large_transaction() -> None:
    """PostgreSQL spills the decoded changes of a large transaction to disk."""
    server = Postgres()
    slots = server.folder / "data" / "pg_replslot"
    # `closing` comes first: the server's folder can be removed only after the unmount.
    with closing(server), small_disk(slots, "1m") as enlarge, running(server):
        server.run(
            "ALTER SYSTEM SET logical_decoding_work_mem = '64kB'",
            "SELECT pg_reload_conf()",
            "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        )
        capturing = Capture(connector(server, "postgres")).start()
        capturing.poll()
        server.run("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, 50000) i")
        for _ in range(2):
            with pytest.raises(ResourcesExhausted, match="No space left on device"):
                capturing.until(50_000)
        enlarge("200m")
        capturing.until(50_000)
        assert [each.key["id"] for each in capturing.records] == list(range(1, 50_001))
        capturing.crash()


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_a_sink_continues_when_the_disk_has_room_again(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ottla-small-"))
    owner = {"postgresql": "postgres", "mariadb": "mysql", "sqlite": "root"}[kind]
    try:
        with small_disk(folder, "700k", owner) as enlarge:
            target = on_small_disk(request, folder, kind)
            sink = Sink(target, insert_mode="insert", pk_mode="none", delete_enabled="false",
                        auto_evolve="false", fields_whitelist="id,name")  # fmt: skip
            rows = [person(n, n, name="x" * 200) for n in range(10_000)]
            for _ in range(2):
                with pytest.raises(RetriableError, match=r"could not extend file|full"):
                    sink.give(*rows)
            enlarge("50m")
            sink.task.end()
            count = "SELECT count(*), count(DISTINCT id) FROM people"
            assert target.run(count) == [(10_000, 10_000)]
            assert sink.reported == []
            sink.task.stop()
            if kind != "sqlite":
                target.run("DROP TABLE people")
            if kind == "postgresql":
                target.run("DROP TABLESPACE small")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def on_small_disk(request: pytest.FixtureRequest, folder: Path, kind: str) -> Target:
    """Return a database that stores the table people in that folder."""
    if kind == "sqlite":
        target = sqlite_at(folder / "test.db")
        target.run("CREATE TABLE people (id INTEGER, name TEXT)")
        return target
    if kind == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        name: str = request.getfixturevalue("database")
        postgres.run(f"CREATE TABLESPACE small LOCATION '{folder}'")
        login = {"connection.url": postgres.url(name), "connection.user": "postgres"}
        target = Target(
            kind, {**login, "connection.password": postgres.password},
            lambda *statements: postgres.run(*statements, database=name),
        )  # fmt: skip
        target.run("CREATE TABLE people (id int, name text) TABLESPACE small")
        return target
    mariadb: MariaDb = request.getfixturevalue("mariadb")
    mariadb.run(
        "DROP DATABASE shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        f"CREATE TABLE people (id INT, name TEXT) DATA DIRECTORY='{folder}'",
    )
    login = {"connection.url": mariadb.url, "connection.user": "ottla"}
    return Target(kind, {**login, "connection.password": mariadb.password}, mariadb.run)
