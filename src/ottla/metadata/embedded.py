"""Metadata store of a single broker: nodes in memory, transactions in a local file.

    txn() ── checked, in order ──► one line of the journal ── synced, in a thread ──► applied,
             against the state          for all waiting                               watchers
             after those before         transactions                                  notified,
                                                                                      txn() returns

A change becomes visible only once it is durable: `load`, the watchers and the caller of `txn` see
it after its line has been synced. A failed write (a full disk) fails its transactions with
KAFKA_STORAGE_ERROR and changes nothing; the next write is attempted as usual.

The session is the process: ephemeral nodes exist only in memory, and are gone after a restart. A
journal that has grown large is compacted between two writes; `journal.py` describes its format and
crash recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import (
    ANY_VERSION,
    Change,
    Check,
    Create,
    Delete,
    Node,
    Op,
    TxnConflict,
    WatchCallback,
    covers,
)
from ottla.base.ports import FileSystem
from ottla.metadata.journal import Journal, encode_line

logger = logging.getLogger(__name__)

MAX_WAITING_TXNS = 100_000
MAX_TXNS_PER_LINE = 10_000

T = TypeVar("T")


class RunBlocking(Protocol):
    """Function that runs blocking disk I/O in a thread. The store makes one call at a time."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class _Waiting(NamedTuple):
    checks: Sequence[Check]
    ops: Sequence[Op]
    done: asyncio.Future[int]


class _Accepted(NamedTuple):
    waiting: _Waiting
    changes: dict[str, Node | None]


class EmbeddedStore:
    """A `MetadataStore` in local files. Create it with `open`."""

    def __init__(self, journal: Journal, nodes: dict[str, Node], run_blocking: RunBlocking) -> None:
        self._journal = journal
        self._nodes = nodes
        self._ephemeral: set[str] = set()
        self._run_blocking = run_blocking
        self._revision = journal.revision
        self._watches: list[tuple[str, WatchCallback]] = []
        self._waiting: deque[_Waiting] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        self.on_write_error: Callable[[OSError], object] = lambda error: None
        """Called when the journal could not be written."""

    @classmethod
    async def open(cls, fs: FileSystem, directory: str, run_blocking: RunBlocking) -> EmbeddedStore:
        """Open the store, or create it.

        Args:
            fs: The file system to use.
            directory: The directory of the store's files.
            run_blocking: Runs blocking disk I/O in a thread.

        Raises:
            UserError: The files in the directory are damaged.
        """
        journal = Journal(fs, directory)
        nodes = await run_blocking(journal.open)
        return cls(journal, nodes, run_blocking)

    @property
    def session_id(self) -> int:
        return 1

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Do nothing: the session ends with the process, so the callback would never be called."""

    async def load(self, prefix: str) -> tuple[dict[str, Node], int]:
        found = {path: node for path, node in self._nodes.items() if covers(prefix, path)}
        return found, self._revision

    def watch(self, prefix: str, callback: WatchCallback) -> Callable[[], None]:
        entry = (prefix, callback)
        self._watches.append(entry)
        return lambda: self._watches.remove(entry)

    async def txn(self, checks: Sequence[Check], ops: Sequence[Op]) -> int:
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The metadata store is closed.")
        if len(self._waiting) >= MAX_WAITING_TXNS:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store is overloaded.")
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(checks, ops, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting(), name="metadata-writer")
        return await done

    async def close(self) -> None:
        """Commit the waiting transactions, then close the files."""
        self._closed = True
        while self._writer is not None:
            await asyncio.wait([self._writer])
        await self._run_blocking(self._journal.close)

    # -------------------------------------------------------------------------------------- writing

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                accepted = self._accept()
                if accepted:
                    await self._commit(accepted)
        finally:
            self._writer = None

    def _accept(self) -> list[_Accepted]:
        """Check the waiting transactions in order, and fail those that conflict."""
        pending: dict[str, Node | None] = {}
        accepted: list[_Accepted] = []
        while self._waiting and len(accepted) < MAX_TXNS_PER_LINE:
            waiting = self._waiting.popleft()
            try:
                changes = self._changes_of(waiting, pending)
            except TxnConflict as conflict:
                if not waiting.done.done():
                    waiting.done.set_exception(conflict)
                continue
            pending.update(changes)
            accepted.append(_Accepted(waiting, changes))
        return accepted

    def _changes_of(
        self, waiting: _Waiting, pending: dict[str, Node | None]
    ) -> dict[str, Node | None]:
        changes: dict[str, Node | None] = {}

        def version_of(path: str) -> int | None:
            for layer in (changes, pending, self._nodes):
                if path in layer:
                    node = layer[path]
                    return None if node is None else node.version
            return None

        for check in waiting.checks:
            found = version_of(check.path)
            if found != check.version:
                raise TxnConflict(check.path, check.version, found)
        for op in waiting.ops:
            found = version_of(op.path)
            if isinstance(op, Create):
                if found is not None:
                    raise TxnConflict(op.path, None, found)
                changes[op.path] = Node(op.value, 0)
            elif found is None:
                raise TxnConflict(op.path, ANY_VERSION, None)
            else:
                changes[op.path] = None if isinstance(op, Delete) else Node(op.value, found + 1)
        return changes

    async def _commit(self, accepted: list[_Accepted]) -> None:
        last = self._revision + len(accepted)
        ephemeral = set(self._ephemeral)
        txns = [_durable_ops(entry.waiting.ops, ephemeral) for entry in accepted]
        try:
            await self._run_blocking(lambda: self._journal.append(encode_line(txns, last), last))
        except Exception as error:
            self._fail(accepted, error)
            return
        self._ephemeral = ephemeral
        for entry in accepted:
            self._revision += 1
            self._apply(entry.changes)
            if not entry.waiting.done.done():
                entry.waiting.done.set_result(self._revision)
        if self._journal.wants_compaction:
            await self._compact()

    def _fail(self, accepted: list[_Accepted], error: Exception) -> None:
        logger.error("Could not write metadata: %s", error)
        if isinstance(error, OSError):
            self.on_write_error(error)
        for entry in accepted:
            if not entry.waiting.done.done():
                failure = KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Could not write metadata: {error}"
                )
                entry.waiting.done.set_exception(failure)

    def _apply(self, changes: dict[str, Node | None]) -> None:
        for path, node in changes.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node
        self._notify(list(changes.items()))

    def _notify(self, changes: list[Change]) -> None:
        """Call all watchers, even without changes of theirs: they may await the revision."""
        for prefix, callback in tuple(self._watches):
            seen = [change for change in changes if covers(prefix, change[0])]
            try:
                callback(self._revision, seen)
            except Exception:
                logger.exception("A metadata watcher of %s failed", prefix)

    async def _compact(self) -> None:
        ephemeral = self._ephemeral
        durable = {path: node for path, node in self._nodes.items() if path not in ephemeral}
        try:
            await self._run_blocking(lambda: self._journal.compact(durable))
        except OSError as error:
            logger.warning("Could not compact the metadata log: %s", error)


def _durable_ops(ops: Sequence[Op], ephemeral: set[str]) -> list[Op]:
    """Return the operations that belong in the journal; update `ephemeral` with the others."""
    durable = []
    for op in ops:
        if isinstance(op, Create) and op.ephemeral:
            ephemeral.add(op.path)
        elif op.path not in ephemeral:
            durable.append(op)
        elif isinstance(op, Delete):
            ephemeral.discard(op.path)
    return durable
