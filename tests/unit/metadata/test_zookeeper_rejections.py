"""Servers that reject a client's settings, or that answer something else than they should."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Awaitable, Callable
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.config.zookeeper_security import ZooKeeperCredentials
from ottla.base.errors import UserError
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper import session as module
from ottla.metadata.zookeeper.connection import Connection, SettingsRejected
from ottla.metadata.zookeeper.jute import OpCode
from ottla.metadata.zookeeper.session import ZooKeeperSession

LIMIT_S = 20.0
PASSWORD = "a secret of the tests"
USER = ZooKeeperCredentials("ottla", PASSWORD)
TIMEOUT_MS = 60_000
CONNECTED = struct.pack(">iiq", 0, TIMEOUT_MS, 5) + jute.buffer(bytes(16)) + b"\x00"
AUTH_FAILED = -115
AUTHENTICATION_REQUIRED = -124

Answer = Callable[[int, int], bytes | None]
"""Returns the reply to a request with this xid and this operation; None for no reply."""


def reply(xid: int, error: int = 0, body: bytes = b"") -> bytes:
    return jute.frame(struct.pack(">iqi", xid, 0, error) + body)


def ok(xid: int, code: int) -> bytes:
    return reply(xid)


class Server:
    """A server that creates a session for everybody, and then answers as the test wants."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.attempts = 0
        self._attempted = asyncio.Condition()

    async def attempted(self, count: int) -> None:
        """Wait until there have been so many connections."""
        async with self._attempted:
            await self._attempted.wait_for(lambda: self.attempts >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        async with self._attempted:
            self._attempted.notify_all()
        try:
            await self._frame(reader)
            writer.write(jute.frame(CONNECTED))
            while True:
                xid, code = struct.unpack_from(">ii", await self._frame(reader))
                found = self.answer(xid, code)
                if found is not None:
                    writer.write(found)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


def run(
    answer: Answer,
    use: Callable[[ZooKeeperSession, Server], Awaitable[None]],
    credentials: ZooKeeperCredentials | None = USER,
) -> None:
    async def with_server() -> None:
        server = Server(answer)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        session = ZooKeeperSession(
            [listening.sockets[0].getsockname()[:2]], timeout_ms=TIMEOUT_MS, credentials=credentials
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                await use(session, server)
        finally:
            await session.close()
            listening.close()

    asyncio.run(with_server())


def rejection(answer: Answer, credentials: ZooKeeperCredentials | None = USER) -> str:
    """Return the sentence with which the start fails."""
    found: list[str] = []

    async def start(session: ZooKeeperSession, server: Server) -> None:
        async def load() -> None:
            await session.request(OpCode.SYNC, jute.string("/"))

        session.on_connected = load
        with pytest.raises(SettingsRejected) as caught:
            await session.start()
        found.append(str(caught.value))
        assert server.attempts == 1

    run(answer, start, credentials)
    assert PASSWORD not in found[0]
    return found[0]


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (b"", "does not offer SASL. Configure it there, or set zookeeper.auth.scheme=digest."),
        (b"\x00\xff", "does not accept the user 'ottla': the server sent a malformed message."),
        (b'nonce="n",algorithm=md5', "the challenge is not one of DIGEST-MD5"),
        (b'nonce="n",algorithm=md5-sess', "the server did not prove that it knows the password"),
    ],
)
def test_sasl_with_something_else_than_zookeeper(token: bytes, sentence: str) -> None:
    assert sentence in rejection(lambda xid, code: reply(xid, body=jute.buffer(token)))


@pytest.mark.parametrize("error", [AUTH_FAILED, AUTHENTICATION_REQUIRED])
@pytest.mark.parametrize("scheme", ["sasl", "digest"])
def test_a_user_that_is_not_accepted(error: int, scheme: str) -> None:
    credentials = ZooKeeperCredentials("ottla", PASSWORD, scheme)
    found = rejection(lambda xid, code: reply(xid, error), credentials)
    assert "does not accept the user 'ottla'" in found


def test_a_server_that_requires_authentication_of_a_client_without_a_user() -> None:
    found = rejection(lambda xid, code: reply(xid, AUTHENTICATION_REQUIRED), None)
    assert "requires authentication. Set zookeeper.auth.user and zookeeper.auth.password." in found


def test_the_password_precedes_every_other_request() -> None:
    seen: list[int] = []

    def answer(xid: int, code: int) -> bytes:
        seen.append(code)
        return reply(xid)

    async def start(session: ZooKeeperSession, server: Server) -> None:
        await session.start()

    run(answer, start, ZooKeeperCredentials("ottla", PASSWORD, "digest"))
    assert seen[0] == OpCode.AUTH
    assert OpCode.PING in seen


def test_a_server_that_never_answers_the_password_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_ATTEMPT_S", 0.05)

    async def start(session: ZooKeeperSession, server: Server) -> None:
        starting = asyncio.create_task(session.start())
        await server.attempted(2)
        starting.cancel()
        assert session.last_failure is not None
        assert session.last_failure.endswith(": no response")

    run(lambda xid, code: None, start)


def test_a_later_rejection_is_logged_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REJECTED_PAUSE_S", 0.01)
    accepting = True

    def answer(xid: int, code: int) -> bytes:
        return reply(xid, 0 if accepting else AUTHENTICATION_REQUIRED)

    async def use(session: ZooKeeperSession, server: Server) -> None:
        nonlocal accepting
        await session.start()
        accepting = False
        reconnected = server.attempts
        session._drop_connection()
        await server.attempted(reconnected + 3)
        accepting = True
        await session.connected()

    run(answer, use, ZooKeeperCredentials("ottla", PASSWORD, "digest"))
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "does not accept the user" in warnings[0].getMessage()


def test_a_server_that_expects_tls_is_recognized() -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x0a")
        await reader.read()
        writer.close()

    async def start() -> None:
        listening = await asyncio.start_server(alert, "127.0.0.1", 0)
        address = listening.sockets[0].getsockname()[:2]
        session = ZooKeeperSession([address], timeout_ms=TIMEOUT_MS)
        try:
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(SettingsRejected, match="expects TLS at"):
                    await session.start()
        finally:
            await session.close()
            listening.close()

    asyncio.run(start())


def test_a_server_without_tls_that_answers_is_recognized() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async def start() -> None:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = listening.sockets[0].getsockname()[:2]
        context = ssl.create_default_context()

        async def tls() -> ssl.SSLContext:
            return context

        session = ZooKeeperSession([address], timeout_ms=TIMEOUT_MS, tls=tls)
        try:
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(SettingsRejected, match=r"port for TLS \(secureClientPort\)"):
                    await session.start()
        finally:
            await session.close()
            listening.close()

    asyncio.run(start())


def test_an_unusable_key_store_ends_the_start() -> None:
    async def start() -> None:
        async def tls() -> ssl.SSLContext:
            raise UserError("The file cannot be used.")

        session = ZooKeeperSession([("127.0.0.1", 1)], timeout_ms=TIMEOUT_MS, tls=tls)
        try:
            with pytest.raises(SettingsRejected, match=r"The file cannot be used\."):
                await session.start()
        finally:
            await session.close()

    asyncio.run(start())


def test_one_server_that_accepts_the_settings_suffices() -> None:
    async def start() -> None:
        good, bad = Server(ok), Server(lambda xid, code: reply(xid, AUTHENTICATION_REQUIRED))
        listening = [
            await asyncio.start_server(each.serve, "127.0.0.1", 0) for each in (good, bad, bad)
        ]
        addresses = [each.sockets[0].getsockname()[:2] for each in listening]
        session = ZooKeeperSession(addresses, timeout_ms=TIMEOUT_MS)
        try:
            async with asyncio.timeout(LIMIT_S):
                await session.start()
        finally:
            await session.close()
            for each in listening:
                each.close()

    asyncio.run(start())


class Nothing:
    """A session that ignores everything."""

    def heard(self, sent_at: float) -> None: ...
    def saw_zxid(self, zxid: int) -> None: ...
    def saw_event(self, event: jute.WatchEvent, zxid: int) -> None: ...


REPLY = st.builds(
    lambda xid, zxid, error, body: jute.frame(struct.pack(">iqi", xid, zxid, error) + body),
    st.sampled_from([1, 2, -1, -2, -4, 77]),
    st.integers(0, 9),
    st.sampled_from([0, -101, AUTHENTICATION_REQUIRED, 5]),
    st.binary(max_size=40),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40) | REPLY, max_size=6), st.booleans())
def test_arbitrary_answers_end_the_connection_at_most(parts: list[bytes], is_set_up: bool) -> None:
    async def feed() -> None:
        connection = Connection(Nothing(), "zk:2181")
        transport = Mock()
        connection.connection_made(transport)
        handshake = asyncio.create_task(connection.handshake(b""))
        await asyncio.sleep(0)
        if is_set_up:
            connection.data_received(jute.frame(CONNECTED))
        requests = [connection.send(OpCode.SASL), connection.send(OpCode.GET_DATA)]
        for part in parts:
            connection.data_received(part)
        connection.connection_lost(None)
        assert all(each.done() for each in requests)
        await asyncio.gather(handshake, *requests, return_exceptions=True)

    logging.disable(logging.WARNING)
    try:
        asyncio.run(feed())
    finally:
        logging.disable(logging.NOTSET)
