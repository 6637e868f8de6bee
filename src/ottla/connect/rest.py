"""Kafka Connect's REST API: maps method, path, query and body to a status and JSON.

| path | methods |
|---|---|
| / | GET |
| /health | GET |
| /connectors | GET (`expand=status`, `expand=info`), POST |
| /connectors/NAME | GET, DELETE |
| /connectors/NAME/config | GET, PUT, PATCH |
| /connectors/NAME/status, /tasks, /tasks/N/status, /tasks-config, /topics | GET |
| /connectors/NAME/restart, /tasks/N/restart | POST |
| /connectors/NAME/pause, /resume, /stop, /topics/reset | PUT |
| /connectors/NAME/offsets | GET, PATCH, DELETE |
| /connector-plugins, /connector-plugins/CLASS/config | GET |
| /connector-plugins/CLASS/config/validate | PUT |
| /admin/loggers | GET |
| /admin/loggers/NAME | GET, PUT (`scope=worker`, `scope=cluster`) |

Errors are {"error_code": …, "message": …} with Kafka's codes. This module does no network I/O of
its own: `rest_server` has the sockets, and `rest_forward` passes requests to the group's leader.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ottla.base.errors import KafkaError, UserError
from ottla.connect.config import InvalidConnector
from ottla.connect.herder import BadRequest, Conflict, Herder, NoSuchConnector, NoSuchTask
from ottla.connect.rest_forward import MOVED, NotForwarded, forward

logger = logging.getLogger(__name__)

WORKER_SCOPE, CLUSTER_SCOPE = "worker", "cluster"


class RestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Response(NamedTuple):
    status: int
    body: Any = None
    location: str | None = None


@dataclass
class Request:
    herder: Herder
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    target: str = ""
    """Original path and query, for forwarding."""
    is_forwarded: bool = False

    def flag(self, name: str, default: str = "false") -> bool:
        return self.query.get(name, [default])[-1].lower() == "true"

    @property
    def scope(self) -> str:
        """Scope of a change to a logger's level."""
        return self.query.get("scope", [WORKER_SCOPE])[-1].lower()

    def json(self) -> dict[str, Any]:
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise RestError(400, f"The body is not valid JSON: {error}") from None
        if not isinstance(document, dict):
            raise RestError(400, "The body must be a JSON object")
        return document


Handler = Callable[..., Response]
_STATUSES: list[tuple[type[Exception], int]] = [
    (NoSuchConnector, 404), (NoSuchTask, 404), (Conflict, 409), (BadRequest, 400),
    (InvalidConnector, 400),
]  # fmt: skip


def handle(request: Request, method: str, path: str) -> Response:
    """Handle a request. Every exception becomes an error response."""
    try:
        return _route(request, method, path)
    except RestError as error:
        return error_response(error.status, str(error))
    except (UserError, KafkaError) as error:
        status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
        return error_response(status, str(error))
    except Exception as error:
        logger.exception("%s %s failed", method, path)
        return error_response(500, f"{type(error).__name__}: {error}")


def _route(request: Request, method: str, path: str) -> Response:
    path = path.rstrip("/") or "/"
    if not request.herder.is_ready and path not in ("/", "/health"):
        raise RestError(503, "The worker is still starting.")
    passed_on = _forward(request, method, path)
    if passed_on is not None:
        return passed_on
    matched = False
    for wanted, pattern, handler in _routes():
        match = pattern.fullmatch(path)
        if match is None:
            continue
        matched = True
        if wanted == method:
            return handler(request, *match.groups())
    if matched:
        raise RestError(405, f"HTTP 405 Method Not Allowed: {method} {path}")
    raise RestError(404, f"HTTP 404 Not Found: {path}")


def _forward(request: Request, method: str, path: str) -> Response | None:
    """Return the response of the worker that must handle the request, or None if this one must."""
    is_level_of_all = path.startswith("/admin/loggers/") and request.scope == CLUSTER_SCOPE
    if method == "GET" or not (path.startswith("/connectors") or is_level_of_all):
        return None
    herder = request.herder
    if request.is_forwarded:
        if herder.url_for(method, path) is not None:
            raise RestError(409, MOVED)
        return None
    try:
        found = forward(
            lambda: herder.url_for(method, path), method, request.target or path, request.body
        )
    except NotForwarded as error:
        raise RestError(409, str(error)) from None
    if found is None:
        return None
    herder.catch_up()
    return Response(*found)


def error_response(status: int, message: str) -> Response:
    return Response(status, {"error_code": status, "message": message})


@cache
def _routes() -> list[tuple[str, re.Pattern[str], Handler]]:
    from ottla.connect import rest_connectors, rest_plugins, rest_worker

    tables = (rest_worker.ROUTES, rest_connectors.ROUTES, rest_plugins.ROUTES)
    return [
        (method, re.compile(path), handler) for routes in tables for method, path, handler in routes
    ]
