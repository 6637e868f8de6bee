"""Changes of the assignment, which take effect while the user polls, as in Java's consumer.

The group member runs in the background and requests changes here. `poll` applies them, because only
then has the user finished processing the records of revoked partitions:

    assigned   add the partitions, run the listener, start fetching
    revoked    commit the consumed offsets (auto-commit), run the listener, remove the partitions
    lost       remove the partitions, which others may own already, then run the listener

A change that needs no waiting (an assignment or a loss, if there is no listener) is applied at
once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.subscription import Subscription


class RebalanceListener:
    """Callbacks for changes of a consumer's assignment.

    Subclass it and override the methods that you need. With the blocking consumer they run in the
    thread that polls; with the asyncio consumer they may be coroutines. They may commit, seek and
    ask for positions. An object with some of these methods works, too; type checkers ask for a
    subclass.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        """Handle partitions that were assigned, before the first fetch from them.

        Args:
            partitions: The new partitions.
        """

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Any:
        """Handle partitions that will go to other members; offsets can still be committed.

        Args:
            partitions: The revoked partitions.
        """

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Any:
        """Handle partitions that belong to other members already, so that commits would fail.

        Calls `on_revoked` unless it is overridden.

        Args:
            partitions: The lost partitions.
        """
        return self.on_revoked(partitions)


class Kind(Enum):
    ASSIGNED = "on_assigned"
    REVOKED = "on_revoked"
    LOST = "on_lost"


class Change:
    __slots__ = ("kind", "partitions", "done", "has_begun")

    def __init__(
        self, kind: Kind, partitions: Sequence[TopicPartition], done: asyncio.Future[None]
    ) -> None:
        self.kind = kind
        self.partitions = tuple(sorted(partitions))
        self.done = done
        self.has_begun = False


class Rebalances:
    def __init__(
        self,
        subscription: Subscription,
        buffer: RecordBuffer,
        on_change: Callable[[], None],
        before_revocation: Callable[[Sequence[TopicPartition]], Awaitable[None]],
    ) -> None:
        self.listener: RebalanceListener | None = None
        self._subscription = subscription
        self._buffer = buffer
        self._on_change = on_change
        self._before_revocation = before_revocation
        self._pending: deque[Change] = deque()

    # ----------------------------------------------------------------- requested by the member

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions and run the listener, even without new partitions, after a rebalance."""
        has_listener = self.listener is not None
        self._subscription.add(partitions, is_held=has_listener)
        if has_listener:
            await self._enqueue(Kind.ASSIGNED, partitions)
        self._on_change()

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            await self._enqueue(Kind.REVOKED, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        self._remove_partitions(partitions)
        self._on_change()
        if self.listener is not None:
            await self._enqueue(Kind.LOST, partitions)

    def convert_revoked_to_lost(self) -> None:
        """Turn pending revocations into losses, because the group has removed this member."""
        for change in self._pending:
            if change.kind is Kind.REVOKED and not change.has_begun:
                change.kind = Kind.LOST

    async def _enqueue(self, kind: Kind, partitions: Sequence[TopicPartition]) -> None:
        change = Change(kind, partitions, asyncio.get_running_loop().create_future())
        self._pending.append(change)
        self._on_change()
        try:
            await change.done
        finally:
            if change in self._pending:
                self._pending.remove(change)

    # ----------------------------------------------------------------------- applied by `poll`

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    async def begin(self) -> Change | None:
        """Prepare the next change. The caller runs the listener for it, then `finish`."""
        while self._pending:
            change = self._pending[0]
            change.has_begun = True
            if change.kind is Kind.REVOKED:
                await self._before_revocation(change.partitions)
            if self.listener is not None:
                return change
            self.finish(change)
        return None

    def finish(self, change: Change) -> None:
        if change in self._pending:
            self._pending.remove(change)
        if change.kind is Kind.ASSIGNED:
            self._subscription.release(change.partitions)
        else:
            self._remove_partitions(change.partitions)
        if not change.done.done():
            change.done.set_result(None)
        self._on_change()

    def revocation(self, partitions: Sequence[TopicPartition]) -> Change:
        """Return a final revocation of all partitions, for close and unsubscribe."""
        self._pending.clear()
        change = Change(Kind.REVOKED, partitions, asyncio.get_running_loop().create_future())
        change.has_begun = True
        return change

    def callback(self, change: Change) -> Callable[[], Any]:
        """Return a function that calls the listener's method for a change."""
        method = getattr(self.listener, change.kind.value, None)
        if method is None and change.kind is Kind.LOST:
            method = getattr(self.listener, Kind.REVOKED.value, None)
        if method is None or (not change.partitions and change.kind is not Kind.ASSIGNED):
            return lambda: None
        return lambda: method(list(change.partitions))

    def clear(self) -> None:
        """Cancel all pending changes, because there will be no more polls."""
        while self._pending:
            change = self._pending.popleft()
            if not change.done.done():
                change.done.cancel()

    def _remove_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        self._subscription.remove(partitions)
        self._buffer.drop(partitions)
