"""The worker itself by REST: what it is, whether it is well, how loud it is."""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import KafkaError
from ottla.connect.rest import Answer, Request, RestError

logger = logging.getLogger(__name__)

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
_PYTHON_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50,
                  "OFF": 100}  # fmt: skip


def _root(request: Request) -> Answer:
    from ottla import __version__
    from ottla.client.admin import Admin

    cluster_id = None
    try:
        client = request.herder.config.client("admin") | {"default.api.timeout.ms": "2000"}
        with Admin(profile=client) as admin:
            cluster_id = admin.describe_cluster().cluster_id
    except KafkaError as error:
        logger.warning("the cluster's id is not known: %s", error)
    return Answer(200, {"version": __version__, "commit": "ottla", "kafka_cluster_id": cluster_id})


def _health(request: Request) -> Answer:
    if not request.herder.is_ready:
        message = "Worker is still starting up."
        return Answer(503, {"status": "starting", "message": message})
    return Answer(200, {"status": "healthy", "message": "Worker has completed startup."})


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


ROUTES = (
    ("GET", "/", _root),
    ("GET", "/health", _health),
    ("GET", "/admin/loggers", _loggers),
    ("GET", "/admin/loggers/([^/]+)", _logger),
    ("PUT", "/admin/loggers/([^/]+)", _put_logger),
)
