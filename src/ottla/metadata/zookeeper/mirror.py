"""A ZooKeeper subtree in memory, kept current by one persistent recursive watch.

    event ──► GET_DATA at once ──► applied if its mzxid is newer ──► watchers notified together,
                                                                     once no read is outstanding

ZooKeeper does not replay missed events for such a watch after a reconnect. The watch is therefore
set again, and the whole subtree is read and compared with the known state. Events that arrive
meanwhile cause reads as usual; the newest mzxid of a node wins, in whatever order replies arrive.

Since ZooKeeper 3.9 (ZOOKEEPER-4655), events have the zxid of their change; before, it is -1. The
revision then comes from the replies to the reads: a server sends all events up to the zxid of a
reply before that reply.

Structural nodes (parents that ZooKeeper requires) are empty and are not reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.base.metadata import Change, Node
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.connection import ConnectionLoss, Reply
from ottla.metadata.zookeeper.jute import EventType, OpCode, WatchEvent, ZkCode, ZkError
from ottla.metadata.zookeeper.session import ZooKeeperSession

MAX_OUTSTANDING_READS = 500

OnChanges = Callable[[int, list[Change]], None]


class _Known(NamedTuple):
    node: Node
    mzxid: int


class Mirror:
    def __init__(self, session: ZooKeeperSession, root: str, on_changes: OnChanges) -> None:
        self._session = session
        self.root = root
        self._on_changes = on_changes
        self._known: dict[str, _Known] = {}
        self._outstanding = 0
        self._changed: dict[str, Node | None] = {}
        self.revision = 0
        """The zxid up to which all changes have been reported."""
        self._seen_zxid = 0
        self._reported_zxid = 0
        self._loading = False
        self._seen_while_loading: set[str] = set()

    def nodes(self, prefix: str) -> dict[str, Node]:
        """Return the known nodes by path, relative to the root."""
        return {path: known.node for path, known in self._known.items() if path.startswith(prefix)}

    # -------------------------------------------------------------------------------- loading

    async def load(self) -> None:
        """Set the watch, then read the whole subtree. Called for each new connection.

        Raises:
            ZkError: A request failed.
        """
        self._loading = True
        self._seen_while_loading.clear()
        self._outstanding = 0  # replies of an earlier connection never arrive
        try:
            await self._session.request(OpCode.ADD_WATCH, jute.add_watch(self.root))
            reply = await self._session.request(OpCode.SYNC, jute.string(self.root))
            self._seen_zxid = max(self._seen_zxid, reply.zxid)
            found: set[str] = set()
            await self._read_below([""], found)
            # A node reported by an event meanwhile may be newer than the listing that lacks it.
            for path in self._known.keys() - found - self._seen_while_loading:
                self._forget(path)
        finally:
            self._loading = False
        if not self._outstanding:  # otherwise the last outstanding read reports the changes
            self._notify()

    async def _read_below(self, paths: list[str], found: set[str]) -> None:
        """Read nodes breadth-first, with a bounded number of outstanding reads."""
        while paths:
            below: list[str] = []
            for start in range(0, len(paths), MAX_OUTSTANDING_READS):
                chunk = paths[start : start + MAX_OUTSTANDING_READS]
                below += await self._read_chunk(chunk, found)
            paths = below

    async def _read_chunk(self, chunk: Iterable[str], found: set[str]) -> list[str]:
        reads = [(path, self._get(path)) for path in chunk]
        parents: list[str] = []
        for path, read in reads:
            try:
                reply = await read
            except ZkError as error:
                if error.code != ZkCode.NO_NODE:
                    raise
                continue
            data, stat = jute.read_data(reply.payload, reply.position)
            found.add(path)
            self._store_node(path, data, stat.version, stat.mzxid)
            if stat.child_count:
                parents.append(path)
        listings = [
            (path, self._send(OpCode.GET_CHILDREN2, jute.path_and_flag(self._full(path))))
            for path in parents
        ]
        children: list[str] = []
        for path, listing in listings:
            try:
                reply = await listing
            except ZkError as error:
                if error.code != ZkCode.NO_NODE:
                    raise
                continue
            names, _ = jute.read_children(reply.payload, reply.position)
            children += [f"{path}/{name}" for name in sorted(names)]
        return children

    # --------------------------------------------------------------------------------------- events

    def on_event(self, event: WatchEvent, zxid: int) -> None:
        """Handle a watch event. Events for paths outside of the root are ignored."""
        if event.path != self.root and not event.path.startswith(self.root + "/"):
            return
        self._seen_zxid = max(self._seen_zxid, zxid)
        if event.type not in (EventType.CREATED, EventType.DELETED, EventType.DATA_CHANGED):
            return
        path = event.path[len(self.root) :]
        try:
            read = self._get(path)
        except ZkError:
            return  # the connection has just ended; the next one loads everything
        self._outstanding += 1
        has_zxid = zxid > 0
        read.add_done_callback(lambda done: self._read(path, done, has_zxid))

    def _read(self, path: str, done: asyncio.Future[Reply], has_zxid: bool) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, ConnectionLoss):
            return
        self._outstanding = max(0, self._outstanding - 1)
        if not has_zxid:
            self._seen_zxid = max(self._seen_zxid, self._session.last_zxid)
        if error is None:
            reply = done.result()
            data, stat = jute.read_data(reply.payload, reply.position)
            self._store_node(path, data, stat.version, stat.mzxid)
            if self._loading:
                self._seen_while_loading.add(path)
        elif isinstance(error, ZkError) and error.code == ZkCode.NO_NODE:
            self._forget(path)
        if not self._outstanding and not self._loading:
            self._notify()

    def committed(self, zxid: int) -> None:
        """Handle a commit of this session.

        Its events arrived before its reply, so everything up to it is reported once their reads are
        done.
        """
        self._seen_zxid = max(self._seen_zxid, zxid)
        if not self._outstanding and not self._loading:
            self._notify()

    # ------------------------------------------------------------------------------------- applying

    def _store_node(self, path: str, data: bytes, version: int, mzxid: int) -> None:
        known = self._known.get(path)
        if not data or (known is not None and known.mzxid >= mzxid):
            return
        node = Node(data, version)
        self._known[path] = _Known(node, mzxid)
        self._changed[path] = node

    def _forget(self, path: str) -> None:
        if self._known.pop(path, None) is not None:
            self._changed[path] = None

    def _notify(self) -> None:
        if not self._changed and self._seen_zxid <= self._reported_zxid:
            return
        changes, self._changed = list(self._changed.items()), {}
        self._reported_zxid = self.revision = max(self._seen_zxid, self._reported_zxid)
        self._on_changes(self.revision, changes)

    def _get(self, path: str) -> asyncio.Future[Reply]:
        return self._send(OpCode.GET_DATA, jute.path_and_flag(self._full(path)))

    def _send(self, code: OpCode, body: bytes) -> asyncio.Future[Reply]:
        return self._session.send(code, body)

    def _full(self, path: str) -> str:
        return self.root + path
