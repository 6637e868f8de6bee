"""REST endpoints of the worker itself: version, health and log levels."""

from __future__ import annotations

import logging

from ottla.base.errors import KafkaError
from ottla.connect import log_levels
from ottla.connect.rest.exchange import CLUSTER_SCOPE, WORKER_SCOPE, Request, Response, RestError

logger = logging.getLogger(__name__)


def _root(request: Request) -> Response:
    """Return the version of the worker and the ID of its Kafka cluster.

    `kafka_cluster_id` is null while the brokers cannot be reached.
    """
    from ottla import __version__
    from ottla.client.admin import Admin

    cluster_id = None
    try:
        client = request.herder.config.client("admin") | {"default.api.timeout.ms": "2000"}
        with Admin(profile=client) as admin:
            cluster_id = admin.describe_cluster().cluster_id
    except KafkaError as error:
        logger.warning("could not fetch the cluster ID: %s", error)
    return Response(
        200, {"version": __version__, "commit": "ottla", "kafka_cluster_id": cluster_id}
    )


def _health(request: Request) -> Response:
    """Return whether the worker has started: 200 if it has, 503 if it is still starting."""
    if not request.herder.is_ready:
        message = "Worker is still starting up."
        return Response(503, {"status": "starting", "message": message})
    return Response(200, {"status": "healthy", "message": "Worker has completed startup."})


# ------------------------------------------------------------------------------------ loggers


def _loggers(request: Request) -> Response:
    """Return the root logger and those with a level of their own, and when each was changed."""
    return Response(200, log_levels.levels())


def _logger(request: Request, name: str) -> Response:
    """Return the level of one logger and the time of its last change."""
    if not log_levels.is_known(name):
        raise RestError(404, f"Logger {name} not found.")
    return Response(200, log_levels.level_of(name))


def _put_logger(request: Request, name: str) -> Response:
    """Set the level of a logger and of the loggers below it.

    The body is `{"level": "DEBUG"}`. With `?scope=cluster` it applies to all workers of the group
    (KIP-976), and the response is 204 without a body. Otherwise it applies to the worker that
    responds, which returns the names of the changed loggers. An unknown scope means this worker,
    as in Kafka.
    """
    data = request.json().get("level")
    if data is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    level = str(data).upper()
    if level not in log_levels.LEVELS:
        raise RestError(
            404, f"invalid log level '{data}'; use one of {', '.join(log_levels.LEVELS)}."
        )
    if request.scope == CLUSTER_SCOPE:
        request.herder.set_cluster_level(name, level)
        return Response(204)
    if request.scope != WORKER_SCOPE:
        logger.warning("unknown scope %r: setting the level of this worker only", request.scope)
    return Response(200, log_levels.set_level(name, level))


ROUTES = (
    ("GET", "/", _root),
    ("GET", "/health", _health),
    ("GET", "/admin/loggers", _loggers),
    ("GET", "/admin/loggers/([^/]+)", _logger),
    ("PUT", "/admin/loggers/([^/]+)", _put_logger),
)
