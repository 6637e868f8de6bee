"""Change capture by a group of three workers of which the capturing one dies or is suspended.

Another worker continues from the same slot, and replaying the topics yields the tables: nothing is
lost or duplicated."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.connect.databases.servers import Postgres
from tests.connect.databases.test_capture_chaos import copy_to, replayed, source
from tests.connect.databases.worker import read_topics
from tests.connect.databases.workload import SETUP, Workload, tables_of
from tests.connect.test_distributed import TAKE_OVER_S, Group, WorkerProcess

from ottla.testing.broker_thread import BrokerThread

PATIENCE_S = 120.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with BrokerThread() as broker:
        made = Group(tmp_path, broker, 3)
        yield made
        made.close()


def wait_for(what: Callable[[], object], message: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, message
        time.sleep(0.1)


class Captured:
    def __init__(self, group: Group, postgres: Postgres, database: str) -> None:
        self.group, self._postgres, self._database = group, postgres, database
        self._marks = 0

    def start(self, **more: str) -> None:
        self._postgres.run(f"ALTER DATABASE {self._database} SET timezone = 'UTC'")
        self._postgres.run(*SETUP, database=self._database)
        own = {"database.dbname": self._database, "slot.name": f"slot_{self._database}"}
        self.create(source(self._postgres) | own | more)

    def create(self, config: dict[str, str]) -> None:
        name = config.pop("name")
        status, body = self.group.workers[0].ask(
            "POST", "/connectors", {"name": name, "config": config}
        )
        assert status == 201, body
        wait_for(lambda: f"{name}-0" in self.group.workers[0].owners(), name)

    def owner(self, awake: WorkerProcess) -> WorkerProcess:
        wait_for(lambda: "capture-0" in awake.owners(), "somebody captures")
        there = awake.owners()["capture-0"]
        return next(each for each in self.group.workers if each.worker_id == there)

    def mark(self) -> None:
        """Insert a row and wait until it is in the topic."""
        self._marks += 1
        number = 900_000 + self._marks
        self._postgres.run(
            f"INSERT INTO orders (id, note) VALUES ({number}, 'mark {number} is here')",
            database=self._database,
        )
        message = f"mark {number} is here".encode()
        wait_for(lambda: any(message in (each.value or b"") for each in self._records("orders")),
                 f"mark {number}")  # fmt: skip

    def check(self) -> None:
        """Check that each change is there once, in commit order, and that they yield the tables."""
        wanted, found = tables_of(self._postgres, self._database), replayed(self._records(""))
        for name, rows in wanted.items():
            assert found.get(name, []) == rows, name

    def _records(self, table: str) -> list[object]:
        return read_topics(self.group.broker.bootstrap, f"shop.public.{table}")


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_workers_that_die_or_sleep_while_they_capture_lose_and_double_nothing(
    group: Group, postgres: Postgres, database: str
) -> None:
    captured = Captured(group, postgres, database)
    captured.start()
    copy = f"{database}_copy"
    postgres.run(f"DROP DATABASE IF EXISTS {copy}", f"CREATE DATABASE {copy}",
                 f"ALTER DATABASE {copy} SET timezone = 'UTC'")  # fmt: skip
    captured.create(copy_to(postgres) | {"connection.url": postgres.url(copy)})
    workload = Workload(postgres, seed=5, threads=3, database=database)
    workload.start()
    took = []
    try:
        for turn in range(8):
            captured.mark()
            owner = captured.owner(group.workers[0])
            awake = next(each for each in group.workers if each is not owner)
            number = signal.SIGKILL if turn % 2 == 0 else signal.SIGSTOP
            owner.send_signal(number)
            if number == signal.SIGKILL:
                owner.process.wait()  # type: ignore[union-attr]
            began = time.monotonic()
            captured.mark()
            took.append(time.monotonic() - began)
            assert captured.owner(awake) is not owner
            if number == signal.SIGKILL:
                owner.start()
            else:
                owner.send_signal(signal.SIGCONT)
            wait_for(owner.is_up, "it is back")
    finally:
        workload.stop()
    assert workload.errors == []
    captured.mark()
    captured.check()
    wanted = tables_of(postgres, database)
    wait_for(lambda: tables_of(postgres, copy) == wanted, "the copy is equal")
    print(f"{workload.count} changes; taken over after", [f"{each:.1f}" for each in took], "s")
    assert max(took) < TAKE_OVER_S
