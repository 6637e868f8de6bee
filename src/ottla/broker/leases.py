"""This broker's lease: the right to act as a leader without asking its followers.

The broker renews the lease by a write to `/leases/<id>`, three times per lease duration. While it
holds the lease, the controller has not replaced it as a leader. Without the lease the broker is
degraded, not down: see `proof` in broker/partition.py for what a leader does then.

A lease that had expired counts again only when the image includes everything that was committed
before its renewal, because the controller may have elected other leaders in between.

A broker that shuts down cleanly writes `released`, so that the controller need not wait for the
lease to expire."""

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
        """Create or replace a node, whatever its version, and return the revision. Repeating the
        call does no harm."""

    def expect(self, revision: int) -> None:
        """Report a revision that `put` returned to watchers, once they have seen all before it."""


class LeaseKeeper:
    """The lease of this broker, and the task that renews it."""

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        broker_id: int,
        duration_ms: int,
        applied: Callable[[int], Awaitable[None]],
    ) -> None:
        """Create a lease that is not held yet.

        Args:
            store: The store that keeps the lease.
            clock: Source of monotonic time.
            broker_id: The ID of this broker.
            duration_ms: Duration of the lease.
            applied: Waits until the broker has reacted to a revision.
        """
        self._store = store
        self._applied = applied
        self._clock = clock
        self._path = tree.lease_path(broker_id)
        self._lease = Lease(duration_ms / 1000)
        self._renewals = 0
        self._task: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self.on_regained: Callable[[], None] = _nothing
        """Called when the lease is held again after it had expired."""

    @property
    def is_held(self) -> bool:
        return self._catching_up is None and self._lease.is_held(self._clock.monotonic())

    async def start(self) -> None:
        """Acquire the lease and start to renew it."""
        await self._renew()
        if self._catching_up is not None:
            await self._catching_up
        self._task = asyncio.create_task(self._keep(), name="lease")

    async def release(self) -> None:
        """Release the lease. From now on this broker leads nothing."""
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
                logger.warning("Could not renew the lease: %s", error.message)

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
    """Ignore that the lease was regained."""
