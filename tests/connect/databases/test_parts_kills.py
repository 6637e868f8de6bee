"""Kills of a worker while Spark reads a table in parts, and while its rows are written to a topic.

Every load is complete, and each row is there once per load."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.connect.databases.servers import Postgres
from tests.connect.databases.worker import PATIENCE_S, Worker, read_topics

from ottla.connect.json_converter import JsonConverter
from ottla.testing.broker_thread import BrokerThread

ROWS, KILLS = 30_000, 6


def turn_of(worker: Worker) -> int:
    """Return the number of completed loads, or -1 while one is being written."""
    offsets = worker.rest("/connectors/load/offsets")["offsets"]
    offset: dict[str, Any] = offsets[0]["offset"] if offsets else {}
    return -1 if "rows" in offset else int(offset.get("turn", 0))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_every_row_is_there_once_for_each_load_after_kills(
    postgres: Postgres, database: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    postgres.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        f"INSERT INTO items SELECT i, repeat('x', 50) FROM generate_series(1, {ROWS}) i",
        database=database,
    )
    load = {
        "name": "load", "connector.class": "JdbcSource", "mode": "bulk",
        "connection.url": postgres.url(database), "connection.user": "postgres",
        "connection.password": postgres.password, "table.whitelist": "items",
        "topic.prefix": "load-", "num.partitions": "4", "poll.interval.ms": "3600000",
        "batch.max.rows": "500", "checkpoint.location": str(tmp_path / "loads"),
    }  # fmt: skip
    with BrokerThread() as broker:
        worker = Worker(tmp_path, broker.bootstrap, load)
        try:
            for turn in range(KILLS):
                worker.start()
                worker.wait_for("load", "RUNNING")
                if turn % 2 == 0:
                    # Kill while Spark reads.
                    time.sleep(chance.uniform(1, 8))
                else:
                    wait_for_rows(worker, broker.bootstrap)
                worker.kill()
            worker.start()
            worker.wait_for("load", "RUNNING")
            until = time.monotonic() + PATIENCE_S
            while (turns := turn_of(worker)) < 1:
                assert time.monotonic() < until, worker.log()
                time.sleep(0.2)
        finally:
            worker.kill()
        converter = JsonConverter({})
        found = Counter(
            converter.to_connect("", each.value)[1]["id"]
            for each in read_topics(broker.bootstrap, "load-items")
        )
    assert found == dict.fromkeys(range(1, ROWS + 1), turns)
    print(f"{KILLS} kills, {turns} loads of {ROWS} rows")


def wait_for_rows(worker: Worker, bootstrap: str) -> None:
    """Wait until more rows of a load are in the topic."""
    before = len(read_topics(bootstrap, "load-items"))
    until = time.monotonic() + PATIENCE_S
    while len(read_topics(bootstrap, "load-items")) <= before:
        assert time.monotonic() < until, worker.log()
        time.sleep(0.1)
