"""Passing a request on to the worker whose to do it is, over plain HTTP.

A worker that is just dying, or has just lost its place, is waited out: the group soon finds
another, and the caller gets that one's answer. Creating a connector is the one request that may
then be told of its own success as a conflict."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

FORWARDED = "X-Connect-Forwarded"
TRY_S = 6.0
"""How long one worker may take to answer."""
PATIENCE_S = 25.0
PAUSE_S = 0.3


class NotForwarded(Exception):
    """Nobody could be asked, in all that time; one sentence."""


def forward(
    place: Callable[[], str | None], method: str, target: str, body: bytes
) -> tuple[int, Any, str | None] | None:
    """Status, JSON and location of the answer. `place`: the worker's URL now; None: here, and so is
    this answer."""
    until = time.monotonic() + PATIENCE_S
    reason = "no worker leads the group"
    while time.monotonic() < until:
        url = place()
        if url is None:
            return None
        if url:
            try:
                answer = _ask(url, method, target, body)
                if answer[0] != 409 or not _is_moved(answer[1]):
                    return answer
                reason = str(answer[1].get("message"))
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = f"{url} did not answer: {str(error) or type(error).__name__}"
        time.sleep(PAUSE_S)
    raise NotForwarded(
        f"Cannot complete request because of a conflicting operation (e.g. worker rebalance): "
        f"{reason}"
    )


MOVED = "This worker is not the one to ask."


def _is_moved(body: Any) -> bool:
    return isinstance(body, dict) and body.get("message") == MOVED


def _ask(url: str, method: str, target: str, body: bytes) -> tuple[int, Any, str | None]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "localhost", address.port, timeout=TRY_S
    )
    try:
        headers = {FORWARDED: "true", "Content-Type": "application/json"}
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        data = response.read()
        told = json.loads(data) if data else None
        return response.status, told, response.getheader("Location")
    finally:
        connection.close()
