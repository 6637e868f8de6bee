"""Change capture while the worker, the broker and the database are killed.

Replaying the topics yields the tables, to the last value, and so does a sink into another
database."""

from __future__ import annotations

import datetime
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.connect.databases.servers import Postgres, running
from tests.connect.databases.worker import Worker, read_topics
from tests.connect.databases.workload import SETUP, Workload, tables_of

from ottla.connect.debezium import UNCHANGED_HEADER
from ottla.connect.json_converter import JsonConverter
from ottla.testing.broker import BrokerProcess

WANTED_CHANGES = 20_000
PATIENCE_S = 300.0


def source(postgres: Postgres) -> dict[str, str]:
    return {
        "name": "capture",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": postgres.password,
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public\\..*",
        "heartbeat.interval.ms": "1000",
    }


def copy_to(postgres: Postgres) -> dict[str, str]:
    return {
        "name": "copy",
        "connector.class": "JdbcSink",
        "connection.url": postgres.url("copy"),
        "connection.user": "postgres",
        "connection.password": postgres.password,
        "topics.regex": "shop\\.public\\..*",
        "table.name.format": "${table}",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
        "auto.evolve": "true",
    }


def is_copied(postgres: Postgres, wanted: dict[str, list[Any]]) -> bool:
    there = postgres.run("SELECT tablename FROM pg_tables", database="copy")
    if not set(wanted) <= {name for (name,) in there}:
        return False
    return tables_of(postgres, "copy") == wanted


def replayed(records: list[Any]) -> dict[str, list[Any]]:
    """Return the tables that the records replay to; check that commits are in order and unique."""
    keys, values = JsonConverter({}, is_key=True), JsonConverter({})
    tables: dict[str, dict[Any, dict[str, Any]]] = {}
    seen: set[Any] = set()
    last: dict[str, int] = {}
    for record in records:
        name = record.topic.rpartition(".")[2]
        table = tables.setdefault(name, {})
        if record.value is None:
            continue
        value = values.to_connect(record.topic, record.value)[1]
        key = tuple(keys.to_connect(record.topic, record.key)[1].values())
        op, where = value["op"], value["source"]
        if op != "r":
            change = (name, where["lsn"], op, key)
            assert change not in seen, f"{change} appears twice"
            seen.add(change)
            before = int(json.loads(where["sequence"])[0])
            assert before >= last.get(name, 0), "commits are out of order"
            last[name] = before
        if op == "d":
            assert table.pop(key, None) is not None or where["snapshot"] == "false"
            continue
        kept = dict(record.headers).get(UNCHANGED_HEADER, b"").decode().split(",")
        old = table.get(key, {})
        table[key] = {n: old[n] if n in kept else v for n, v in value["after"].items()}
    return {name: sorted(map(_row, rows.values()), key=repr) for name, rows in tables.items()}


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the row with values as `tables_of` selects them."""
    made = []
    for name, value in row.items():
        if name == "price" and value is not None:
            value = str(value)
        if name == "at" and value is not None:
            moment = datetime.datetime.fromisoformat(value)
            value = moment.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            value = value.rstrip("0").rstrip(".") + "+00"
        made.append(value)
    return tuple(made)


def wait_for(what: Callable[[], bool], message: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, message()
        time.sleep(0.2)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_replaying_the_topics_gives_the_tables_after_any_kills(tmp_path: Path) -> None:
    chance = random.Random(10)
    with running(Postgres()) as postgres, BrokerProcess() as broker:
        postgres.run("ALTER SYSTEM SET timezone = 'UTC'", "SELECT pg_reload_conf()", *SETUP)
        workload = Workload(postgres, seed=10)
        workload.start()
        postgres.run("CREATE DATABASE copy", "ALTER DATABASE copy SET timezone = 'UTC'")
        worker = Worker(tmp_path, f"127.0.0.1:{broker.port}", source(postgres), copy_to(postgres))
        worker.start()
        try:
            worker.wait_for("capture", "RUNNING")
            kills = {"worker": 0, "broker": 0, "database": 0}
            while workload.count < WANTED_CHANGES or min(kills.values()) < 4:
                time.sleep(chance.uniform(1, 5))
                assert workload.errors == []
                victim = chance.choice(list(kills))
                kills[victim] += 1
                if victim == "worker":
                    worker.kill()
                    worker.start()
                elif victim == "broker":
                    broker.kill()
                    broker.start()
                else:
                    postgres.stop(crash=chance.random() < 0.7)
                    postgres.start()
            workload.stop()
            assert workload.errors == []
            postgres.run("INSERT INTO orders (id, note) VALUES (999999, 'the end')")
            bootstrap = f"127.0.0.1:{broker.port}"
            wait_for(
                lambda: any(
                    b"the end" in (each.value or b"")
                    for each in read_topics(bootstrap, "shop.public.orders")
                ),
                lambda: f"{worker.task('capture')} {worker.log()}",
            )
            records = read_topics(bootstrap, "shop.public.")
            print(f"{workload.count} changes, {len(records)} records, kills: {kills}")
            wanted, found = tables_of(postgres), replayed(records)
            for name, rows in wanted.items():
                assert found[name] == rows, name
            wait_for(
                lambda: is_copied(postgres, wanted),
                lambda: f"{worker.task('copy')} {worker.log()}",
            )
        finally:
            worker.kill()
            workload.stop()
