"""Blocking clients: an asyncio client that runs on an event loop in a thread of its own.

Each client has its own loop and thread, so that a slow callback of one client does not delay
another. A blocking class has the methods of its asyncio twin, made by `blocking` and `on_loop`, and
writes out only those that do something in the caller's thread.

Coroutines are created in the loop's thread. Ctrl-C may strike at any point of the caller's thread;
a coroutine that was created there and not started yet would make Python print that it was never
awaited."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ottla.client.errors import ClientClosed, KafkaError, UserError


class AsyncClient(Protocol):
    """Asyncio client that a blocking one runs."""

    async def start(self) -> object: ...


A = TypeVar("A", bound=AsyncClient)
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

JOIN_TIMEOUT_S = 10.0
_AWAITING = re.compile(r"\b(await |async (?=with|for))")


class LoopThread:
    """Event loop that runs in a thread of its own.

    Args:
        name: Name of the thread.
        client: Name of the client in the error of a call after it was closed.
    """

    def __init__(self, name: str, client: str = "client") -> None:
        self.loop = _new_loop()
        self.loop.set_exception_handler(_report)
        self._client = client
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_end_all_tasks())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def run(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function on the loop and return its result.

        An interrupt (Ctrl-C) while waiting cancels the coroutine. The traceback of a client's own
        errors starts here: their messages are self-explanatory, and the frames of the loop's thread
        would bury them."""
        future = self.start(function, *args, **kwargs)
        try:
            return future.result()
        except (KafkaError, UserError) as error:
            raise error.with_traceback(None)  # noqa: B904
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop, which owns the state that it uses."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the loop's own thread, for example in a callback."""
        return threading.current_thread() is self._thread

    def start(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Start a coroutine function on the loop and return a future for its result."""
        if not self.is_running:
            raise ClientClosed(f"the {self._client} is closed")
        if self.is_current:
            raise UserError(
                "A callback that runs in the client's own thread must not call blocking methods "
                "of the client: they would wait for the callback."
            )
        coroutine = Deferred(lambda: function(*args, **kwargs))
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self.loop.is_closed()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.loop.call_soon_threadsafe(callback, *arguments)

    def close(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(JOIN_TIMEOUT_S)


class BlockingClient(ABC, Generic[A]):
    """Base class of the blocking clients.

    Args:
        client: The asyncio client, which is started here.
        thread: Thread that runs it.
    """

    def __init__(self, client: A, thread: LoopThread) -> None:
        self._async = client
        self._thread = thread
        try:
            thread.run(client.start)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def close(self) -> None:
        """Close the client and end its thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient[A], P], T]:
    """Return the blocking twin of a coroutine method."""

    def call(self: BlockingClient[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method, self._async, *args, **kwargs)

    return _documented(call, method)


def on_loop(
    method: Callable[Concatenate[A, P], T],
) -> Callable[Concatenate[BlockingClient[A], P], T]:
    """Return the blocking twin of a plain method, which must run in the loop's thread."""

    def call(self: BlockingClient[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method, self._async, *args, **kwargs)

    return _documented(call, method)


def documented_by(method: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method the docstring of its asyncio twin, without `await` in the examples."""

    def decorate(function: F) -> F:
        function.__doc__ = _AWAITING.sub("", method.__doc__ or "")
        return function

    return decorate


def _documented(call: F, method: Callable[..., Any]) -> F:
    functools.update_wrapper(call, method)
    return documented_by(method)(call)


class Deferred(Coroutine[Any, Any, T]):
    """A coroutine that is created when the loop first runs it.

    Ctrl-C may strike between the creation of a coroutine and its start on the loop. Python then
    prints that the coroutine was never awaited; a `Deferred` leaves nothing behind.

    Args:
        make: Creates the coroutine.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._made: Coroutine[Any, Any, T] | None = None

    def send(self, value: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        if self._made is None:
            raise kind
        return self._made.throw(kind)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def __await__(self) -> Generator[Any, Any, T]:
        if self._made is None:
            self._made = self._make()
        return self._made.__await__()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled exception, except for one known false alarm.

    When a connection attempt is cancelled, uvloop drops the future of its TLS handshake, and
    asyncio reports that the exception was never retrieved. That attempt has been abandoned
    already."""
    if (
        isinstance(context.get("exception"), OSError)
        and type(context.get("future")) is asyncio.Future
    ):
        return
    loop.default_exception_handler(context)


async def _end_all_tasks() -> None:
    """Cancel the remaining tasks, as `asyncio.run` does.

    asyncio logs an error for a task that is destroyed while it is pending."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
