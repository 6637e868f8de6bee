"""Forwarding of REST requests to the responsible worker, over plain HTTP.

If that worker is failing or has just lost its role, the request is retried until the group has
elected another, whose response the caller receives. A retried creation of a connector may report a
conflict although the first attempt succeeded; no other request is affected.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

FORWARDED = "X-Connect-Forwarded"
TRY_S = 6.0
"""Time that one worker may take to respond, in seconds."""
PATIENCE_S = 25.0
PAUSE_S = 0.3


class NotForwarded(Exception):
    """No worker could handle the request in time. The message is one sentence."""


def forward(
    place: Callable[[], str | None], method: str, target: str, body: bytes
) -> tuple[int, Any, str | None] | None:
    """Forward a request and return status, JSON body and location of the response.

    Args:
        place: Function that returns the current URL of the responsible worker, '' if it is unknown,
            or None if it is this one.
        method: HTTP method.
        target: Path and query.
        body: Body of the request.

    Returns:
        The response, or None if this worker must handle the request.

    Raises:
        NotForwarded: No worker could handle the request in time.
    """
    until = time.monotonic() + PATIENCE_S
    reason = "the group has no leader"
    while time.monotonic() < until:
        url = place()
        if url is None:
            return None
        if url:
            try:
                response = _send(url, method, target, body)
                if response[0] != 409 or not _is_moved(response[1]):
                    return response
                reason = str(response[1].get("message"))
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = f"{url} did not respond: {str(error) or type(error).__name__}"
        time.sleep(PAUSE_S)
    raise NotForwarded(
        f"Cannot complete request because of a conflicting operation (e.g. worker rebalance): "
        f"{reason}"
    )


MOVED = "This worker is not the one to ask."


def _is_moved(body: Any) -> bool:
    return isinstance(body, dict) and body.get("message") == MOVED


def _send(url: str, method: str, target: str, body: bytes) -> tuple[int, Any, str | None]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "localhost", address.port, timeout=TRY_S
    )
    try:
        headers = {FORWARDED: "true", "Content-Type": "application/json"}
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        data = response.read()
        document = json.loads(data) if data else None
        return response.status, document, response.getheader("Location")
    finally:
        connection.close()
