"""Background event loop that a blocking client runs its asyncio client on.

Each client has its own loop and thread, so that a slow callback of one client does not delay
another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from ottla.client.errors import ClientClosed, KafkaError, UserError

T = TypeVar("T")
JOIN_TIMEOUT_S = 10.0


class LoopThread:
    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.loop.set_exception_handler(_report)
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

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop and return its result.

        An interrupt (Ctrl-C) while waiting cancels the coroutine. The traceback of a client's own
        errors starts here: their messages are self-explanatory, and the frames of the loop's thread
        would bury them."""
        future = self.start(coroutine)
        try:
            return future.result()
        except (KafkaError, UserError) as error:
            raise error.with_traceback(None)  # noqa: B904
        except BaseException:
            future.cancel()
            raise

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the loop's own thread, for example in a callback."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self.loop.is_closed() or not self._thread.is_alive():
            coroutine.close()
            raise ClientClosed("the client is closed")
        assert threading.current_thread() is not self._thread, (
            "a callback must not call blocking methods of the client"
        )
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
