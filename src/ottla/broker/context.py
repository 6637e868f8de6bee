"""What a handler is told about a request besides the request, and what it may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

Body: TypeAlias = dict[str, Any]

Response: TypeAlias = Body | asyncio.Future[Body | None] | Coroutine[Any, Any, Body | None] | None
"""What a handler returns.

    dict        the answer
    None        there is no answer (acks=0)
    Future      the answer comes later (or None: no answer after all). Later requests of the
                connection are served meanwhile; answers keep the order of the requests. The future
                is cancelled when the connection is lost: who completes it looks at `done()` first.
    coroutine   it is run as a task, and the connection serves no other request until it is done.
                It is not cancelled when the connection is lost (that of a Fetch is).

A handler that raises KafkaError closes the connection, with a line in the log: an answer that the
client expects is better where there can be one. Anything else that it raises is a fault of ours.

`records` views in a request are valid until the handler returns; for an `async def` handler until
it is done. A plain function that returns a coroutine has copied what that coroutine needs."""

Handler: TypeAlias = Callable[[Any, "RequestContext", Any], Response]
"""(broker, context, decoded request) -> response."""


@dataclass(slots=True)
class RequestContext:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    """Name of the listener that the request came in by."""
    peer: str
    """Host of the other end."""
    connection: Any = None
