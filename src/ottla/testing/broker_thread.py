"""Broker in the test's own process, for any Kafka client: sync or async, in any language.

It runs on its own event loop in a thread, so a test may block, and may have an event loop itself.
Its data is not synced to disk (`unsynced`) and is removed when it is closed. It logs to the loggers
below `ottla`, where pytest captures the output for a failed test.

A broker that shares the test's process cannot be killed alone; use `BrokerProcess` for that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.base.errors import UserError
from ottla.broker.broker import Broker
from ottla.core.controller.create_topics import NewTopic
from ottla.testing.broker import HOST, MAX_OPEN_FILES, BrokerFailed, EmbeddedBroker
from ottla.testing.unsynced import UnsyncedFileSystem

T = TypeVar("T")
TIMEOUT_S = 30.0

FOR_TESTS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",  # do not wait for members that will not join
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Properties whose Kafka defaults only cost a test time. Overrides take precedence."""


class BrokerThread:
    """A broker in a thread of this process. As a context manager it starts and removes the broker.

        with BrokerThread() as broker:
            producer = Producer(broker.bootstrap)

    Args:
        data_dir: Directory of the log; a temporary one by default.
        overrides: Broker properties, by Kafka's names.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary = None if data_dir is not None else tempfile.mkdtemp(prefix="ottla-broker-")
        self.data_dir = Path(data_dir if data_dir is not None else f"{self._temporary}/data")
        self._properties = {**FOR_TESTS, **_as_strings(overrides or {})}
        self._port = 0
        self._embedded: EmbeddedBroker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------- start and stop

    def start(self) -> Self:
        """Start the broker, on its previous port if it ran before.

        Raises:
            BrokerFailed: The broker did not start.
        """
        assert not self.is_running, "the broker is already running"
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="ottla-broker", daemon=True
        )
        self._thread.start()
        try:
            self._embedded = self.run(self._started())
        except BaseException as error:
            self._end_thread()
            if isinstance(error, UserError):
                raise BrokerFailed(f"the broker did not start: {error}") from error
            raise
        self._port = self._embedded.port
        return self

    async def _started(self) -> EmbeddedBroker:
        listeners = {"listeners": f"PLAINTEXT://{HOST}:{self._port}"}
        embedded = EmbeddedBroker(
            self.data_dir,
            overrides={**listeners, **self._properties},
            fs=UnsyncedFileSystem(MAX_OPEN_FILES),
        )
        return await embedded.__aenter__()

    def stop(self) -> None:
        """Stop the broker. Clients lose their connections; the data is kept until `close`."""
        embedded, self._embedded = self._embedded, None
        assert embedded is not None, "the broker is not running"
        try:
            self.run(embedded.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it with the same data, port and properties."""
        if self.is_running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker if it runs, and delete its temporary files."""
        try:
            if self.is_running:
                self.stop()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self if self.is_running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop = self._thread = None

    # ----------------------------------------------------------------------------- inspection

    @property
    def is_running(self) -> bool:
        """Whether the broker is running."""
        return self._embedded is not None

    @property
    def port(self) -> int:
        """Port that the broker listens on."""
        return self._port

    @property
    def bootstrap(self) -> str:
        """Address for a client's `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    @property
    def broker(self) -> Broker:
        """The broker object, for use inside `run` and `call` only: it belongs to its thread."""
        assert self._embedded is not None, "the broker is not running"
        return self._embedded.broker

    def topics(self) -> list[str]:
        """Return the names of all topics, internal ones included."""
        return self.call(lambda: sorted(self.broker.image.topics))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and wait until it accepts records.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            configs: Configuration of the topic.

        Returns:
            The name.

        Raises:
            KafkaError: The topic could not be created.
        """
        new = NewTopic(name, partitions, 1, configs=tuple(_as_strings(configs or {}).items()))
        (decision,) = self.run(self.broker.controller.create_topics([new]))
        if decision.error is not None:
            raise decision.error
        return name

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's event loop and return its result.

        Args:
            coroutine: The coroutine.

        Raises:
            BrokerFailed: The coroutine did not finish in time.
        """
        assert self._loop is not None, "the broker is not running"
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(TIMEOUT_S)
        except TimeoutError:
            future.cancel()
            raise BrokerFailed(f"the broker did not respond within {TIMEOUT_S} s") from None

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the broker's thread and return its result.

        Args:
            function: Function without arguments.

        Raises:
            BrokerFailed: The function did not return in time.
        """

        async def called() -> T:
            return function()

        return self.run(called())


def _as_strings(properties: Mapping[str, object]) -> dict[str, str]:
    """Convert property values to text; tests write `True` and `10`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
    }


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
