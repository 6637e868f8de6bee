"""Requests and responses of the REST API, which endpoints and the router share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.connect.herder import Herder

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


def error_response(status: int, message: str) -> Response:
    return Response(status, {"error_code": status, "message": message})
