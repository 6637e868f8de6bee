"""REST endpoints of connectors, their tasks and their offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.api import SourceConnector
from ottla.connect.herder import NoSuchTask
from ottla.connect.plugins import connector_class
from ottla.connect.rest.exchange import Request, Response, RestError
from ottla.connect.states import State, Status


def _list(request: Request) -> Response:
    """Return the names of all connectors.

    With `?expand=status` or `?expand=info`, or both, return an object with the status or the
    configuration of each connector under its name.
    """
    expand = request.query.get("expand", [])
    names = request.herder.names()
    if not expand:
        return Response(200, names)
    views: dict[str, Callable[[Request, str], Any]] = {"status": _status_of, "info": _info_of}
    return Response(200, {
        name: {each: views[each](request, name) for each in expand if each in views}
        for name in names
    })  # fmt: skip


def _create(request: Request) -> Response:
    """Create a connector.

    The body has the `name` and the `config` of the connector, and optionally an `initial_state`:
    `RUNNING` (the default), `PAUSED` or `STOPPED`. The response is 201 with the connector, or 409
    if the name is in use.
    """
    data = request.json()
    name, config = data.get("name"), data.get("config")
    if not isinstance(config, dict):
        raise RestError(400, "The body must have an object config")
    properties = texts(config)
    name = str(name or properties.get("name") or "").strip()
    _check_name(properties, name)
    request.herder.put(properties, _initial_state(data), is_new=True)
    return Response(201, _info_of(request, name), f"/connectors/{name}")


def _check_name(properties: dict[str, str], name: str) -> None:
    if properties.setdefault("name", name) != name:
        raise RestError(
            400, f"Connector name configuration ({properties['name']}) doesn't match connector "
            f"name in the URL ({name})",
        )  # fmt: skip


def _initial_state(data: Mapping[str, Any]) -> State:
    text = str(data.get("initial_state") or "RUNNING").upper()
    if text not in ("RUNNING", "PAUSED", "STOPPED"):
        raise RestError(400, f"initial_state must be RUNNING, PAUSED or STOPPED, not {text}")
    return State(text)


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a JSON configuration as string properties, without nulls."""
    for name, value in config.items():
        if isinstance(value, dict | list):
            raise RestError(400, f"The value of {name} must be a string")
    return {
        name: json.dumps(value) if isinstance(value, bool | int | float) else str(value)
        for name, value in config.items()
        if value is not None
    }


def _info(request: Request, name: str) -> Response:
    """Return the configuration of a connector, its tasks, and whether it is a source or a sink."""
    return Response(200, _info_of(request, name))


def _delete(request: Request, name: str) -> Response:
    """Stop a connector and delete it. Its offsets are kept."""
    request.herder.delete(name)
    return Response(204)


def _config(request: Request, name: str) -> Response:
    """Return the configuration of a connector."""
    return Response(200, request.herder.config_of(name))


def _put_config(request: Request, name: str) -> Response:
    """Replace the configuration of a connector, or create the connector.

    The body is the whole configuration. The response is 201 if the connector is new, else 200. The
    connector restarts with the new configuration.
    """
    return _configured(request, name, texts(request.json()))


def _patch_config(request: Request, name: str) -> Response:
    """Change some properties of a connector (KIP-477).

    The body has the properties to set; null removes a property. The connector restarts with the
    changed configuration.
    """
    properties = request.herder.config_of(name)
    for key, value in request.json().items():
        if value is None:
            properties.pop(key, None)
        else:
            properties |= texts({key: value})
    return _configured(request, name, properties)


def _configured(request: Request, name: str, properties: dict[str, str]) -> Response:
    _check_name(properties, name)
    is_new = request.herder.put(properties)
    data = _info_of(request, name)
    return Response(201 if is_new else 200, data, f"/connectors/{name}" if is_new else None)


def _info_of(request: Request, name: str) -> dict[str, Any]:
    properties = request.herder.config_of(name)
    return {
        "name": name,
        "config": properties,
        "tasks": [
            {"connector": name, "task": task} for task in sorted(request.herder.status(name).tasks)
        ],
        "type": _kind(properties),
    }


def _kind(properties: Mapping[str, str]) -> str:
    try:
        found = connector_class(properties.get("connector.class", ""))
    except ValueError:
        return "unknown"
    return "source" if issubclass(found, SourceConnector) else "sink"


# -------------------------------------------------------------------------------------- state


def _status_json(status: Status) -> dict[str, Any]:
    data = {"state": status.state.value, "worker_id": status.worker_id}
    return data if status.trace is None else {**data, "trace": status.trace}


def _status_of(request: Request, name: str) -> dict[str, Any]:
    status = request.herder.status(name)
    return {
        "name": name,
        "connector": _status_json(status.connector),
        "tasks": [
            {"id": task, **_status_json(each)} for task, each in sorted(status.tasks.items())
        ],
        "type": _kind(request.herder.config_of(name)),
    }


def _status(request: Request, name: str) -> Response:
    """Return the states of a connector and of its tasks.

    A state is `RUNNING`, `PAUSED`, `STOPPED`, `FAILED` or `UNASSIGNED`. `trace` has
    the error of a failed task, and what a running task is retrying.
    """
    return Response(200, _status_of(request, name))


def _tasks(request: Request, name: str) -> Response:
    """Return the tasks of a connector with their configurations."""
    configs = request.herder.task_configs(name)
    return Response(200, [
        {"id": {"connector": name, "task": task}, "config": config}
        for task, config in enumerate(configs)
    ])  # fmt: skip


def _tasks_config(request: Request, name: str) -> Response:
    """Return the configurations of a connector's tasks in one object, by `NAME-TASK`."""
    configs = request.herder.task_configs(name)
    return Response(200, {f"{name}-{task}": config for task, config in enumerate(configs)})


def _task(request: Request, name: str, task: str) -> int:
    if not task.isdecimal() or int(task) not in request.herder.status(name).tasks:
        raise NoSuchTask(name, task)
    return int(task)


def _task_status(request: Request, name: str, task: str) -> Response:
    """Return the state of one task."""
    number = _task(request, name, task)
    return Response(200, {"id": number, **_status_json(request.herder.status(name).tasks[number])})


def _restart(request: Request, name: str) -> Response:
    """Restart a connector.

    `?includeTasks=true` also restarts its tasks. `?onlyFailed=true` restarts only what has failed
    (KIP-745). With either, the response is 202 with the status, else 204.
    """
    with_tasks, only_failed = request.flag("includeTasks"), request.flag("onlyFailed")
    request.herder.restart(name, include_tasks=with_tasks, only_failed=only_failed)
    if with_tasks or only_failed:
        return Response(202, _status_of(request, name))
    return Response(204)


def _restart_task(request: Request, name: str, task: str) -> Response:
    """Restart one task."""
    request.herder.restart_task(name, _task(request, name, task))
    return Response(204)


def _pause(request: Request, name: str) -> Response:
    """Pause a connector: its tasks end, and start again when it is resumed."""
    request.herder.set_target_state(name, State.PAUSED)
    return Response(202)


def _resume(request: Request, name: str) -> Response:
    """Resume a connector that is paused or stopped."""
    request.herder.set_target_state(name, State.RUNNING)
    return Response(202)


def _stop(request: Request, name: str) -> Response:
    """Stop a connector and remove its tasks. Offsets can be changed only while it is stopped."""
    request.herder.set_target_state(name, State.STOPPED)
    return Response(204)


# ------------------------------------------------------------------------- topics and offsets


def _topics(request: Request, name: str) -> Response:
    """Return the topics that a connector has used since it was created or reset."""
    return Response(200, {name: {"topics": request.herder.topics(name)}})


def _reset_topics(request: Request, name: str) -> Response:
    """Clear the list of topics that a connector has used."""
    request.herder.forget_topics(name)
    return Response(200)


def _offsets(request: Request, name: str) -> Response:
    """Return the source offsets of a connector, or the offsets of a sink's consumer group."""
    return Response(200, {"offsets": request.herder.offsets(name)})


def _patch_offsets(request: Request, name: str) -> Response:
    """Change the offsets of a stopped connector (KIP-875).

    The body is `{"offsets": [{"partition": {…}, "offset": {…}}]}`, as the GET returns them. A null
    offset makes the connector start over for that partition.
    """
    data = request.json().get("offsets")
    return Response(200, {"message": request.herder.alter_offsets(name, data)})


def _delete_offsets(request: Request, name: str) -> Response:
    """Delete the offsets of a stopped connector, so that it starts over when it is resumed."""
    return Response(200, {"message": request.herder.reset_offsets(name)})


_C = r"/connectors/([^/]+)"
ROUTES = (
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
)
