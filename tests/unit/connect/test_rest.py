"""Kafka Connect's REST contract, over plain HTTP. Queries on Spark are stood in for."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.rest_server import RestServer
from ottla.connect.running import RunningConnector, State
from ottla.connect.worker import Worker
from ottla.connect.worker_config import WorkerConfig

SOURCE = {"connector.class": "FileStreamSource", "file": "f", "topic": "t"}
SINK = {"connector.class": "FileStreamSink", "file": "f", "topics": "t"}


def start(connector: RunningConnector, spark: object) -> None:
    connector.state, connector.trace = State.RUNNING, None


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(RunningConnector, "start", start)
    config = WorkerConfig.of(
        {
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "listeners": "http://127.0.0.1:0",
        }
    )
    made = Worker(config)
    made.store.open()
    yield made
    made.close()


class Client:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self._connection.request(method, path, data)
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None


@pytest.fixture
def rest(worker: Worker) -> Iterator[Client]:
    server = RestServer(worker)
    server.start()
    yield Client(server.ports[0])
    server.close()


@pytest.fixture
def source(rest: Client) -> str:
    assert rest("POST", "/connectors", {"name": "src", "config": SOURCE})[0] == 201
    return "/connectors/src"


def test_a_connector_is_made_and_shown(rest: Client) -> None:
    status, told = rest("POST", "/connectors", {"name": "src", "config": SOURCE})
    info = {
        "name": "src",
        "config": {**SOURCE, "name": "src"},
        "tasks": [{"connector": "src", "task": 0}],
        "type": "source",
    }
    assert (status, told) == (201, info)
    assert rest("GET", "/connectors") == (200, ["src"])
    assert rest("GET", "/connectors/src") == (200, info)
    assert rest("GET", "/connectors/src/config") == (200, info["config"])
    running = {"state": "RUNNING", "worker_id": "127.0.0.1:0"}
    wanted = {
        "name": "src",
        "connector": running,
        "tasks": [{"id": 0, **running}],
        "type": "source",
    }
    assert rest("GET", "/connectors/src/status") == (200, wanted)
    assert rest("GET", "/connectors?expand=status&expand=info") == (
        200, {"src": {"status": wanted, "info": info}},
    )  # fmt: skip
    assert rest("GET", "/connectors/src/tasks") == (
        200, [{"id": {"connector": "src", "task": 0}, "config": info["config"]}],
    )  # fmt: skip
    assert rest("GET", "/connectors/src/tasks/0/status") == (200, {"id": 0, **running})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/connectors/none", None, 404),
        ("GET", "/connectors/none/status", None, 404),
        ("DELETE", "/connectors/none", None, 404),
        ("PUT", "/connectors/none/pause", None, 404),
        ("POST", "/connectors/none/restart", None, 404),
        ("GET", "/connectors/src/tasks/7/status", None, 404),
        ("POST", "/connectors/src/tasks/7/restart", None, 404),
        ("GET", "/quux", None, 404),
        ("DELETE", "/connectors", None, 405),
        ("POST", "/connectors", b"{", 400),
        ("POST", "/connectors", [], 400),
        ("POST", "/connectors", {"name": "x"}, 400),
        ("POST", "/connectors", {"name": "x", "config": {"connector.class": "Quux"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {**SOURCE, "name": "y"}}, 400),
        ("POST", "/connectors", {"name": "x", "config": {**SOURCE, "tasks.max": []}}, 400),
        ("POST", "/connectors", {"name": "src", "config": SOURCE}, 409),
        ("PUT", "/connectors/src/config", {**SOURCE, "name": "other"}, 400),
        ("PATCH", "/connectors/none/config", {}, 404),
        ("PATCH", "/connectors/src/offsets", {"offsets": []}, 400),
        ("DELETE", "/connectors/src/offsets", None, 400),
        ("GET", "/connector-plugins/Quux/config", None, 404),
        ("GET", "/admin/loggers/no.such.logger", None, 404),
        ("PUT", "/admin/loggers/ottla", {"level": "LOUD"}, 404),
    ],
)
def test_errors_have_kafkas_form(
    rest: Client, source: str, method: str, path: str, body: Any, status: int
) -> None:
    found, told = rest(method, path, body)
    assert found == status
    assert told["error_code"] == status
    assert told["message"]


def test_a_missing_setting_is_told_with_all_others(rest: Client) -> None:
    config = {"connector.class": "FileStreamSource"}
    _, told = rest("POST", "/connectors", {"name": "x", "config": config})
    assert '"file"' in told["message"]
    assert '"topic"' in told["message"]


def test_put_makes_a_connector_or_changes_it(rest: Client) -> None:
    assert rest("PUT", "/connectors/src/config", SOURCE)[0] == 201
    status, told = rest("PUT", "/connectors/src/config", {**SOURCE, "topic": "u"})
    assert (status, told["config"]["topic"]) == (200, "u")
    status, told = rest("PATCH", "/connectors/src/config", {"topic": "v", "tasks.max": 2})
    assert (status, told["config"]["topic"], told["config"]["tasks.max"]) == (200, "v", "2")
    _, told = rest("PATCH", "/connectors/src/config", {"tasks.max": None})
    assert "tasks.max" not in told["config"]


def test_a_connector_is_paused_resumed_stopped_and_deleted(rest: Client, source: str) -> None:
    def state() -> str:
        told = rest("GET", f"{source}/status")[1]
        return str(told["connector"]["state"])

    assert rest("PUT", f"{source}/pause") == (202, None)
    assert state() == "PAUSED"
    assert rest("POST", f"{source}/restart") == (204, None)
    assert state() == "PAUSED"
    assert rest("PUT", f"{source}/resume") == (202, None)
    assert state() == "RUNNING"
    assert rest("PUT", f"{source}/stop") == (204, None)
    assert state() == "STOPPED"
    assert rest("GET", f"{source}/tasks") == (200, [])
    assert rest("DELETE", source) == (204, None)
    assert rest("GET", "/connectors") == (200, [])


def test_a_failure_is_in_the_status_until_a_restart(
    rest: Client, source: str, worker: Worker
) -> None:
    connector = worker.connector("src")
    connector.state, connector.trace = State.FAILED, "the disk is full"
    task = rest("GET", f"{source}/tasks/0/status")[1]
    assert (task["state"], task["trace"]) == ("FAILED", "the disk is full")
    status, told = rest("POST", f"{source}/restart?includeTasks=true&onlyFailed=true")
    assert (status, told["tasks"][0]["state"]) == (202, "RUNNING")
    connector.state = State.FAILED
    assert rest("POST", f"{source}/tasks/0/restart") == (204, None)
    assert connector.state is State.RUNNING


def test_offsets_of_a_stopped_source_are_altered_and_reset(rest: Client, source: str) -> None:
    rest("PUT", f"{source}/stop")
    at_four = {"partition": {"filename": "f"}, "offset": {"position": 4}}
    status, told = rest("PATCH", f"{source}/offsets", {"offsets": [at_four]})
    assert status == 200
    assert "altered" in told["message"]
    assert rest("GET", f"{source}/offsets") == (200, {"offsets": [at_four]})
    wrong = {"partition": {"filename": "f"}, "offset": {"position": -1}}
    assert rest("PATCH", f"{source}/offsets", {"offsets": [wrong]})[0] == 400
    assert rest("DELETE", f"{source}/offsets")[0] == 200
    assert rest("GET", f"{source}/offsets") == (200, {"offsets": []})


def test_plugins_say_what_they_guarantee_and_take(rest: Client) -> None:
    told = {each["class"]: each for each in rest("GET", "/connector-plugins")[1]}
    assert told["FileStreamSource"]["type"] == "source"
    assert told["FileStreamSink"]["guarantee"] == "exactly-once"
    everything = rest("GET", "/connector-plugins?connectorsOnly=false")[1]
    assert {"class": "Flatten", "type": "transformation"} in everything
    config = {each["name"]: each for each in rest(
        "GET", "/connector-plugins/FileStreamSinkConnector/config")[1]}  # fmt: skip
    assert config["file"]["required"]
    assert config["topics"]["type"] == "LIST"


def test_validate_counts_every_error(rest: Client) -> None:
    config = {"name": "x", "connector.class": "FileStreamSink", "topics": "t", "tasks.max": "no"}
    path = "/connector-plugins/FileStreamSink/config/validate"
    status, told = rest("PUT", path, config)
    wrong = {each["value"]["name"] for each in told["configs"] if each["value"]["errors"]}
    assert (status, told["error_count"], wrong) == (200, 2, {"file", "tasks.max"})


def test_loggers_are_shown_and_set(rest: Client) -> None:
    status, told = rest("PUT", "/admin/loggers/ottla.connect.some", {"level": "debug"})
    assert (status, told) == (200, ["ottla.connect.some"])
    assert rest("GET", "/admin/loggers/ottla.connect.some")[1]["level"] == "DEBUG"
    assert "root" in rest("GET", "/admin/loggers")[1]


def test_a_connector_may_begin_stopped(rest: Client) -> None:
    body = {"name": "k", "config": SINK, "initial_state": "STOPPED"}
    assert rest("POST", "/connectors", body)[0] == 201
    assert rest("GET", "/connectors/k/status")[1]["connector"]["state"] == "STOPPED"
