"""ZooKeeper ensemble for simulated clusters: the real protocol, in memory, in virtual time.

It behaves like the real one in these respects: sessions expire without heartbeats, ephemeral nodes
go with their session, nodes have versions and zxids, multi is atomic, events of persistent
recursive watches precede the reply to the change that caused them, and a session that moves to
another connection makes requests of the old one fail. Members may lag (`max_lag_s`): a client of a
lagging member reads old values and sees changes late, though always in order (zookeeper_member.py).

Killing its process breaks every connection and keeps the tree, as a quorum would. Trees are
immutable: every commit creates a new one, so observers may keep references to old ones.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.metadata.zookeeper.jute import EventType, ZkCode
from ottla.testing.simulation.scheduler import Process

PORT = 2181
TICK_S = 0.1
REMEMBERED_COMMITS = 512
"""Number of recent trees that are kept for lagging members."""
ENSEMBLE_SESSION = 0
"""Session of changes that the ensemble makes itself."""

_STAT = struct.Struct(">qqqqiiiqiiq")


class ZNode(NamedTuple):
    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0
    children: frozenset[str] = frozenset()


Tree = Mapping[str, ZNode]


class Commit(NamedTuple):
    zxid: int
    at: float
    tree: Tree
    events: tuple[tuple[EventType, str], ...]


class CommitListener(Protocol):
    """Connection of a client to one of the members."""

    def committed(self, commit: Commit) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class SimulatedSession:
    id: int
    timeout_s: float
    heard_at: float
    connection: CommitListener | None = None


class RequestRejected(Exception):
    def __init__(self, code: ZkCode) -> None:
        self.code = code


OnCommit = Callable[[Tree, Tree, int], None]
"""Callback for every commit: the old tree, the new tree, and the session that made the change."""


class SimulatedZooKeeper:
    def __init__(
        self, process: Process, connect: Callable[[SimulatedZooKeeper], asyncio.Protocol]
    ) -> None:
        self.process = process
        self._connect = connect
        self.tree: dict[str, ZNode] = {"/": ZNode(b"", 0, 0)}
        self.sessions: dict[int, SimulatedSession] = {}
        self.zxid = 0
        self.max_lag_s = 0.0
        """Maximum lag of members; each connection draws its own lag."""
        self.commits: deque[Commit] = deque(maxlen=REMEMBERED_COMMITS)
        self.on_commit: list[OnCommit] = []
        self._next_session = 1
        self._events: list[tuple[EventType, str]] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for session in self.sessions.values():
            session.connection = None
            session.heard_at = loop.time()  # a new leader gives all sessions time to return
        await loop.create_server(lambda: self._connect(self), self.process.name, PORT)
        loop.call_later(TICK_S, self._tick)

    @property
    def random(self) -> random.Random:
        return self.process.scheduler.random

    def draw_lag_s(self) -> float:
        if not self.max_lag_s or self.random.random() < 0.5:
            return 0.0
        return self.random.uniform(0, self.max_lag_s)

    # ------------------------------------------------------------------------------- sessions

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for session in list(self.sessions.values()):
            if now - session.heard_at > session.timeout_s:
                self.expire(session)
        loop.call_later(TICK_S, self._tick)

    def open_session(self, timeout_ms: int) -> SimulatedSession:
        session = SimulatedSession(self._next_session, timeout_ms / 1000, self.process.monotonic())
        self._next_session += 1
        self.sessions[session.id] = session
        return session

    def expire(self, session: SimulatedSession) -> None:
        """End a session and delete its ephemeral nodes, in one transaction."""
        del self.sessions[session.id]
        owned = sorted(path for path, node in self.tree.items() if node.owner == session.id)

        def remove(path: str) -> Callable[[], bytes]:
            return lambda: self.delete(path, -1)

        self.commit([remove(path) for path in owned], ENSEMBLE_SESSION)
        if session.connection is not None:
            session.connection.close()

    # ------------------------------------------------------------------------------- the tree

    def commit(self, changes: list[Callable[[], bytes]], session_id: int) -> list[bytes]:
        """Apply changes atomically, and return the result of each."""
        before = self.tree
        self.tree = dict(before)
        self.zxid += 1
        results: list[bytes] = []
        self._events = []
        try:
            for change in changes:
                results.append(change())  # noqa: PERF401 a change may raise
        except RequestRejected:
            self.tree, self._events = before, []
            self._publish()
            raise
        self._publish()
        for callback in self.on_commit:
            callback(before, self.tree, session_id)
        return results

    def _publish(self) -> None:
        commit = Commit(self.zxid, self.process.monotonic(), self.tree, tuple(self._events))
        self.commits.append(commit)
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.committed(commit)

    def create(self, path: str, data: bytes, owner: int) -> bytes:
        if path in self.tree:
            raise RequestRejected(ZkCode.NODE_EXISTS)
        parent = self.tree.get(_parent(path))
        if parent is None:
            raise RequestRejected(ZkCode.NO_NODE)
        children = parent.children | {path.rpartition("/")[2]}
        self.tree[_parent(path)] = parent._replace(children=children)
        self.tree[path] = ZNode(data, self.zxid, self.zxid, owner=owner)
        self._events.append((EventType.CREATED, path))
        return encoded_string(path)

    def delete(self, path: str, version: int) -> bytes:
        if node_at(self.tree, path, version).children:
            raise RequestRejected(ZkCode.NOT_EMPTY)
        del self.tree[path]
        parent = self.tree[_parent(path)]
        children = parent.children - {path.rpartition("/")[2]}
        self.tree[_parent(path)] = parent._replace(children=children)
        self._events.append((EventType.DELETED, path))
        return b""

    def set_data(self, path: str, data: bytes, version: int) -> bytes:
        node = node_at(self.tree, path, version)
        changed = node._replace(data=data, mzxid=self.zxid, version=node.version + 1)
        self.tree[path] = changed
        self._events.append((EventType.DATA_CHANGED, path))
        return stat(changed)

    def check(self, path: str, version: int) -> bytes:
        node_at(self.tree, path, version)
        return b""


def node_at(tree: Tree, path: str, version: int = -1) -> ZNode:
    node = tree.get(path)
    if node is None:
        raise RequestRejected(ZkCode.NO_NODE)
    if version not in (-1, node.version):
        raise RequestRejected(ZkCode.BAD_VERSION)
    return node


def stat(node: ZNode) -> bytes:
    return _STAT.pack(
        node.czxid, node.mzxid, 0, 0, node.version, 0, 0, node.owner,
        len(node.data), len(node.children), node.mzxid,
    )  # fmt: skip


def encoded_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
