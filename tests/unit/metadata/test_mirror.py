"""Tests of mirroring a ZooKeeper subtree, with a session that responds when the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.base.metadata import Change, Node
from ottla.metadata.zookeeper.connection import Reply
from ottla.metadata.zookeeper.jute import EventType, OpCode, WatchEvent, ZkCode, ZkError
from ottla.metadata.zookeeper.mirror import Mirror


class Tree:
    """Nodes as a ZooKeeper server holds them; it responds to requests in order."""

    def __init__(self, **nodes: bytes) -> None:
        self.zxid = self.last_zxid = 1
        self.nodes: dict[str, tuple[bytes, int, int]] = {"/root": (b"", 0, 1)}
        self.after_children: Callable[[str], None] = lambda path: None
        for name, data in nodes.items():
            self.set(f"/root/{name}", data)

    def set(self, path: str, data: bytes) -> None:
        self.zxid += 1
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        self.nodes[path] = (data, version, self.zxid)

    def delete(self, path: str) -> None:
        self.zxid += 1
        del self.nodes[path]

    async def request(self, code: OpCode, body: bytes) -> Reply:
        return await self.send(code, body)

    def send(self, code: OpCode, body: bytes) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        soon = asyncio.get_running_loop().call_soon
        try:
            payload = self._answer(code, body)
        except ZkError as error:
            soon(self._saw, self.zxid)
            soon(future.set_exception, error)
        else:
            soon(self._saw, self.zxid)
            soon(future.set_result, Reply(self.zxid, payload, 0))
        return future

    def _saw(self, zxid: int) -> None:
        self.last_zxid = max(self.last_zxid, zxid)

    def _answer(self, code: OpCode, body: bytes) -> bytes:
        if code not in (OpCode.GET_DATA, OpCode.GET_CHILDREN2):
            return b""
        path = _path(body)
        if path not in self.nodes:
            raise ZkError(ZkCode.NO_NODE)
        data, version, mzxid = self.nodes[path]
        names = [
            each[len(path) + 1 :]
            for each in self.nodes
            if each.startswith(path + "/") and "/" not in each[len(path) + 1 :]
        ]
        if code is OpCode.GET_DATA:
            return _buffer(data) + _stat(version, mzxid, len(names))
        answer = len(names).to_bytes(4, "big") + b"".join(_buffer(name.encode()) for name in names)
        self.after_children(path)
        return answer + _stat(version, mzxid, len(names))


def _path(body: bytes) -> str:
    size = int.from_bytes(body[:4], "big")
    return body[4 : 4 + size].decode()


def _buffer(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _stat(version: int, mzxid: int, children: int) -> bytes:
    def number(value: int, size: int) -> bytes:
        return value.to_bytes(size, "big")

    times = number(0, 8) * 2
    others = number(0, 4) * 2 + number(0, 8) + number(0, 4)
    stat = number(1, 8) + number(mzxid, 8) + times + number(version, 4) + others
    return stat + number(children, 4) + number(1, 8)


def mirrored(tree: Tree) -> tuple[Mirror, list[Change]]:
    notified: list[Change] = []
    session: Any = tree
    return Mirror(session, "/root", lambda revision, changes: notified.extend(changes)), notified


def test_everything_below_the_root_is_loaded() -> None:
    async def scenario() -> None:
        tree = Tree(a=b"1", b=b"2")
        tree.set("/root/a/x", b"3")
        mirror, notified = mirrored(tree)
        await mirror.load()
        assert mirror.nodes("/") == {
            "/a": Node(b"1", 0),
            "/b": Node(b"2", 0),
            "/a/x": Node(b"3", 0),
        }
        assert len(notified) == 3

    asyncio.run(scenario())


def test_what_comes_while_it_loads_is_kept() -> None:
    async def scenario() -> None:
        tree = Tree(a=b"1")
        mirror, notified = mirrored(tree)

        def create_late(path: str) -> None:
            if path == "/root" and "/root/late" not in tree.nodes:
                tree.set("/root/late", b"2")
                mirror.on_event(WatchEvent(EventType.CREATED, 3, "/root/late"), tree.zxid)

        tree.after_children = create_late
        await mirror.load()
        await asyncio.sleep(0)
        assert mirror.nodes("/late") == {"/late": Node(b"2", 0)}
        assert ("/late", Node(b"2", 0)) in notified

    asyncio.run(scenario())


def test_what_was_deleted_while_the_connection_was_gone_is_forgotten_by_the_next_loading() -> None:
    async def scenario() -> None:
        tree = Tree(a=b"1", b=b"2")
        mirror, notified = mirrored(tree)
        await mirror.load()
        tree.delete("/root/b")
        tree.set("/root/a", b"9")
        notified.clear()
        await mirror.load()
        assert mirror.nodes("/") == {"/a": Node(b"9", 1)}
        assert sorted(notified) == [("/a", Node(b"9", 1)), ("/b", None)]

    asyncio.run(scenario())


def test_changes_have_a_new_revision_though_events_before_zookeeper_3_9_carry_no_zxid() -> None:
    """The revision must increase because followers skip revisions they have already applied."""

    async def scenario() -> None:
        tree = Tree(a=b"1")
        notified: asyncio.Queue[tuple[int, list[Change]]] = asyncio.Queue()
        session: Any = tree
        mirror = Mirror(session, "/root", lambda *each: notified.put_nowait(each))
        await mirror.load()
        loaded, _ = notified.get_nowait()
        tree.set("/root/b", b"2")
        mirror.on_event(WatchEvent(EventType.CREATED, 3, "/root/b"), -1)
        assert await asyncio.wait_for(notified.get(), 10) == (loaded + 1, [("/b", Node(b"2", 0))])
        tree.delete("/root/a")
        mirror.on_event(WatchEvent(EventType.DELETED, 3, "/root/a"), -1)
        assert await asyncio.wait_for(notified.get(), 10) == (loaded + 2, [("/a", None)])

    asyncio.run(scenario())
