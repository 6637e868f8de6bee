"""A ZooKeeper server for simulated clusters: its real protocol, in memory, under the virtual clock.

What it does as the real one does: sessions that expire when nothing is heard, ephemeral nodes that
go with them, versions and zxids, multi as all or nothing, persistent recursive watches whose events
come before the reply to the change that caused them, sessions that move between connections and
make requests of the old one fail. What it is spared: members that disagree. Killing its process
breaks every connection and keeps the tree, as a quorum would."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from ottla.metadata.zookeeper.jute import EventType, OpCode, ZkCode
from ottla.testing.simulation.scheduler import Process

PORT = 2181
SYNC_CONNECTED = 3
TICK_S = 0.1

_INT = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")


@dataclass(slots=True)
class ZNode:
    data: bytes
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0
    children: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Session:
    id: int
    timeout_s: float
    heard_at: float
    connection: ServerConnection | None = None


class Refused(Exception):
    def __init__(self, code: ZkCode) -> None:
        self.code = code


class SimulatedZooKeeper:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.nodes: dict[str, ZNode] = {"/": ZNode(b"", 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.zxid = 0
        self._next_session = 1

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for session in self.sessions.values():
            session.connection = None
            session.heard_at = loop.time()  # a new leader gives everybody time to come back
        await loop.create_server(lambda: ServerConnection(self), self.process.name, PORT)
        loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for session in list(self.sessions.values()):
            if now - session.heard_at > session.timeout_s:
                self.expire(session)
        loop.call_later(TICK_S, self._tick)

    def open_session(self, timeout_ms: int) -> Session:
        now = asyncio.get_running_loop().time()
        session = Session(self._next_session, timeout_ms / 1000, now)
        self._next_session += 1
        self.sessions[session.id] = session
        return session

    def expire(self, session: Session) -> None:
        """Its ephemeral nodes go, in one transaction."""
        del self.sessions[session.id]
        self.zxid += 1
        owned = [path for path, node in self.nodes.items() if node.owner == session.id]
        for path in sorted(owned):
            self._remove(path)
        if session.connection is not None:
            session.connection.close()

    # ------------------------------------------------------------------------------- the tree

    def commit(self, changes: list[Callable[[], bytes]]) -> list[bytes]:
        """Carry out changes, all or none; each gives its result."""
        before = {path: _copy(node) for path, node in self.nodes.items()}
        self.zxid += 1
        results: list[bytes] = []
        self._events: list[tuple[EventType, str]] = []
        try:
            for change in changes:
                results.append(change())  # noqa: PERF401 one may raise
        except Refused:
            self.nodes = before
            self._events = []
            raise
        events, self._events = self._events, []
        for kind, path in events:
            self._tell(kind, path)
        return results

    def create(self, path: str, data: bytes, owner: int) -> bytes:
        if path in self.nodes:
            raise Refused(ZkCode.NODE_EXISTS)
        parent = self.nodes.get(_parent(path))
        if parent is None:
            raise Refused(ZkCode.NO_NODE)
        parent.children.add(path.rpartition("/")[2])
        self.nodes[path] = ZNode(data, self.zxid, self.zxid, owner=owner)
        self._events.append((EventType.CREATED, path))
        return _string(path)

    def delete(self, path: str, version: int) -> bytes:
        node = self._at(path, version)
        if node.children:
            raise Refused(ZkCode.NOT_EMPTY)
        self._unlink(path)
        self._events.append((EventType.DELETED, path))
        return b""

    def set_data(self, path: str, data: bytes, version: int) -> bytes:
        node = self._at(path, version)
        node.data, node.mzxid, node.version = data, self.zxid, node.version + 1
        self._events.append((EventType.DATA_CHANGED, path))
        return self.stat(node)

    def check(self, path: str, version: int) -> bytes:
        self._at(path, version)
        return b""

    def _at(self, path: str, version: int) -> ZNode:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(ZkCode.NO_NODE)
        if version not in (-1, node.version):
            raise Refused(ZkCode.BAD_VERSION)
        return node

    def _unlink(self, path: str) -> None:
        del self.nodes[path]
        self.nodes[_parent(path)].children.discard(path.rpartition("/")[2])

    def _remove(self, path: str) -> None:
        self._unlink(path)
        self._tell(EventType.DELETED, path)

    def _tell(self, kind: EventType, path: str) -> None:
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.tell(kind, path)

    @staticmethod
    def stat(node: ZNode) -> bytes:
        return _STAT.pack(
            node.czxid, node.mzxid, 0, 0, node.version, 0, 0, node.owner,
            len(node.data), len(node.children), node.mzxid,
        )  # fmt: skip


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: SimulatedZooKeeper) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._session: Session | None = None
        self._watched: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Close behind the last answer."""
        if self._transport is not None:
            self._transport.close()

    def tell(self, kind: EventType, path: str) -> None:
        if any(path == each or path.startswith(each + "/") for each in self._watched):
            event = _INT.pack(kind) + _INT.pack(SYNC_CONNECTED) + _string(path)
            self._reply(-1, 0, event)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = _INT.unpack_from(self._received)
            if len(self._received) < 4 + size:
                return
            payload, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            if self._session is None:
                self._connect(payload)
            else:
                self._serve(_Reader(payload))

    def _connect(self, payload: bytes) -> None:
        reader = _Reader(payload)
        reader.int32()
        reader.int64()
        timeout_ms, session_id = reader.int32(), reader.int64()
        server = self._server
        session = (
            server.open_session(timeout_ms) if not session_id else server.sessions.get(session_id)
        )
        if session is None:
            self._send(_INT.pack(0) + _INT.pack(0) + struct.pack(">q", 0) + _buffer(bytes(16)))
            self._end()
            return
        if session.connection is not None:
            session.connection.close()
        session.connection, self._session = self, session
        session.heard_at = asyncio.get_running_loop().time()
        granted = _INT.pack(0) + _INT.pack(timeout_ms) + struct.pack(">q", session.id)
        self._send(granted + _buffer(bytes(16)) + b"\x00")

    def _serve(self, reader: _Reader) -> None:
        xid, code = reader.int32(), reader.int32()
        session = self._session
        assert session is not None
        if session.id not in self._server.sessions or session.connection is not self:
            self._reply(xid, ZkCode.SESSION_EXPIRED)
            self._end()
            return
        session.heard_at = asyncio.get_running_loop().time()
        if code == OpCode.CLOSE_SESSION:
            session.connection = None
            self._server.expire(session)
            self._reply(xid, 0)
            return
        try:
            body = self._answer(code, reader, session)
        except Refused as refused:
            self._reply(xid, refused.code)
        else:
            self._reply(xid, 0, body)

    def _answer(self, code: int, reader: _Reader, session: Session) -> bytes:
        server = self._server
        match code:
            case OpCode.PING:
                return b""
            case OpCode.ADD_WATCH:
                self._watched.add(reader.string())
                return _INT.pack(0)
            case OpCode.SYNC:
                return _string(reader.string())
            case OpCode.GET_DATA:
                node = server._at(reader.string(), -1)
                return _buffer(node.data) + server.stat(node)
            case OpCode.GET_CHILDREN2:
                node = server._at(reader.string(), -1)
                names = b"".join(_string(name) for name in sorted(node.children))
                return _INT.pack(len(node.children)) + names + server.stat(node)
            case OpCode.MULTI:
                return self._multi(reader, session)
        (result,) = server.commit([self._change(code, reader, session)])
        return result

    def _multi(self, reader: _Reader, session: Session) -> bytes:
        codes, changes = [], []
        while True:
            code, done = reader.int32(), reader.boolean()
            reader.int32()
            if done:
                break
            codes.append(code)
            changes.append(self._change(code, reader, session))
        failed: list[int] = []

        def noted(index: int, change: Callable[[], bytes]) -> Callable[[], bytes]:
            def attempt() -> bytes:
                try:
                    return change()
                except Refused:
                    failed.append(index)
                    raise

            return attempt

        end = struct.pack(">i?i", -1, True, -1)
        try:
            results = self._server.commit([noted(*each) for each in enumerate(changes)])
        except Refused as refused:
            parts = []
            for index in range(len(codes)):
                error = refused.code if index == failed[0] else ZkCode.RUNTIME_INCONSISTENCY
                parts.append(struct.pack(">i?ii", -1, False, error, error))
            return b"".join(parts) + end
        heads = [struct.pack(">i?i", code, False, 0) for code in codes]
        return b"".join(head + result for head, result in zip(heads, results, strict=True)) + end

    def _change(self, code: int, reader: _Reader, session: Session) -> Callable[[], bytes]:
        server = self._server
        path = reader.string()
        if code == OpCode.CREATE:
            data = reader.buffer()
            for _ in range(reader.int32()):
                reader.int32()
                reader.string()
                reader.string()
            owner = session.id if reader.int32() == 1 else 0
            return lambda: server.create(path, data, owner)
        if code == OpCode.SET_DATA:
            data, version = reader.buffer(), reader.int32()
            return lambda: server.set_data(path, data, version)
        version = reader.int32()
        if code == OpCode.DELETE:
            return lambda: server.delete(path, version)
        if code == OpCode.CHECK:
            return lambda: server.check(path, version)
        raise AssertionError(f"the simulated ZooKeeper has no operation {code}")

    def _reply(self, xid: int, error: int, body: bytes = b"") -> None:
        self._send(struct.pack(">iqi", xid, self._server.zxid, error) + body)

    def _send(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(_INT.pack(len(payload)) + payload)


class _Reader:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    def int32(self) -> int:
        (value,) = _INT.unpack_from(self._payload, self._position)
        self._position += 4
        return cast("int", value)

    def int64(self) -> int:
        (value,) = struct.unpack_from(">q", self._payload, self._position)
        self._position += 8
        return cast("int", value)

    def boolean(self) -> bool:
        self._position += 1
        return self._payload[self._position - 1] != 0

    def buffer(self) -> bytes:
        size = max(0, self.int32())
        self._position += size
        return self._payload[self._position - size : self._position]

    def string(self) -> str:
        return self.buffer().decode()


def _copy(node: ZNode) -> ZNode:
    return ZNode(node.data, node.czxid, node.mzxid, node.version, node.owner, set(node.children))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _string(text: str) -> bytes:
    return _buffer(text.encode())
