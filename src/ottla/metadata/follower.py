"""Keeps a broker's image current, and lets the broker react to the changes in order.

    store ── watch ──► queue ──► image.apply ──► on_delta (may be a coroutine) ──► applied(revision)

Commits that arrive while `on_delta` runs are combined into the next delta. A reaction therefore
sees the image exactly as of its delta, ten thousand new topics cause one reaction, and a caller
that waits for a revision finds both the image and the broker's own state at that revision. The same
applies to the first image: it is loaded, the broker acts on it, and only then follows later
commits. If a reaction fails, the error is logged and the broker continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Change, MetadataStore
from ottla.metadata.image import ClusterImage, ImageDelta

logger = logging.getLogger(__name__)


class ImageFollower:
    """Applies a store's commits to an image, and calls a function with each delta.

    Args:
        store: The metadata store.
        image: The image to keep current.
        on_delta: Called with each non-empty delta, and awaited if it returns an awaitable.
    """

    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage,
        on_delta: Callable[[ImageDelta], Awaitable[None] | None],
    ) -> None:
        self._store = store
        self._image = image
        self._on_delta = on_delta
        self._commits: list[tuple[int, Sequence[Change]]] = []
        self._arrived = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._applied = 0
        self._unwatch: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> ImageDelta:
        """Load the image. It does not change again until `follow` is called.

        Returns:
            A delta with everything in the image.
        """
        self._unwatch = self._store.watch("/", self._enqueue)
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
        if self._applied >= revision:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        await waiter

    async def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        for _, waiter in self._waiters:
            if not waiter.done():
                stopped = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping.")
                waiter.set_exception(stopped)
        self._waiters.clear()

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
        waiting, self._waiters = self._waiters, []
        for awaited, waiter in waiting:
            if awaited > self._applied:
                self._waiters.append((awaited, waiter))
            elif not waiter.done():
                waiter.set_result(None)
