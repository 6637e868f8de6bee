"""Router of the REST API: maps a request to its endpoint, and errors to responses.

Requests that another worker must handle are forwarded to it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from ottla.base.errors import KafkaError, UserError
from ottla.connect.config import InvalidConnector
from ottla.connect.herder import BadRequest, Conflict, NoSuchConnector, NoSuchTask
from ottla.connect.rest import connectors, plugins, worker
from ottla.connect.rest.exchange import (
    CLUSTER_SCOPE,
    Request,
    Response,
    RestError,
    error_response,
)
from ottla.connect.rest.forward import MOVED, NotForwarded, forward

logger = logging.getLogger(__name__)

Handler = Callable[..., Response]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = [
    (method, re.compile(path), handler)
    for routes in (worker.ROUTES, connectors.ROUTES, plugins.ROUTES)
    for method, path, handler in routes
]
"""Method, pattern of the path and endpoint."""
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
    for wanted, pattern, handler in ROUTES:
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
