"""Requests that a coordinator answers now or later.

A handler creates a `DelayedResponse`, passes it to the coordinator as the token of an event, and
returns `response()`: the response itself if the coordinator has replied already, which is the
common case, or else a future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, Response

CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors of the coordinator's log -> error codes that clients of a coordinator understand."""


class DelayedResponse:
    """A request that waits for one reply from a coordinator."""

    __slots__ = ("_body", "_finish", "_future", "_on_error")

    def __init__(
        self,
        on_error: Callable[[ErrorCode], Body],
        finish: Callable[[Body], Body] | None = None,
    ) -> None:
        """Create a request that has no reply yet.

        Args:
            on_error: Builds the response for an error code.
            finish: Turns the coordinator's reply into the response; None if it is the response.
        """
        self._on_error = on_error
        self._finish = finish
        self._body: Body | None = None
        self._future: asyncio.Future[Body | None] | None = None

    def reply(self, body: Body) -> None:
        self._complete(body if self._finish is None else self._finish(body))

    def fail(self, error: KafkaError) -> None:
        self._complete(self._on_error(CLIENT_ERRORS.get(error.code, error.code)))

    def _complete(self, body: Body) -> None:
        future = self._future
        if future is None:
            self._body = body
        elif not future.done():  # cancelled if the client has disconnected
            future.set_result(body)

    def response(self) -> Response:
        if self._body is not None:
            return self._body
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future


class DelayedResponses:
    """A request answered in parts by several coordinator shards; the parts keep their order."""

    def __init__(self, finish: Callable[[list[Body]], Body]) -> None:
        self._finish = finish
        self._parts: list[Body | None] = []
        self._missing = 0
        self._is_requested = False
        self._whole = DelayedResponse(lambda code: {})

    def add_pending(self, on_error: Callable[[ErrorCode], Body]) -> PartToken:
        """Add a part to be answered later, and return its token."""
        self._parts.append(None)
        self._missing += 1
        return PartToken(self, len(self._parts) - 1, on_error)

    def add_body(self, body: Body) -> None:
        """Add a part that is already known."""
        self._parts.append(body)

    def complete_part(self, index: int, body: Body) -> None:
        if self._parts[index] is None:
            self._parts[index] = body
            self._missing -= 1
            if not self._missing and self._is_requested:
                self._complete()

    def response(self) -> Response:
        """Return the response or a future of it. Call this after adding the last part."""
        self._is_requested = True
        if not self._missing:
            self._complete()
        return self._whole.response()

    def _complete(self) -> None:
        self._whole.reply(self._finish([part for part in self._parts if part is not None]))


class PartToken:
    """Token of one part of a `DelayedResponses`."""

    __slots__ = ("_index", "_on_error", "_whole")

    def __init__(
        self, whole: DelayedResponses, index: int, on_error: Callable[[ErrorCode], Body]
    ) -> None:
        self._whole = whole
        self._index = index
        self._on_error = on_error

    def reply(self, body: Body) -> None:
        self._whole.complete_part(self._index, body)

    def fail(self, error: KafkaError) -> None:
        code = CLIENT_ERRORS.get(error.code, error.code)
        self._whole.complete_part(self._index, self._on_error(code))
