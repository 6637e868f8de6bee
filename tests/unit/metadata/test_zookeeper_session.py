"""Tests of a session whose ensemble has servers that do not respond."""

from __future__ import annotations

import asyncio

import pytest

from ottla.metadata.zookeeper import session as module
from ottla.metadata.zookeeper.session import ZooKeeperSession

LIMIT_S = 20.0


def test_a_member_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late response would move the session to a connection that the client has abandoned."""
    monkeypatch.setattr(module, "CONNECT_ATTEMPT_S", 0.05)

    async def see_it_leave() -> bytes:
        left: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = b""
            try:
                while received := await reader.read(1024):
                    asked += received
            except ConnectionError:
                pass
            writer.close()
            if not left.done():
                left.set_result(asked)

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        session = ZooKeeperSession([server.sockets[0].getsockname()[:2]], timeout_ms=60_000)
        starting = asyncio.create_task(session.start())
        try:
            async with asyncio.timeout(LIMIT_S):
                return await left
        finally:
            await session.close()
            await asyncio.gather(starting, return_exceptions=True)
            server.close()

    assert asyncio.run(see_it_leave())
