"""A pipeline from one database through topics into two others, whose worker is killed on the way.

The tables are equal, types included. Rows that cannot be written are reported and do not stop the
others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.connect.databases.servers import MariaDb, Postgres
from tests.connect.databases.test_capture_chaos import source
from tests.connect.databases.worker import Worker, read_topics
from tests.connect.databases.workload import SELECTS, SETUP, Workload, tables_of

from ottla.testing.broker_thread import BrokerThread

PATIENCE_S = 120.0


def wait_for(what: Callable[[], bool], message: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, message()
        time.sleep(0.1)


def capture(postgres: Postgres, database: str) -> dict[str, str]:
    own = {"database.dbname": database, "slot.name": f"slot_{database}"}
    return source(postgres) | own | {"heartbeat.interval.ms": "500"}


def sink(name: str, **more: str) -> dict[str, str]:
    return {
        "name": name,
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics.regex": "shop\\.public\\..*",
        "consumer.override.metadata.max.age.ms": "1000",
        "table.name.format": "${table}",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "truncate.enabled": "true",
        "auto.create": "true",
        "auto.evolve": "true",
        "errors.retry.timeout": "60000",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def types_of(postgres: Postgres, database: str) -> list[tuple[Any, ...]]:
    return postgres.run(
        "SELECT table_name, column_name, udt_name, character_maximum_length, numeric_precision, "
        "numeric_scale, datetime_precision FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name IN ('orders', 'lines', 'docs') "
        "AND udt_name <> 'mood' AND column_name <> 'mood' ORDER BY 1, 2",
        database=database,
    )


@pytest.mark.timeout(400)
def test_tables_are_equal_on_the_other_side(
    tmp_path: Path, postgres: Postgres, mariadb: MariaDb, database: str
) -> None:
    copy = f"{database}_copy"
    postgres.run(
        f"DROP DATABASE IF EXISTS {copy}",
        f"CREATE DATABASE {copy}",
        f"ALTER DATABASE {copy} SET timezone = 'UTC'",
    )
    postgres.run(f"ALTER DATABASE {database} SET timezone = 'UTC'")
    postgres.run(*SETUP, database=database)
    postgres.run(
        "CREATE TABLE strict_lines (order_id int, number int CHECK (number < 4), what jsonb, "
        "PRIMARY KEY (order_id, number))",
        "DROP ROLE IF EXISTS nobody",
        "CREATE ROLE nobody LOGIN PASSWORD 'x'",
        database=copy,
    )
    workload = Workload(postgres, seed=3, threads=2, database=database)
    login = {"connection_user": "postgres", "connection_password": postgres.password}
    maria = {"connection_user": "ottla", "connection_password": mariadb.password}
    with BrokerThread() as broker:
        worker = Worker(
            tmp_path,
            broker.bootstrap,
            capture(postgres, database),
            sink("to-postgres", connection_url=postgres.url(copy), **login),
            sink("to-mariadb", connection_url=mariadb.url, **maria),
            sink("wrong", connection_url=postgres.url(copy), connection_user="postgres",
                 connection_password="wrong", errors_retry_timeout="0"),
            sink("strict", connection_url=postgres.url(copy), table_name_format="strict_${table}",
                 topics_regex="shop\\.public\\.lines", errors_tolerance="all",
                 errors_deadletterqueue_topic_name="refused",
                 errors_deadletterqueue_topic_replication_factor="1", **login),
            capture(postgres, database) | {"name": "no-right", "database.user": "nobody",
                                           "database.password": "x", "slot.name": "nobodys"},
        )  # fmt: skip
        worker.start()
        try:
            workload.start()
            worker.wait_for("capture", "RUNNING")
            worker.wait_for("wrong", "FAILED", "password authentication failed")
            worker.wait_for("no-right", "FAILED", "ALTER ROLE nobody REPLICATION")
            wait_for(lambda: workload.count > 300, lambda: workload.errors)
            worker.kill()
            postgres.run("ALTER TABLE orders ADD extra varchar(30)", database=database)
            worker.start()
            wait_for(lambda: workload.count > 600, lambda: workload.errors)
            workload.stop()
            assert workload.errors == []
            end = "INSERT INTO orders (id, note, extra) VALUES (999999, 'the end', 'x')"
            postgres.run("UPDATE orders SET extra = 'all of them'", end, database=database)
            is_there = "SELECT id FROM orders WHERE id = 999999"

            def arrived() -> bool:
                try:
                    return bool(postgres.run(is_there, database=copy) and mariadb.run(is_there))
                except Exception:
                    return False

            wait_for(arrived, lambda: [worker.task(n) for n in ("capture", "to-postgres",
                                                               "to-mariadb")])  # fmt: skip
            wanted = tables_of(postgres, database)
            wait_for(
                lambda: tables_of(postgres, copy) == wanted, lambda: worker.task("to-postgres")
            )
            assert types_of(postgres, copy) == types_of(postgres, database)
            extra = "SELECT id, extra FROM orders ORDER BY id"
            assert postgres.run(extra, database=copy) == postgres.run(extra, database=database)
            in_maria = sorted(mariadb.run("SELECT id, title, body, data FROM docs"), key=repr)
            assert in_maria == wanted["docs"]
            counts = {name: len(rows) for name, rows in wanted.items()}
            assert {
                name: mariadb.run(f"SELECT COUNT(*) FROM `{name}`")[0][0] for name in SELECTS
            } == counts
            strict = "SELECT order_id, number, what::text FROM strict_lines"
            allowed = [row for row in wanted["lines"] if row[1] < 4]
            wait_for(
                lambda: sorted(postgres.run(strict, database=copy), key=repr) == allowed,
                lambda: worker.task("strict"),
            )
            refused = read_topics(broker.bootstrap, "refused")
            assert refused
            assert all(each.key is not None for each in refused)
        finally:
            worker.kill()
            workload.stop()
