"""Spark Connect: sessions, tables and Streams applications, on a server of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import SOURCE, Topic

from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("grpc_status")

PROGRAM = Path(__file__).with_name("connect_program.py")
TIMEOUT_S = 280


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def topics(broker: BrokerThread) -> dict[str, Topic]:
    return {name: Topic(broker, name, 1) for name in ("orders", "large", "totals")}


@pytest.fixture(scope="module")
def seen(broker: BrokerThread, topics: dict[str, Topic], home: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH")))),
        "PYTHONWARNINGS": "error:Failed to set",
        # A free port, so that several servers can run at the same time.
        "SPARK_TESTING": "1",
    }
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), broker.bootstrap, str(home / "state")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    # One line: nothing else prints to the console, least of all the server's token.
    (line,) = done.stdout.splitlines()
    return json.loads(line)  # type: ignore[no-any-return]


pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)


def test_a_session_of_spark_connect_has_the_format(seen: dict[str, Any]) -> None:
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["same session"]


def test_a_table_is_read_with_an_inferred_schema(seen: dict[str, Any]) -> None:
    assert seen["table"] == [10, "bigint"]


def test_an_application_writes_records_exactly_once_across_a_restart(
    seen: dict[str, Any], topics: dict[str, Topic]
) -> None:
    amounts = [json.loads(value)["amount"] for _, value in topics["large"].records()]
    assert sorted(amounts) == list(range(5, 16))


def test_an_application_writes_changes_exactly_once_across_a_restart(
    seen: dict[str, Any], topics: dict[str, Topic]
) -> None:
    changes: dict[str, list[float]] = {}
    for key, value in topics["totals"].records():
        changes.setdefault((key or b"").decode(), []).append(json.loads(value)["total"])
    assert changes == {"a": [20, 42, 56], "b": [25, 49, 64]}


def test_status_counts_the_rows_of_operators(seen: dict[str, Any]) -> None:
    assert seen["rows"] == {"large": 4, "totals": 4}


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("print", "would print on the Spark Connect server"),
        ("driver", "Use a session without Spark Connect"),
        ("master", "A session of Spark Connect has no master"),
        ("setting", "--conf spark.driver.memory=9g"),
        ("topology", "was written by a different topology"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    seen: dict[str, Any], what: str, sentence: str
) -> None:
    assert sentence in seen["refused"][what]


def test_reset_deletes_the_files_of_a_server_on_this_machine(
    seen: dict[str, Any], home: Path
) -> None:
    assert sorted(each.name for each in (home / "state" / "shop").iterdir()) == ["~lock"]
