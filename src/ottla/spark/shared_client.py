"""Blocking connections to a cluster that the tasks of a Spark Python worker share.

Spark creates a new reader or writer for each task but keeps the worker process. Connections
therefore belong to the process, one set for each set of properties; the least recently used are
closed. A forked worker creates its own."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, ParamSpec, Protocol, TypeVar

from ottla.client.blocking import LoopThread
from ottla.client.cluster import Cluster
from ottla.client.config import CommonConfig

P = ParamSpec("P")
T = TypeVar("T")
MAX_CLIENTS = 8

_clients: OrderedDict[tuple[object, ...], SharedClient] = OrderedDict()


class Stoppable(Protocol):
    def stop(self) -> None: ...


class SharedClient:
    """Cluster that runs on an event loop of its own."""

    def __init__(self, config: CommonConfig, *, auto_create: bool = False) -> None:
        self._thread = LoopThread("ottla-spark")
        self._kept: Stoppable | None = None
        try:
            self.cluster = self.run(_open, config, auto_create)
        except BaseException:
            self._thread.close()
            raise

    def run(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._thread.run(function, *args, **kwargs)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(function, *args, **kwargs)

    def start(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        return self._thread.start(function, *args, **kwargs)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive

    def keep(self, user: Stoppable) -> None:
        """Keep a user of the connections for the next task; it is stopped when they are closed."""
        self._kept = user

    def take_kept(self) -> Stoppable | None:
        """Return what the last task kept, and forget it."""
        kept, self._kept = self._kept, None
        return kept

    def close(self) -> None:
        if self._thread.is_alive:
            kept = self.take_kept()
            if kept is not None:
                kept.stop()
            self.run(self.cluster.close)
            self._thread.close()


async def _open(config: CommonConfig, auto_create: bool) -> Cluster:
    cluster = Cluster(config)
    if auto_create:
        cluster.allow_auto_create()
    try:
        await cluster.start()
    except BaseException:
        await cluster.close()
        raise
    return cluster


def shared_client(
    kind: type[CommonConfig], properties: Mapping[str, str], *, auto_create: bool = False
) -> SharedClient:
    """Return this process's client with these properties."""
    key = (os.getpid(), kind, auto_create, *sorted(properties.items()))
    known = _clients.pop(key, None)
    if known is None or not known.is_alive:
        known = SharedClient(kind.of(None, properties, {}), auto_create=auto_create)
    _clients[key] = known
    while len(_clients) > MAX_CLIENTS:
        oldest_key, oldest = _clients.popitem(last=False)
        if oldest_key[0] == os.getpid():
            oldest.close()
    return known
