"""Kafka Connect's REST contract: (method, path, query, body) to a status and JSON.

| path | methods |
|---|---|
| / | GET |
| /connectors | GET (`expand=status`, `expand=info`), POST |
| /connectors/NAME | GET, DELETE |
| /connectors/NAME/config | GET, PUT, PATCH |
| /connectors/NAME/status, /tasks, /tasks/N/status, /tasks-config, /topics | GET |
| /connectors/NAME/restart, /tasks/N/restart | POST |
| /connectors/NAME/pause, /resume, /stop, /topics/reset | PUT |
| /connectors/NAME/offsets | GET, PATCH, DELETE |
| /connector-plugins, /connector-plugins/CLASS/config | GET |
| /connector-plugins/CLASS/config/validate | PUT |
| /admin/loggers, /admin/loggers/NAME | GET, PUT (one) |
| /health | GET |

Errors are {"error_code": …, "message": …} with Kafka's codes. A connector's tasks are one query
on Spark, so restarting a task restarts its connector. Knows no sockets: see `rest_server`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.base.errors import KafkaError, UserError
from ottla.connect.config import InvalidConnector
from ottla.connect.rest_offsets import alter_offsets, offsets_of, reset_offsets
from ottla.connect.rest_plugins import plugin_config, plugins, validated
from ottla.connect.running import RunningConnector, State
from ottla.connect.worker import NoSuchConnector, Worker

logger = logging.getLogger(__name__)

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
_PYTHON_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50,
                  "OFF": 100}  # fmt: skip


class RestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Answer(NamedTuple):
    status: int
    body: Any = None
    location: str | None = None


@dataclass
class Request:
    worker: Worker
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, ["false"])[-1].lower() == "true"

    def json(self) -> dict[str, Any]:
        try:
            told = json.loads(self.body)
        except ValueError as error:
            raise RestError(400, f"The body is no JSON: {error}") from None
        if not isinstance(told, dict):
            raise RestError(400, "The body must be a JSON object")
        return told


def answer(request: Request, method: str, path: str) -> Answer:
    """Never raises."""
    try:
        return _answer(request, method, path)
    except NoSuchConnector as error:
        return _error(404, str(error))
    except RestError as error:
        return _error(error.status, str(error))
    except InvalidConnector as error:
        return _error(400, str(error))
    except (UserError, KafkaError) as error:
        return _error(500, str(error))
    except Exception as error:
        logger.exception("%s %s failed", method, path)
        return _error(500, f"{type(error).__name__}: {error}")


def _answer(request: Request, method: str, path: str) -> Answer:
    path = path.rstrip("/") or "/"
    matched = False
    for wanted, pattern, handler in _ROUTES:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        matched = True
        if wanted == method:
            return handler(request, *match.groups())
    if matched:
        raise RestError(405, f"HTTP 405 Method Not Allowed: {method} {path}")
    raise RestError(404, f"HTTP 404 Not Found: {path}")


def _error(status: int, message: str) -> Answer:
    return Answer(status, {"error_code": status, "message": message})


# ------------------------------------------------------------------------------------- worker


def _root(request: Request) -> Answer:
    from ottla import __version__
    from ottla.client.admin import Admin

    cluster_id = None
    try:
        client = request.worker.config.client("admin") | {"default.api.timeout.ms": "2000"}
        with Admin(profile=client) as admin:
            cluster_id = admin.describe_cluster().cluster_id
    except KafkaError as error:
        logger.warning("the cluster's id is not known: %s", error)
    return Answer(200, {"version": __version__, "commit": "ottla", "kafka_cluster_id": cluster_id})


def _health(request: Request) -> Answer:
    return Answer(200, {"status": "healthy", "message": "Worker has completed startup."})


# --------------------------------------------------------------------------------- connectors


def _list(request: Request) -> Answer:
    expand = request.query.get("expand", [])
    names = request.worker.names()
    if not expand:
        return Answer(200, names)
    views: dict[str, Callable[[RunningConnector], Any]] = {"status": _status_of, "info": _info_of}
    told = {}
    for name in names:
        connector = request.worker.connector(name)
        told[name] = {each: views[each](connector) for each in expand if each in views}
    return Answer(200, told)


def _create(request: Request) -> Answer:
    told = request.json()
    name, config = told.get("name"), told.get("config")
    if not isinstance(config, dict):
        raise RestError(400, "The body must have a config, an object")
    given = _texts(config)
    name = str(name or given.get("name") or "").strip()
    if given.setdefault("name", name) != name:
        raise RestError(
            400, f"Connector name configuration ({given['name']}) doesn't match connector name "
            f"in the URL ({name})",
        )  # fmt: skip
    with request.worker.lock:
        if name in request.worker.names():
            raise RestError(409, f"Connector {name} already exists")
        request.worker.put(given, _initial_state(told))
        return Answer(201, _info_of(request.worker.connector(name)), f"/connectors/{name}")


def _initial_state(told: Mapping[str, Any]) -> State:
    text = str(told.get("initial_state") or "RUNNING").upper()
    if text not in ("RUNNING", "PAUSED", "STOPPED"):
        raise RestError(400, f"initial_state must be RUNNING, PAUSED or STOPPED, not {text}")
    return State(text)


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    for name, value in config.items():
        if isinstance(value, dict | list):
            raise RestError(400, f"The value of {name} must be a text")
    return {
        name: json.dumps(value) if isinstance(value, bool | int | float) else str(value)
        for name, value in config.items()
        if value is not None
    }


def _info(request: Request, name: str) -> Answer:
    return Answer(200, _info_of(request.worker.connector(name)))


def _delete(request: Request, name: str) -> Answer:
    request.worker.delete(name)
    return Answer(204)


def _config(request: Request, name: str) -> Answer:
    return Answer(200, dict(request.worker.connector(name).config.given))


def _put_config(request: Request, name: str) -> Answer:
    return _configured(request, name, _texts(request.json()))


def _patch_config(request: Request, name: str) -> Answer:
    given = dict(request.worker.connector(name).config.given)
    for key, value in request.json().items():
        if value is None:
            given.pop(key, None)
        else:
            given |= _texts({key: value})
    return _configured(request, name, given)


def _configured(request: Request, name: str, given: dict[str, str]) -> Answer:
    if given.setdefault("name", name) != name:
        raise RestError(
            400, f"Connector name configuration ({given['name']}) doesn't match connector name "
            f"in the URL ({name})",
        )  # fmt: skip
    with request.worker.lock:
        is_new = request.worker.put(given)
        told = _info_of(request.worker.connector(name))
    return Answer(201 if is_new else 200, told, f"/connectors/{name}" if is_new else None)


def _info_of(connector: RunningConnector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "config": dict(connector.config.given),
        "tasks": [
            {"connector": connector.name, "task": task} for task in range(connector.task_count)
        ],
        "type": _kind(connector),
    }


def _kind(connector: RunningConnector) -> str:
    return "source" if connector.config.is_source else "sink"


# -------------------------------------------------------------------------------------- state


def _status_of(connector: RunningConnector) -> dict[str, Any]:
    """A failure is its tasks'; the connector itself runs, as in Kafka."""
    state = connector.state
    worker = connector.worker_id
    task: dict[str, Any] = {"state": state.value, "worker_id": worker}
    if connector.trace is not None:
        task["trace"] = connector.trace
    own = State.RUNNING if state is State.FAILED else state
    return {
        "name": connector.name,
        "connector": {"state": own.value, "worker_id": worker},
        "tasks": [{"id": each, **task} for each in range(connector.task_count)],
        "type": _kind(connector),
    }


def _status(request: Request, name: str) -> Answer:
    return Answer(200, _status_of(request.worker.connector(name)))


def _tasks(request: Request, name: str) -> Answer:
    connector = request.worker.connector(name)
    return Answer(200, [
        {"id": each, "config": dict(connector.config.given)}
        for each in _info_of(connector)["tasks"]
    ])  # fmt: skip


def _tasks_config(request: Request, name: str) -> Answer:
    connector = request.worker.connector(name)
    config = dict(connector.config.given)
    return Answer(200, {f"{name}-{task}": config for task in range(connector.task_count)})


def _task(connector: RunningConnector, task: str) -> int:
    if not task.isdecimal() or int(task) >= connector.task_count:
        raise RestError(404, f"No status found for task {connector.name}-{task}")
    return int(task)


def _task_status(request: Request, name: str, task: str) -> Answer:
    connector = request.worker.connector(name)
    return Answer(200, _status_of(connector)["tasks"][_task(connector, task)])


def _restart(request: Request, name: str) -> Answer:
    connector = request.worker.connector(name)
    with_tasks, only_failed = request.flag("includeTasks"), request.flag("onlyFailed")
    if not only_failed or connector.state is State.FAILED:
        request.worker.restart(name)
    if with_tasks or only_failed:
        return Answer(202, _status_of(connector))
    return Answer(204)


def _restart_task(request: Request, name: str, task: str) -> Answer:
    _task(request.worker.connector(name), task)
    request.worker.restart(name)
    return Answer(204)


def _pause(request: Request, name: str) -> Answer:
    request.worker.bring(name, State.PAUSED)
    return Answer(202)


def _resume(request: Request, name: str) -> Answer:
    request.worker.bring(name, State.RUNNING)
    return Answer(202)


def _stop(request: Request, name: str) -> Answer:
    request.worker.bring(name, State.STOPPED)
    return Answer(204)


# --------------------------------------------------------------------------- topics and offsets


def _topics(request: Request, name: str) -> Answer:
    return Answer(200, {name: {"topics": request.worker.connector(name).topics()}})


def _reset_topics(request: Request, name: str) -> Answer:
    request.worker.connector(name).forget_topics()
    return Answer(200)


def _offsets(request: Request, name: str) -> Answer:
    return Answer(200, {"offsets": offsets_of(request.worker.connector(name))})


def _patch_offsets(request: Request, name: str) -> Answer:
    with request.worker.lock:
        connector = _stopped(request, name)
        try:
            message = alter_offsets(connector, request.json().get("offsets"))
        except ValueError as error:
            raise RestError(400, str(error)) from None
    return Answer(200, {"message": message})


def _delete_offsets(request: Request, name: str) -> Answer:
    with request.worker.lock:
        message = reset_offsets(_stopped(request, name))
    return Answer(200, {"message": message})


def _stopped(request: Request, name: str) -> RunningConnector:
    connector = request.worker.connector(name)
    if connector.state is not State.STOPPED:
        raise RestError(
            400, "Connectors must be in the STOPPED state before their offsets can be modified. "
            f"PUT /connectors/{name}/stop does that.",
        )  # fmt: skip
    return connector


# ------------------------------------------------------------------------------------ plugins


def _plugins(request: Request) -> Answer:
    everything = request.query.get("connectorsOnly", ["true"])[-1].lower() == "false"
    return Answer(200, plugins(connectors_only=not everything))


def _plugin_config(request: Request, name: str) -> Answer:
    try:
        return Answer(200, plugin_config(name))
    except ValueError as error:
        raise RestError(404, str(error)) from None


def _validate(request: Request, name: str) -> Answer:
    given = _texts(request.json())
    given.setdefault("connector.class", name)
    return Answer(200, validated(given, request.worker.config.given))


# ------------------------------------------------------------------------------------ loggers


def _loggers(request: Request) -> Answer:
    known = ["root", *sorted(logging.Logger.manager.loggerDict)]
    told = {name: _level_of(name) for name in known if name == "root" or _own_level(name)}
    return Answer(200, told)


def _own_level(name: str) -> bool:
    return logging.getLogger(name).level != logging.NOTSET


def _level_of(name: str) -> dict[str, Any]:
    level = logging.getLogger(None if name == "root" else name).getEffectiveLevel()
    word = next((each for each in LEVELS if _PYTHON_LEVELS[each] >= level), "OFF")
    return {"level": word, "last_modified": None}


def _logger(request: Request, name: str) -> Answer:
    if name != "root" and name not in logging.Logger.manager.loggerDict:
        raise RestError(404, f"Logger {name} not found.")
    return Answer(200, _level_of(name))


def _put_logger(request: Request, name: str) -> Answer:
    level = str(request.json().get("level", "")).upper()
    if level not in LEVELS:
        raise RestError(404, f"Invalid log level '{level}'; there are {', '.join(LEVELS)}.")
    root = None if name == "root" else name
    logging.getLogger(root).setLevel(_PYTHON_LEVELS[level])
    below = [
        each
        for each in sorted(logging.Logger.manager.loggerDict)
        if root is None or each == root or each.startswith(f"{root}.")
    ]
    return Answer(200, ["root", *below] if root is None else below or [name])


_C = r"/connectors/([^/]+)"
_P = r"/connector-plugins/([^/]+)"
_ROUTES: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
    (method, re.compile(path), handler)
    for method, path, handler in (
        ("GET", "/", _root),
        ("GET", "/health", _health),
        ("GET", "/connectors", _list),
        ("POST", "/connectors", _create),
        ("GET", _C, _info),
        ("DELETE", _C, _delete),
        ("GET", f"{_C}/config", _config),
        ("PUT", f"{_C}/config", _put_config),
        ("PATCH", f"{_C}/config", _patch_config),
        ("GET", f"{_C}/status", _status),
        ("GET", f"{_C}/tasks", _tasks),
        ("GET", f"{_C}/tasks-config", _tasks_config),
        ("GET", f"{_C}/tasks/([^/]+)/status", _task_status),
        ("POST", f"{_C}/tasks/([^/]+)/restart", _restart_task),
        ("POST", f"{_C}/restart", _restart),
        ("PUT", f"{_C}/pause", _pause),
        ("PUT", f"{_C}/resume", _resume),
        ("PUT", f"{_C}/stop", _stop),
        ("GET", f"{_C}/topics", _topics),
        ("PUT", f"{_C}/topics/reset", _reset_topics),
        ("GET", f"{_C}/offsets", _offsets),
        ("PATCH", f"{_C}/offsets", _patch_offsets),
        ("DELETE", f"{_C}/offsets", _delete_offsets),
        ("GET", "/connector-plugins", _plugins),
        ("GET", f"{_P}/config", _plugin_config),
        ("PUT", f"{_P}/config/validate", _validate),
        ("GET", "/admin/loggers", _loggers),
        ("GET", "/admin/loggers/([^/]+)", _logger),
        ("PUT", "/admin/loggers/([^/]+)", _put_logger),
    )
]
