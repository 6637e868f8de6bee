"""docs/howto/postgres.md, followed from the first block to the last on a default PostgreSQL.

Blocks are copied unchanged, except that the database, the broker and the worker use free ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import Postgres, running
from tests.connect.databases.worker import free_port
from tests.connect.workers import wait_for
from tests.docs.blocks import ROOT, Block, blocks, commands
from tests.docs.running import PROJECT, check_extras

from ottla.testing.broker_thread import BrokerThread

PAGE = "docs/howto/postgres.md"
PREPARE, START, READ = "1. Prepare the database", "2. Start the connector", "3. Read the topic"
TROUBLE, MANAGE = "If the connector does not start", "Let the connector manage the publication"
END = "Before you leave it running"
TIMEOUT_S = 120.0


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed (make test installs PostgreSQL, as root)")
    server = Postgres()
    config = server.folder / "data" / "postgresql.conf"
    config.write_text(config.read_text().replace("wal_level = logical\n", ""))
    with running(server) as found:
        yield found


def section(title: str, *languages: str) -> list[Block]:
    """Return the blocks below a heading; '' is the part before the first heading."""
    lines = (ROOT / PAGE).read_text().splitlines()
    headings = {line[3:]: number for number, line in enumerate(lines) if line.startswith("## ")}
    starts = {"": 0} | headings
    end = min((each for each in starts.values() if each > starts[title]), default=len(lines))
    found = [block for block in blocks(PAGE) if starts[title] < block.line <= end]
    assert all(block.language in languages for block in found), found
    return found


class Desk:
    """Workplace of a reader: a folder, the addresses, and the running worker."""

    def __init__(self, folder: Path, broker: BrokerThread, postgres: Postgres) -> None:
        self.folder, self.postgres = folder, postgres
        self.rest = f"localhost:{free_port()}"
        self._addresses = {
            "localhost:9092": broker.bootstrap,
            "localhost:8083": self.rest,
            "database.port=5432": f"database.port={postgres.port}",
        }
        self._bootstrap = broker.bootstrap
        self._worker: subprocess.Popen[bytes] | None = None

    def sql(self, block: Block, without: tuple[str, ...] = ()) -> None:
        """Run a block in psql as the superuser."""
        text = "".join(
            line
            for line in block.text.splitlines(keepends=True)
            if not any(line.startswith(each) for each in without)
        )
        postgres = self.postgres
        subprocess.run(
            ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"],
            input=text, text=True, check=True, capture_output=True, timeout=TIMEOUT_S,
            env={**os.environ, "PGPORT": str(postgres.port), "PGPASSWORD": postgres.password},
        )  # fmt: skip

    def prepare(self, without: tuple[str, ...] = ()) -> None:
        (table,) = section("", "sql")
        setting, role = section(PREPARE, "sql")
        self.sql(table)
        self.sql(setting)
        self.postgres.stop()
        self.postgres.start()
        self.sql(role, without)

    def write(self, block: Block) -> None:
        name, text = block.text.splitlines()[0].removeprefix("# "), self._here(block.text)
        if name == "worker.properties":
            text += f"listeners=http://{self.rest}\n"
        (self.folder / name).write_text(text)

    def command(self, text: str, *more: str) -> str:
        """Run a command of the page and return its output; a worker stays running."""
        words = self._here(text).split()
        if words[:2] == ["pip", "install"]:
            check_extras([words[2].strip("'")])
            return ""
        if words[0] == "curl":
            with urllib.request.urlopen(f"http://{words[1]}", timeout=TIMEOUT_S) as response:
                return str(response.read().decode())
        module, _, function = PROJECT["scripts"][words[0]].partition(":")
        program = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
        if words[0] == "connect-standalone":
            with open(self.folder / "worker.log", "ab") as log:
                self._worker = subprocess.Popen(
                    [*program, *words[1:]], cwd=self.folder, stdout=log, stderr=log
                )
            return ""
        more += ("--bootstrap-server", self._bootstrap)
        return subprocess.run(
            [*program, *words[1:], *more], cwd=self.folder, text=True, check=True,
            stdout=subprocess.PIPE, timeout=TIMEOUT_S,
        ).stdout  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Request the status as the page does, until the task has a state."""
        ((command, _),) = commands(section(TROUBLE, "sh")[0].text)

        def ask() -> dict[str, Any] | None:
            assert self._worker is not None
            assert self._worker.poll() is None, (self.folder / "worker.log").read_text()
            try:
                tasks = json.loads(self.command(command))["tasks"]
            except OSError:
                return None
            return dict(tasks[0]) if tasks and tasks[0]["state"] != "UNASSIGNED" else None

        return wait_for(ask, "the status of the connector")

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(TIMEOUT_S)
            self._worker = None

    def _here(self, text: str) -> str:
        for theirs, ours in self._addresses.items():
            text = text.replace(theirs, ours)
        return text


@pytest.fixture
def desk(tmp_path: Path, postgres: Postgres) -> Iterator[Desk]:
    with BrokerThread() as broker:
        found = Desk(tmp_path, broker, postgres)
        try:
            yield found
        finally:
            found.stop()


@pytest.mark.timeout(300)
def test_the_page_can_be_followed_from_its_first_block_to_its_last(desk: Desk) -> None:
    desk.prepare(without=("GRANT SELECT",))
    for block in section(START, "sh", "properties"):
        if block.language == "properties":
            desk.write(block)
        else:
            desk.command(block.text)
    # The reader skipped a statement of the page, so the trace must name it.
    status = desk.status()
    assert status["state"] == "FAILED", status
    assert "Run as a superuser: GRANT SELECT ON public.orders TO ottla;" in status["trace"]
    desk.stop()
    desk.postgres.connect("shop").execute("GRANT SELECT ON orders TO ottla").connection.close()
    desk.command(section(START, "sh", "properties")[-1].text)
    assert desk.status()["state"] == "RUNNING"
    consume, change, _ = section(READ, "sh", "sql", "properties")
    ((consumer, _),) = commands(consume.text)
    rows = [json.loads(line) for line in desk.command(consumer).splitlines()]
    assert [(each["op"], each["after"]["item"]) for each in rows] == [("r", "lamp"), ("r", "desk")]
    desk.sql(change)
    printed = desk.command(consumer, "--max-messages", "5").splitlines()
    update, delete = (json.loads(line) for line in printed[2:4])
    assert (update["op"], delete["op"], printed[4]) == ("u", "d", "null")
    desk.stop()
    (end,) = section(END, "sql")
    desk.sql(end)


@pytest.mark.timeout(300)
def test_the_connector_manages_the_publication_with_the_privileges_of_the_page(desk: Desk) -> None:
    desk.prepare(without=("GRANT SELECT", "CREATE PUBLICATION"))
    (grants,) = section(MANAGE, "sql")
    desk.sql(grants)
    given = {"database_user": "ottla", "database_password": "secret", "slot_name": "ottla"}
    given["heartbeat_interval_ms"] = "100"
    capture = Capture(connector(desk.postgres, "shop", **given)).start()
    try:
        while len([each for each in capture.records if "orders" in each.topic]) < 2:
            capture.poll()
        with desk.postgres.connect("shop") as connection:
            connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
            connection.execute("ALTER TABLE items OWNER TO shop_owners")
            connection.execute("INSERT INTO items VALUES (1)")
        wait_for(
            lambda: capture.poll() and any("items" in each.topic for each in capture.records),
            "rows of a new table",
        )
    finally:
        capture.crash()
