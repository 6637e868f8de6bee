"""This broker's lease: the right to act as leader on its own word.

Every third of a lease a write is committed to `/leases/<id>`. While the lease is held, a leader
knows that the controller has not replaced it. Without it the broker is degraded, not down: what a
leader does then is `broker/partition.py`'s.

A lease that was over counts again only when the image has everything that was committed before its
renewal: in between, others may have been given what this broker leads.

A broker that shuts down in order writes `released`, and the controller need not wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.base.errors import KafkaError
from ottla.base.ports import Clock
from ottla.core.replication.lease import Lease
from ottla.metadata import tree

logger = logging.getLogger(__name__)


class LeaseStore(Protocol):
    async def put(self, path: str, value: bytes) -> int:
        """Create or replace, whatever was there; the revision of it. Doing it twice does no
        harm."""

    def expect(self, revision: int) -> None:
        """Tell watchers of this revision when it is its turn."""


class LeaseKeeper:
    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        broker_id: int,
        duration_ms: int,
        applied: Callable[[int], Awaitable[None]],
    ) -> None:
        """`applied` returns when the broker has taken in a revision of the metadata."""
        self._store = store
        self._applied = applied
        self._clock = clock
        self._path = tree.lease_path(broker_id)
        self._lease = Lease(duration_ms / 1000)
        self._renewals = 0
        self._task: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self.on_regained: Callable[[], None] = _nothing
        """Called when the lease is held again after it was not."""

    @property
    def is_held(self) -> bool:
        return self._catching_up is None and self._lease.is_held(self._clock.monotonic())

    async def start(self) -> None:
        """Returns with the lease held."""
        await self._renew()
        if self._catching_up is not None:
            await self._catching_up
        self._task = asyncio.create_task(self._keep(), name="lease")

    async def release(self) -> None:
        """Give it up: from here on this broker leads nothing."""
        await self.stop()
        self._lease = Lease(0.0)
        await self._store.put(self._path, tree.encode({"released": True}))

    async def stop(self) -> None:
        running = [each for each in (self._task, self._catching_up) if each is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._task = None

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease.renew_every_s)
            try:
                await self._renew()
            except KafkaError as error:
                logger.warning("the lease could not be renewed: %s", error.message)

    async def _renew(self) -> None:
        sent_at = self._clock.monotonic()
        self._renewals += 1
        revision = await self._store.put(self._path, tree.encode({"renewal": self._renewals}))
        if not self._lease.is_held(self._clock.monotonic()):
            if self._catching_up is not None:
                self._catching_up.cancel()
            self._catching_up = asyncio.create_task(self._catch_up(revision), name="lease-return")
        self._lease.renewed(sent_at)

    async def _catch_up(self, revision: int) -> None:
        self._store.expect(revision)
        await self._applied(revision)
        self._catching_up = None
        if self.is_held:
            self.on_regained()


def _nothing() -> None:
    """Nobody wants to know."""
