"""Keeps a broker's image current, and lets the broker react to the changes in order.

    store ── watch ──► queue ──► image.apply ──► on_delta (may be a coroutine) ──► applied(revision)

Commits that arrive while `on_delta` runs are combined into the next delta. A reaction therefore
sees the image exactly as of its delta, ten thousand new topics cause one reaction, and a caller
that waits for a revision finds both the image and the broker's own state at that revision. The same
applies to the first image: it is loaded, the broker acts on it, and only then follows later
commits. If a reaction fails, the error is logged and the broker continues.

    store ── watch ──► image.apply_access ──► on_access (a function) ──► access_applied(revision)

Changes below `/access/` skip the queue. A user who is removed must not be able to log in while the
broker opens ten thousand logs, so the image shows such a change as soon as the store reports it,
also between `load` and `follow`. A reaction to the other paths may therefore see users that are
newer than its delta. `applied` waits for both kinds of changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import ACCESS, Change, MetadataStore
from ottla.metadata.image import AccessDelta, ClusterImage, ImageDelta

logger = logging.getLogger(__name__)


class _Waiter:
    """A caller that waits for a revision."""

    def __init__(self, revision: int, *, access_only: bool) -> None:
        self.revision = revision
        self.access_only = access_only
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ImageFollower:
    """Applies a store's commits to an image, and calls a function with each delta.

    Args:
        store: The metadata store.
        image: The image to keep current.
        on_delta: Called with each non-empty delta, and awaited if it returns an awaitable.
        on_access: Called with each change of who may use the cluster. It must not block.
    """

    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage,
        on_delta: Callable[[ImageDelta], Awaitable[None] | None],
        on_access: Callable[[AccessDelta], object] = lambda delta: None,
    ) -> None:
        self._store = store
        self._image = image
        self._on_delta = on_delta
        self._on_access = on_access
        self._commits: list[tuple[int, Sequence[Change]]] = []
        self._arrived = asyncio.Event()
        self._waiters: list[_Waiter] = []
        self._applied = 0
        self._access_applied = 0
        self._access_is_loaded = False
        self._unwatch: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> ImageDelta:
        """Load the image. Only changes of who may use the cluster are applied until `follow` is
        called.

        Returns:
            A delta with everything in the image that the broker has to react to.
        """
        self._unwatch.append(self._store.watch(ACCESS, self._apply_access))
        self._unwatch.append(self._store.watch("/", self._enqueue))
        nodes, revision = await self._store.load(ACCESS)
        self._access_is_loaded = True
        self._apply_access(revision, list(nodes.items()))
        nodes, revision = await self._store.load("/")
        delta = self._image.apply(revision, nodes.items())
        self._applied = revision
        return delta

    def follow(self) -> None:
        """Start to apply all commits since `load`, calling `on_delta` for each delta."""
        self._task = asyncio.create_task(self._follow(), name="metadata-follower")

    async def applied(self, revision: int) -> None:
        """Wait until the image has reached the revision and the broker has reacted to it.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE if the follower is closed first.
        """
        await self._wait(_Waiter(revision, access_only=False))

    async def access_applied(self, revision: int) -> None:
        """Wait until the image shows who may use the cluster as of the revision.

        Reactions of the broker to other changes do not delay this.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE if the follower is closed first.
        """
        await self._wait(_Waiter(revision, access_only=True))

    async def close(self) -> None:
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        for waiter in self._waiters:
            if not waiter.done.done():
                stopped = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping.")
                waiter.done.set_exception(stopped)
        self._waiters.clear()

    async def _wait(self, waiter: _Waiter) -> None:
        if not self._has_reached(waiter):
            self._waiters.append(waiter)
            await waiter.done

    def _has_reached(self, waiter: _Waiter) -> bool:
        applied = self._access_applied
        if not waiter.access_only:
            applied = min(applied, self._applied)
        return applied >= waiter.revision

    def _wake_waiters(self) -> None:
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            if not self._has_reached(waiter):
                self._waiters.append(waiter)
            elif not waiter.done.done():
                waiter.done.set_result(None)

    def _apply_access(self, revision: int, changes: Sequence[Change]) -> None:
        if not self._access_is_loaded:
            return  # what the store is about to load includes this commit
        delta = self._image.apply_access(changes)
        self._access_applied = max(self._access_applied, revision)
        if delta:
            try:
                self._on_access(delta)
            except Exception:
                logger.exception("The broker could not react to a change of its users")
        self._wake_waiters()

    def _enqueue(self, revision: int, changes: Sequence[Change]) -> None:
        self._commits.append((revision, changes))
        self._arrived.set()

    async def _follow(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            commits, self._commits = self._commits, []
            changes = [
                change
                for revision, commit in commits
                if revision > self._applied
                for change in commit
            ]
            await self._apply(commits[-1][0], changes)

    async def _apply(self, revision: int, changes: Sequence[Change]) -> None:
        try:
            delta = self._image.apply(revision, changes)
            if delta:
                reaction = self._on_delta(delta)
                if reaction is not None:
                    await reaction
        except Exception:
            logger.exception("The broker could not apply metadata revision %d", revision)
        self._applied = max(self._applied, revision)
        self._wake_waiters()
