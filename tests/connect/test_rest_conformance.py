"""Kafka Connect's REST contract as one table: every endpoint and every error, over plain HTTP.

The rows are a script. They run in order on one worker, standalone and in a group, with tasks in
threads and on Spark, and the test reports every row that does not hold. See `matches` for how a row
describes the expected body."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.connect.workers import WorkerProcess, free_port, send, worker_properties

from ottla.connect.distributed.herder import DistributedHerder
from ottla.connect.herder import Herder
from ottla.connect.rest.server import RestServer
from ottla.connect.standalone import StandaloneHerder
from ottla.connect.worker_config import DISTRIBUTED, WorkerConfig
from ottla.testing.broker_thread import BrokerThread

PATIENCE_S = 60.0
SOURCE = {"connector.class": "FileStreamSource", "file": "FOLDER/in.txt", "topic": "rest"}
SINK = {"connector.class": "FileStreamSink", "file": "FOLDER/out.txt", "topics": "rest"}
SOURCE_OFFSET = {"partition": {"filename": "FOLDER/in.txt"}, "offset": {"position": 2}}
SINK_OFFSET = {
    "partition": {"kafka_topic": "rest", "kafka_partition": 0}, "offset": {"kafka_offset": 1},
}  # fmt: skip
VALIDATE = "/connector-plugins/FileStreamSource/config/validate"
ANYTHING = object()
TEXT = object()


class Row(NamedTuple):
    method: str
    path: str
    status: int
    body: Any = None
    expected: Any = ANYTHING
    waits: bool = False
    """Whether to repeat the request until it matches, because the effect is asynchronous."""


def error(status: int, text: str) -> dict[str, Any]:
    return {"error_code": status, "message": Contains(text)}


class Contains(NamedTuple):
    text: str


class Has(NamedTuple):
    item: Any


TASK = {"connector": "src", "task": 0}
ROWS = [
    # ------------------------------------------------------------------ the worker
    Row("GET", "/", 200, expected={"version": TEXT, "commit": TEXT, "kafka_cluster_id": TEXT}),
    Row("GET", "/health", 200, expected={"status": "healthy", "message": TEXT}),
    Row("GET", "/quux", 404, expected=error(404, "Not Found")),
    Row("DELETE", "/connectors", 405, expected=error(405, "Method Not Allowed")),
    # ----------------------------------------------------- creating connectors
    Row("GET", "/connectors", 200, expected=[]),
    Row("POST", "/connectors", 400, b"{", error(400, "not valid JSON")),
    Row("POST", "/connectors", 400, [], error(400, "JSON object")),
    Row("POST", "/connectors", 400, {"name": "x"}, error(400, "config")),
    Row("POST", "/connectors", 400, {"name": "x", "config": {"connector.class": "FileStreamSourc"}},
        error(400, "did you mean FileStreamSource")),
    Row("POST", "/connectors", 400,
        {"name": "x", "config": {"connector.class": "FileStreamSource", "tasks.max": "no"}},
        error(400, "3 errors")),
    Row("POST", "/connectors", 400, {"name": "x", "config": {**SOURCE, "name": "y"}},
        error(400, "doesn't match connector name")),
    Row("POST", "/connectors", 400, {"name": "x", "config": {**SOURCE, "tasks.max": []}},
        error(400, "must be a string")),
    Row("POST", "/connectors", 400, {"name": "x", "config": SOURCE, "initial_state": "LOUD"},
        error(400, "initial_state")),
    Row("POST", "/connectors", 201, {"name": "src", "config": {**SOURCE, "tasks.max": 1}},
        {"name": "src", "type": "source", "config": {**SOURCE, "tasks.max": "1", "name": "src"}}),
    Row("POST", "/connectors", 409, {"name": "src", "config": SOURCE},
        error(409, "Connector src already exists")),
    Row("PUT", "/connectors/snk/config", 400, {**SINK, "name": "other"}, error(400, "in the URL")),
    Row("PUT", "/connectors/snk/config", 400, {**SINK, "topics.regex": "a"},
        error(400, "exclude each other")),
    Row("PUT", "/connectors/snk/config", 201, SINK, {"name": "snk", "type": "sink"}),
    Row("PUT", "/connectors/snk/config", 200, {**SINK, "tasks.max": "2"},
        {"config": {**SINK, "tasks.max": "2", "name": "snk"}}),
    # --------------------------------------------------- listing and describing
    Row("GET", "/connectors", 200, expected=["snk", "src"]),
    Row("GET", "/connectors?expand=status&expand=info", 200, None,
        {"src": {"status": {"name": "src"}, "info": {"type": "source"}}, "snk": {}}),
    Row("GET", "/connectors/src", 200, None,
        {"name": "src", "type": "source", "tasks": [TASK], "config": {"name": "src"}}, waits=True),
    Row("GET", "/connectors/none", 404, expected=error(404, "Connector none not found")),
    Row("GET", "/connectors/src/config", 200, expected={**SOURCE, "name": "src"}),
    Row("GET", "/connectors/none/config", 404, expected=error(404, "none not found")),
    Row("GET", "/connectors/src/tasks", 200, expected=[{"id": TASK, "config": SOURCE}]),
    Row("GET", "/connectors/none/tasks", 404, expected=error(404, "none not found")),
    Row("GET", "/connectors/src/tasks-config", 200, expected={"src-0": SOURCE}),
    Row("GET", "/connectors/src/status", 200, None,
        {"name": "src", "type": "source", "connector": {"state": "RUNNING", "worker_id": TEXT},
         "tasks": [{"id": 0, "state": "RUNNING", "worker_id": TEXT}]}, waits=True),
    Row("GET", "/connectors/none/status", 404, expected=error(404, "none not found")),
    Row("GET", "/connectors/src/tasks/0/status", 200, expected={"id": 0, "state": "RUNNING"}),
    Row("GET", "/connectors/src/tasks/7/status", 404, expected=error(404, "src-7")),
    Row("GET", "/connectors/src/tasks/x/status", 404, expected=error(404, "src-x")),
    # --------------------------------------------------- changing configurations
    Row("PATCH", "/connectors/snk/config", 200, {"tasks.max": None, "errors.tolerance": "all"},
        {"config": {"errors.tolerance": "all", "name": "snk"}}),
    Row("PATCH", "/connectors/none/config", 404, {}, error(404, "none not found")),
    Row("PATCH", "/connectors/snk/config", 400, {"topics": None}, error(400, "both missing")),
    # ------------------------------------------------------------------ topics and offsets
    Row("GET", "/connectors/src/topics", 200, expected={"src": {"topics": ["rest"]}}, waits=True),
    Row("GET", "/connectors/snk/topics", 200, expected={"snk": {"topics": ["rest"]}}, waits=True),
    Row("PUT", "/connectors/snk/config", 200, {**SINK, "errors.tolerance": "all"},
        {"config": {"errors.tolerance": "all", "name": "snk"}}),
    Row("GET", "/connectors/snk/topics", 200, expected={"snk": {"topics": ["rest"]}}),
    Row("GET", "/connectors/none/topics", 404, expected=error(404, "none not found")),
    Row("PUT", "/connectors/none/topics/reset", 404, expected=error(404, "none not found")),
    Row("GET", "/connectors/src/offsets", 200, None,
        {"offsets": [{"partition": SOURCE_OFFSET["partition"], "offset": {"position": 4}}]},
        waits=True),
    Row("GET", "/connectors/none/offsets", 404, expected=error(404, "none not found")),
    Row("PATCH", "/connectors/src/offsets", 400, {"offsets": [SOURCE_OFFSET]},
        error(400, "STOPPED")),
    Row("DELETE", "/connectors/src/offsets", 400, expected=error(400, "STOPPED")),
    # ------------------------------------------------------------------ states
    Row("PUT", "/connectors/none/pause", 404, expected=error(404, "none not found")),
    Row("PUT", "/connectors/none/resume", 404, expected=error(404, "none not found")),
    Row("PUT", "/connectors/none/stop", 404, expected=error(404, "none not found")),
    Row("PUT", "/connectors/src/pause", 202, expected=None),
    Row("GET", "/connectors/src/status", 200, None,
        {"connector": {"state": "PAUSED"}, "tasks": [{"state": "PAUSED"}]}, waits=True),
    Row("POST", "/connectors/src/restart", 204, expected=None),
    Row("GET", "/connectors/src/status", 200, expected={"connector": {"state": "PAUSED"}}),
    Row("PUT", "/connectors/src/resume", 202, expected=None),
    Row("GET", "/connectors/src/status", 200, None,
        {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}, waits=True),
    Row("POST", "/connectors/none/restart", 404, expected=error(404, "none not found")),
    Row("POST", "/connectors/src/restart", 204, expected=None),
    Row("POST", "/connectors/src/restart?includeTasks=true&onlyFailed=false", 202, None,
        {"name": "src", "connector": {}, "tasks": [{"id": 0}]}),
    Row("POST", "/connectors/src/restart?includeTasks=true&onlyFailed=true", 202,
        expected={"name": "src"}),
    Row("POST", "/connectors/src/tasks/0/restart", 204, expected=None),
    Row("POST", "/connectors/src/tasks/7/restart", 404, expected=error(404, "src-7")),
    Row("POST", "/connectors/none/tasks/0/restart", 404, expected=error(404, "none")),
    Row("GET", "/connectors/src/status", 200,
        expected={"tasks": [{"state": "RUNNING"}]}, waits=True),
    # ----------------------------------------------------------- offsets of stopped connectors
    Row("PUT", "/connectors/src/stop", 204, expected=None),
    Row("GET", "/connectors/src/status", 200, None,
        {"connector": {"state": "STOPPED"}, "tasks": []}, waits=True),
    Row("GET", "/connectors/src/tasks", 200, expected=[], waits=True),
    Row("PATCH", "/connectors/src/offsets", 400, {"offsets": []},
        error(400, "need to be provided")),
    Row("PATCH", "/connectors/src/offsets", 400, {"offsets": "x"}, error(400, "array")),
    Row("PATCH", "/connectors/src/offsets", 400, {"offsets": [{"partition": 1}]},
        error(400, "partition")),
    Row("PATCH", "/connectors/src/offsets", 400,
        {"offsets": [{**SOURCE_OFFSET, "offset": {"position": -1}}]},
        error(400, "a number of at least 0")),
    Row("PATCH", "/connectors/none/offsets", 404, {"offsets": [SOURCE_OFFSET]},
        error(404, "none not found")),
    Row("PATCH", "/connectors/src/offsets", 200, {"offsets": [SOURCE_OFFSET]},
        {"message": Contains("altered successfully")}),
    Row("GET", "/connectors/src/offsets", 200, expected={"offsets": [SOURCE_OFFSET]}),
    Row("DELETE", "/connectors/src/offsets", 200,
        expected={"message": Contains("reset successfully")}),
    Row("GET", "/connectors/src/offsets", 200, expected={"offsets": []}),
    Row("DELETE", "/connectors/none/offsets", 404, expected=error(404, "none not found")),
    Row("PUT", "/connectors/snk/stop", 204, expected=None),
    Row("GET", "/connectors/snk/offsets", 200,
        expected={"offsets": [{"partition": SINK_OFFSET["partition"]}]}, waits=True),
    Row("PATCH", "/connectors/snk/offsets", 400, {"offsets": [SOURCE_OFFSET]},
        error(400, "kafka_topic")),
    Row("PATCH", "/connectors/snk/offsets", 200, {"offsets": [SINK_OFFSET]},
        {"message": Contains("altered successfully")}),
    Row("GET", "/connectors/snk/offsets", 200, expected={"offsets": [SINK_OFFSET]}),
    Row("DELETE", "/connectors/snk/offsets", 200, expected={"message": Contains("reset")}),
    Row("GET", "/connectors/snk/offsets", 200, expected={"offsets": []}),
    Row("PUT", "/connectors/src/topics/reset", 200, expected=None),
    Row("GET", "/connectors/src/topics", 200, expected={"src": {"topics": []}}, waits=True),
    # ------------------------------------------------------------------ plugins
    Row("GET", "/connector-plugins", 200, None,
        Has({"class": "FileStreamSource", "type": "source", "version": TEXT,
             "guarantee": "exactly-once"})),
    Row("GET", "/connector-plugins?connectorsOnly=false", 200, None,
        Has({"class": "Flatten", "type": "transformation"})),
    Row("GET", "/connector-plugins/FileStreamSinkConnector/config", 200, None,
        Has({"name": "file", "type": "STRING", "required": True, "importance": "HIGH",
             "documentation": TEXT, "group": TEXT, "width": TEXT, "display_name": TEXT,
             "dependents": [], "order": ANYTHING, "default_value": None})),
    Row("GET", "/connector-plugins/JsonConverter/config", 200, None,
        Has({"name": "schemas.enable", "type": "BOOLEAN"})),
    Row("GET", "/connector-plugins/Quux/config", 404,
        expected=error(404, "Connector Quux does not exist")),
    Row("PUT", VALIDATE, 200, {"name": "x", **SOURCE}, {"error_count": 0, "groups": Has("Common")}),
    Row("PUT", VALIDATE, 200, {"name": "x", "tasks.max": "no"},
        {"name": "FileStreamSource", "error_count": 3,
         "configs": Has({"definition": {"name": "tasks.max", "type": "INT"},
                         "value": {"name": "tasks.max", "value": "no", "visible": True,
                                   "recommended_values": [], "errors": [TEXT]}})}),
    Row("PUT", VALIDATE, 200, {"name": "x", **SOURCE, "topic.creation.groups": "a",
                               "topic.creation.a.partitions": "0"},
        {"error_count": 3, "groups": Has("Topic Creation: a"),
         "configs": Has({"value": {"name": "topic.creation.a.partitions", "errors": [
             Contains("Number of partitions must be positive, or -1")]}})}),
    Row("PUT", VALIDATE, 400, SINK, error(400, "does not match request type")),
    Row("PUT", VALIDATE, 400, b"nothing", error(400, "not valid JSON")),
    # ------------------------------------------------------------------ loggers
    Row("GET", "/admin/loggers", 200,
        expected={"root": {"level": TEXT, "last_modified": ANYTHING}}),
    Row("PUT", "/admin/loggers/ottla.connect.some", 200, {"level": "debug"},
        ["ottla.connect.some"]),
    Row("GET", "/admin/loggers/ottla.connect.some", 200, expected={"level": "DEBUG"}),
    Row("GET", "/admin/loggers/no.such.logger", 404, expected=error(404, "no.such.logger")),
    Row("PUT", "/admin/loggers/ottla", 404, {"level": "LOUD"}, error(404, "LOUD")),
    Row("PUT", "/admin/loggers/ottla", 400, {}, error(400, "Desired 'level' parameter")),
    Row("PUT", "/admin/loggers/ottla.connect.some?scope=cluster", 204, {"level": "warn"}, None),
    Row("GET", "/admin/loggers/ottla.connect.some", 200, None,
        {"level": "WARN", "last_modified": ANYTHING}),
    Row("PUT", "/admin/loggers/ottla.connect?scope=CLUSTER", 204, {"level": "INFO"}, None),
    Row("GET", "/admin/loggers/ottla.connect.some", 200, expected={"level": "INFO"}),
    Row("PUT", "/admin/loggers/ottla.connect.some?scope=worker", 200, {"level": "ERROR"},
        ["ottla.connect.some"]),
    Row("PUT", "/admin/loggers/ottla.connect.some?scope=galaxy", 200, {"level": "FATAL"},
        ["ottla.connect.some"]),
    Row("GET", "/admin/loggers/ottla.connect.some", 200, expected={"level": "FATAL"}),
    Row("PUT", "/admin/loggers/ottla?scope=cluster", 404, {"level": "LOUD"}, error(404, "LOUD")),
    # ---------------------------------------------------------------- initial states and deletion
    Row("POST", "/connectors", 201, {"name": "p", "config": SOURCE, "initial_state": "PAUSED"},
        {"name": "p"}),
    Row("GET", "/connectors/p/status", 200,
        expected={"connector": {"state": "PAUSED"}}, waits=True),
    Row("POST", "/connectors", 201, {"name": "s", "config": SOURCE, "initial_state": "STOPPED"},
        {"name": "s", "tasks": []}),
    Row("DELETE", "/connectors/none", 404, expected=error(404, "none not found")),
    Row("DELETE", "/connectors/p", 204, expected=None),
    Row("DELETE", "/connectors/s", 204, expected=None),
    Row("DELETE", "/connectors/snk", 204, expected=None),
    Row("GET", "/connectors", 200, expected=["src"]),
    Row("GET", "/connectors/snk/status", 404, expected=error(404, "snk not found")),
]  # fmt: skip


def matches(wanted: Any, found: Any) -> bool:
    """Return whether a body matches the wanted one.

    Objects may have more fields than wanted; arrays must have the same length."""
    if wanted is ANYTHING:
        return True
    if wanted is TEXT:
        return isinstance(found, str) and bool(found)
    if isinstance(wanted, Contains):
        return isinstance(found, str) and wanted.text in found
    if isinstance(wanted, Has):
        return isinstance(found, list) and any(matches(wanted.item, each) for each in found)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and matches(each, found[name]) for name, each in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(map(matches, wanted, found))
        )
    return bool(wanted == found)


def placed(value: Any, folder: str) -> Any:
    """Return the value with FOLDER replaced by the folder's path."""
    if isinstance(value, bytes) or value in (ANYTHING, TEXT) or isinstance(value, Contains):
        return value
    if isinstance(value, Has):
        return Has(placed(value.item, folder))
    if isinstance(value, dict):
        return {name: placed(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [placed(each, folder) for each in value]
    return value.replace("FOLDER", folder) if isinstance(value, str) else value


def ask(port: int, method: str, path: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if text:
        assert response.getheader("Content-Type") == "application/json"
    return response.status, json.loads(text) if text else None


@pytest.fixture(params=["standalone", "distributed", "standalone on Spark", "distributed on Spark"])
def port(request: pytest.FixtureRequest, broker: BrokerThread, tmp_path: Path) -> Iterator[int]:
    kind, _, engine = request.param.partition(" on ")
    start = port_on_spark if engine else port_with_threads
    yield from start(kind, broker, tmp_path)


def port_on_spark(kind: str, broker: BrokerThread, folder: Path) -> Iterator[int]:
    pytest.importorskip("pyspark")
    properties = {"task.engine": "spark", "spark.master": "local[2]"}
    worker = WorkerProcess(kind, folder, broker.bootstrap, properties)
    worker.start()
    yield worker.port
    worker.kill()


def port_with_threads(kind: str, broker: BrokerThread, tmp_path: Path) -> Iterator[int]:
    given = worker_properties(broker.bootstrap, tmp_path)
    given["listeners"] = f"http://127.0.0.1:{free_port()}"
    herder: Herder
    if kind == "standalone":
        herder = StandaloneHerder(WorkerConfig.of(given))
    else:
        storage = {f"{kind}.storage.topic": f"{kind}-{tmp_path.name}"
                   for kind in ("config", "offset", "status")}  # fmt: skip
        given |= storage | {"group.id": tmp_path.name, "state.dir": str(tmp_path)}
        herder = DistributedHerder(WorkerConfig.of(given, DISTRIBUTED))
    server = RestServer(herder)
    herder.start()
    server.start()
    thread = threading.Thread(target=herder.run, daemon=True)
    thread.start()
    yield server.ports[0]
    server.close()
    herder.request_stop()
    thread.join(30)
    herder.close()


def test_every_endpoint_and_error_is_as_in_kafka_connect(
    port: int, broker: BrokerThread, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    send(broker.bootstrap, "rest", b"before")
    wrong = []
    for row in ROWS:
        body, expected = placed(row.body, str(tmp_path)), placed(row.expected, str(tmp_path))
        until = time.monotonic() + (PATIENCE_S if row.waits else 0)
        while True:
            status, found = ask(port, row.method, row.path, body)
            is_right = status == row.status and matches(expected, found)
            if is_right or time.monotonic() >= until:
                break
            time.sleep(0.05)
        if not is_right:
            wrong.append(f"{row.method} {row.path} {row.body}: {status} {found}")
    assert not wrong, "\n".join(wrong)
