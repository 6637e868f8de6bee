"""Requests that a coordinator answers now or later.

A handler creates a `DelayedResponse`, passes it to the coordinator as the token of an event, and
returns `response()`: the response itself if the coordinator has replied already, which is the
common case, or else a future. If the reply is not the response yet, a `ConvertedToken` converts
it on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import BodyT
from ottla.core.coordinator import Token

ReplyT = TypeVar("ReplyT")
PartT = TypeVar("PartT")

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


class DelayedResponse(Generic[BodyT]):
    """A request that waits for one reply from a coordinator."""

    __slots__ = ("_body", "_future", "_on_error")

    def __init__(self, on_error: Callable[[ErrorCode], BodyT]) -> None:
        """Create a request that has no reply yet.

        Args:
            on_error: Builds the response for an error code.
        """
        self._on_error = on_error
        self._body: BodyT | None = None
        self._future: asyncio.Future[BodyT | None] | None = None

    def reply(self, body: BodyT) -> None:
        future = self._future
        if future is None:
            self._body = body
        elif not future.done():  # cancelled if the client has disconnected
            future.set_result(body)

    def fail(self, error: KafkaError) -> None:
        self.reply(self._on_error(CLIENT_ERRORS.get(error.code, error.code)))

    def response(self) -> BodyT | asyncio.Future[BodyT | None]:
        if self._body is not None:
            return self._body
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    async def wait(self) -> BodyT | None:
        """Wait for the reply, and return the response."""
        response = self.response()
        return await response if isinstance(response, asyncio.Future) else response


class ConvertedToken(Generic[ReplyT, BodyT]):
    """A token that converts the coordinator's reply and passes it on."""

    __slots__ = ("_convert", "_token")

    def __init__(self, token: Token[BodyT], convert: Callable[[ReplyT], BodyT]) -> None:
        self._token = token
        self._convert = convert

    def reply(self, body: ReplyT) -> None:
        self._token.reply(self._convert(body))

    def fail(self, error: KafkaError) -> None:
        self._token.fail(error)


class DelayedResponses(Generic[PartT, BodyT]):
    """A request answered in parts by several coordinator shards; the parts keep their order."""

    def __init__(self, finish: Callable[[list[PartT]], BodyT]) -> None:
        self._finish = finish
        self._parts: list[PartT | None] = []
        self._missing = 0
        self._future: asyncio.Future[BodyT | None] | None = None

    def add_pending(self, on_error: Callable[[ErrorCode], PartT]) -> PartToken[PartT]:
        """Add a part to be answered later, and return its token."""
        self._parts.append(None)
        self._missing += 1
        return PartToken(self._complete_part, len(self._parts) - 1, on_error)

    def add_body(self, body: PartT) -> None:
        """Add a part that is already known."""
        self._parts.append(body)

    def _complete_part(self, index: int, body: PartT) -> None:
        if self._parts[index] is None:
            self._parts[index] = body
            self._missing -= 1
            if not self._missing and self._future is not None and not self._future.done():
                self._future.set_result(self._finished())

    def response(self) -> BodyT | asyncio.Future[BodyT | None]:
        """Return the response or a future of it. Call this after adding the last part."""
        if not self._missing:
            return self._finished()
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def _finished(self) -> BodyT:
        return self._finish([part for part in self._parts if part is not None])


class PartToken(Generic[PartT]):
    """Token of one part of a `DelayedResponses`."""

    __slots__ = ("_complete", "_index", "_on_error")

    def __init__(
        self,
        complete: Callable[[int, PartT], None],
        index: int,
        on_error: Callable[[ErrorCode], PartT],
    ) -> None:
        self._complete = complete
        self._index = index
        self._on_error = on_error

    def reply(self, body: PartT) -> None:
        self._complete(self._index, body)

    def fail(self, error: KafkaError) -> None:
        self.reply(self._on_error(CLIENT_ERRORS.get(error.code, error.code)))
