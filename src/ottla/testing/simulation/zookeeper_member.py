"""Connection to a member of the simulated ensemble.

The member may lag: it shows its client an older tree, reports changes late, and answers a write or
a sync once it has caught up that far. Replies keep the order of the requests. Pings are answered at
once, whatever the member has seen, so they prove nothing. Like the real ensemble, it rejects a
client that has seen more than the member. A new session starts up to date, because creating it is
itself a commit.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from ottla.metadata.zookeeper.jute import OpCode, ZkCode
from ottla.testing.simulation.zookeeper import (
    Commit,
    RequestRejected,
    SimulatedSession,
    SimulatedZooKeeper,
    Tree,
    encoded_string,
    node_at,
    stat,
)

SYNC_CONNECTED = 3

_INT = struct.Struct(">i")


class MemberConnection(asyncio.Protocol):
    def __init__(self, server: SimulatedZooKeeper) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._session: SimulatedSession | None = None
        self._watched: set[str] = set()
        self._lag_s = server.draw_lag_s()
        self._zxid = server.zxid
        self._tree: Tree = server.tree
        self._behind: deque[Commit] = deque()
        self._replies: deque[tuple[int, Callable[[], None]]] = deque()
        """(zxid that this member must reach, function that then sends the reply)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Close the connection after the last reply."""
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------ the view of the member

    def _fall_back(self) -> None:
        """Switch to the view that a lagging member has now."""
        now = self._server.process.monotonic()
        recent = [each for each in self._server.commits if each.at > now - self._lag_s]
        earlier = [each for each in self._server.commits if each.at <= now - self._lag_s]
        if not earlier or not recent:
            return
        self._zxid, self._tree = earlier[-1].zxid, earlier[-1].tree
        for commit in recent:
            self._behind.append(commit)
            asyncio.get_running_loop().call_later(commit.at + self._lag_s - now, self._catch_up)

    def committed(self, commit: Commit) -> None:
        if not self._lag_s and not self._behind:
            self._apply(commit)
            return
        self._behind.append(commit)
        loop = self._server.process.loop
        loop.call_later(self._lag_s, self._catch_up)

    def _catch_up(self) -> None:
        if self._behind:
            self._apply(self._behind.popleft())
        while self._replies and self._replies[0][0] <= self._zxid:
            self._replies.popleft()[1]()

    def _apply(self, commit: Commit) -> None:
        self._zxid, self._tree = commit.zxid, commit.tree
        for kind, path in commit.events:
            if any(path == each or path.startswith(each + "/") for each in self._watched):
                event = _INT.pack(kind) + _INT.pack(SYNC_CONNECTED) + encoded_string(path)
                self._reply(-1, 0, event)

    def _reply_at(self, zxid: int, send: Callable[[], None]) -> None:
        if not self._replies and self._zxid >= zxid:
            send()
        else:
            self._replies.append((zxid, send))

    # -------------------------------------------------------------------------------- requests

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
                self._serve(JuteReader(payload))

    def _connect(self, payload: bytes) -> None:
        reader = JuteReader(payload)
        reader.int32()
        last_seen, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
        server = self._server
        if session_id:
            session = server.sessions.get(session_id)
            self._fall_back()
            if last_seen > self._zxid:
                self.close()
                return
        else:
            session = server.open_session(timeout_ms)
        if session is None:
            self._send(_INT.pack(0) + _INT.pack(0) + struct.pack(">q", 0) + _buffer(bytes(16)))
            self._end()
            return
        if session.connection is not None:
            session.connection.close()
        session.connection, self._session = self, session
        session.heard_at = server.process.monotonic()
        granted = _INT.pack(0) + _INT.pack(timeout_ms) + struct.pack(">q", session.id)
        self._send(granted + _buffer(bytes(16)) + b"\x00")

    def _serve(self, reader: JuteReader) -> None:
        xid, code = reader.int32(), reader.int32()
        session, server = self._session, self._server
        assert session is not None
        if session.id not in server.sessions or session.connection is not self:
            self._reply(xid, ZkCode.SESSION_EXPIRED)
            self._end()
            return
        session.heard_at = server.process.monotonic()
        if code == OpCode.CLOSE_SESSION:
            session.connection = None
            server.expire(session)
            self._reply(xid, 0)
        elif code == OpCode.PING:
            self._reply(xid, 0)
        elif code == OpCode.SYNC:
            path = reader.string()
            self._reply_at(server.zxid, lambda: self._reply(xid, 0, encoded_string(path)))
        elif code in (OpCode.ADD_WATCH, OpCode.GET_DATA, OpCode.GET_CHILDREN2):
            self._reply_at(0, lambda: self._attempt(xid, lambda: self._read(code, reader)))
        else:
            self._write(xid, code, reader, session)

    def _attempt(self, xid: int, serve: Callable[[], bytes]) -> None:
        try:
            body = serve()
        except RequestRejected as refused:
            self._reply(xid, refused.code)
        else:
            self._reply(xid, 0, body)

    def _read(self, code: int, reader: JuteReader) -> bytes:
        path = reader.string()
        if code == OpCode.ADD_WATCH:
            self._watched.add(path)
            return _INT.pack(0)
        node = node_at(self._tree, path)
        if code == OpCode.GET_DATA:
            return _buffer(node.data) + stat(node)
        names = b"".join(encoded_string(name) for name in sorted(node.children))
        return _INT.pack(len(node.children)) + names + stat(node)

    def _write(self, xid: int, code: int, reader: JuteReader, session: SimulatedSession) -> None:
        """Apply a change to the ensemble now, and reply once the member has caught up with it."""
        error: int = 0
        try:
            if code == OpCode.MULTI:
                body = self._multi(reader, session)
            else:
                change = self._change(code, reader, session)
                (body,) = self._server.commit([change], session.id)
        except RequestRejected as refused:
            error, body = refused.code, b""
        zxid = self._server.zxid
        self._reply_at(zxid, lambda: self._reply(xid, error, body, zxid))

    def _multi(self, reader: JuteReader, session: SimulatedSession) -> bytes:
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
                except RequestRejected:
                    failed.append(index)
                    raise

            return attempt

        end = struct.pack(">i?i", -1, True, -1)
        try:
            results = self._server.commit([noted(*each) for each in enumerate(changes)], session.id)
        except RequestRejected as refused:
            parts = []
            for index in range(len(codes)):
                error = refused.code if index == failed[0] else ZkCode.RUNTIME_INCONSISTENCY
                parts.append(struct.pack(">i?ii", -1, False, error, error))
            return b"".join(parts) + end
        heads = [struct.pack(">i?i", code, False, 0) for code in codes]
        return b"".join(head + result for head, result in zip(heads, results, strict=True)) + end

    def _change(
        self, code: int, reader: JuteReader, session: SimulatedSession
    ) -> Callable[[], bytes]:
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

    def _reply(self, xid: int, error: int, body: bytes = b"", zxid: int | None = None) -> None:
        seen = self._zxid if zxid is None else zxid
        self._send(struct.pack(">iqi", xid, seen, error) + body)

    def _send(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(_INT.pack(len(payload)) + payload)


class JuteReader:
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


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
