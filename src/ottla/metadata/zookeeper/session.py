"""A ZooKeeper session that survives reconnects.

    connecting  no connection; servers are tried one after another
    connected   requests are sent at once, and answered in order
    lost        the ensemble reported that the session expired: all its ephemeral nodes are gone. A
                new session is created automatically
    closed

A missing answer does not mean that the session is lost: while the whole ensemble is down, no
session expires, and brokers continue with everything that needs no ensemble. Leases
(core/replication/lease.py) ensure that no broker relies on a session that expired without notice.

All code runs on one event loop on purpose: a broker with a blocked loop must lose its session. When
a connection ends, requests without a reply fail with `ConnectionLoss`, and may or may not have been
carried out. The store determines the outcome (see store.py).

`on_connected` is awaited after each reconnect, before any other request: the watches of the old
connection are gone, and changes may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.jute import (
    Connected,
    OpCode,
    ReplyHeader,
    WatchEvent,
    ZkCode,
    ZkError,
)

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 64 * 1024 * 1024
CONNECT_ATTEMPT_S = 2.0
RETRY_PAUSE_S = 0.05
NO_SESSION = 0
NO_PASSWORD = bytes(16)

_unpack_int = struct.Struct(">i").unpack_from


class ConnectionLoss(ZkError):
    """The connection ended before the reply: the request may or may not have been carried out."""

    def __init__(self) -> None:
        super().__init__(ZkCode.CONNECTION_LOSS)


class SessionClosed(ZkError):
    def __init__(self) -> None:
        super().__init__(ZkCode.SESSION_EXPIRED)


class Reply(NamedTuple):
    zxid: int
    payload: bytes
    position: int


class _Pending(NamedTuple):
    xid: int
    reply: asyncio.Future[Reply]


class ZooKeeperSession:
    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
        digest: str | None = None,
    ) -> None:
        self._servers = list(servers)
        random.shuffle(self._servers)
        self._wanted_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        """The session timeout that the ensemble granted."""
        self._tls = tls
        self._digest = digest
        self.session_id = NO_SESSION
        self._password = NO_PASSWORD
        self._last_zxid = 0
        self._last_heard = 0.0
        self._connection: _Connection | None = None
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._reported: set[str] = set()
        self._closed = False
        self.on_event: Callable[[WatchEvent, int], None] = lambda event, zxid: None
        self.on_connected: Callable[[], Awaitable[None]] = _nothing
        self.on_lost: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------------ start and close

    async def start(self) -> None:
        """Connect and create a session. The caller must limit the time."""
        self._task = asyncio.create_task(self._run(), name="zookeeper-session")
        await self.connected()

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes at once."""
        self._closed = True
        if self._connection is not None:
            try:
                async with asyncio.timeout(CONNECT_ATTEMPT_S):
                    await self._connection.send(OpCode.CLOSE_SESSION)
            except (ZkError, TimeoutError):
                pass
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop_connection()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SessionClosed())
            self._ready.exception()

    async def connected(self) -> None:
        """Wait until there is a connection and `on_connected` has completed.

        Raises:
            SessionClosed: The session has been closed.
        """
        while True:
            if self._closed:
                raise SessionClosed
            if self.is_connected and self._ready is None:
                return
            if self._ready is None:
                self._ready = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._ready)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    # ------------------------------------------------------------------------------- requests

    async def request(self, code: OpCode, body: bytes) -> Reply:
        """Send a request and wait for its reply.

        Raises:
            ZkError: The server answered with an error.
            ConnectionLoss: The connection ended before the reply.
            SessionClosed: The session has been closed.
        """
        return await self.send(code, body)

    def send(self, code: OpCode, body: bytes) -> asyncio.Future[Reply]:
        """Send a request at once, and return a future for its reply.

        Raises:
            ConnectionLoss: There is no connection.
            SessionClosed: The session has been closed.
        """
        if self._closed:
            raise SessionClosed
        if self._connection is None:
            raise ConnectionLoss
        return self._connection.send(code, body)

    # ----------------------------------------------------------------------------------- connecting

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_heard = loop.time()
        index = 0
        while not self._closed:
            host, port = self._servers[index % len(self._servers)]
            index += 1
            try:
                await self._serve(host, port)
            except (OSError, ZkError, ValueError, TimeoutError, struct.error) as error:
                self._report(f"{host}:{port}: {str(error) or type(error).__name__}")
            self._drop_connection()
            if index % len(self._servers) == 0:
                await asyncio.sleep(RETRY_PAUSE_S * random.uniform(0.5, 1.5))

    def _report(self, failure: str) -> None:
        """Log each distinct failure once per outage, so that long outages do not fill the log."""
        if failure not in self._reported:
            logger.info("ZooKeeper %s", failure)
        self._reported.add(failure)

    def _idle_s(self) -> float:
        return asyncio.get_running_loop().time() - self._last_heard

    async def _serve(self, host: str, port: int) -> None:
        """Connect, and keep the connection until it ends."""
        connection = _Connection(self)
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        # Closed even if the server does not answer in time: a late answer would move the session to
        # a connection that has been abandoned.
        try:
            async with asyncio.timeout(CONNECT_ATTEMPT_S):
                await loop.create_connection(lambda: connection, host, port, ssl=self._tls)
                granted = await connection.handshake(
                    jute.connect_request(
                        self._last_zxid, self._wanted_timeout_ms, self.session_id, self._password
                    )
                )
            if granted.timeout_ms <= 0 or granted.session_id == NO_SESSION:
                self._lose_session("the ensemble reports that it has expired")
                return
            self.session_id, self._password = granted.session_id, granted.password
            self.timeout_ms = granted.timeout_ms
            # Counted from before the request: the ensemble's timeout cannot have started earlier.
            self._last_heard = sent_at
            self._connection = connection
            if self._ready is None:
                self._ready = loop.create_future()
            preparing = asyncio.create_task(self._prepare(connection))
            try:
                await self._keep_alive(connection)
            finally:
                preparing.cancel()
                await asyncio.gather(preparing, return_exceptions=True)
        finally:
            connection.close()

    async def _prepare(self, connection: _Connection) -> None:
        """Authenticate and call `on_connected`. Runs beside the pings, because it may take long."""
        try:
            if self._digest is not None:
                await connection.authenticate("digest", self._digest.encode())
            await self.on_connected()
        except ZkError as error:
            logger.warning("Closing an unusable ZooKeeper connection: %s", error)
            connection.close()
            return
        ready, self._ready = self._ready, None
        self._reported.clear()
        if ready is not None and not ready.done():
            ready.set_result(None)

    async def _keep_alive(self, connection: _Connection) -> None:
        """Send pings, and leave a silent server while the session can still move to another one.

        Raises:
            TimeoutError: The server has been silent for two thirds of the session timeout.
        """
        timeout_s = self.timeout_ms / 1000
        while not connection.is_closed:
            idle_s = self._idle_s()
            if idle_s > timeout_s * 2 / 3:
                raise TimeoutError(f"no response for {idle_s:.1f} s")
            connection.ping()
            await connection.closed_within(timeout_s / 3)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _lose_session(self, reason: str) -> None:
        logger.warning("Lost the ZooKeeper session %#x: %s", self.session_id, reason)
        self.session_id, self._password = NO_SESSION, NO_PASSWORD
        self._last_heard = asyncio.get_running_loop().time()
        self.on_lost()

    # --------------------------------------------------------------------- called by the connection

    def heard(self, sent_at: float | None = None) -> None:
        self._last_heard = asyncio.get_running_loop().time() if sent_at is None else sent_at

    @property
    def last_zxid(self) -> int:
        """Highest zxid of any reply. All events up to it have been received."""
        return self._last_zxid

    def saw_zxid(self, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)


async def _nothing() -> None:
    return None


class _Connection(asyncio.Protocol):
    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._handshake: asyncio.Future[Connected] | None = None
        self._pending: deque[_Pending] = deque()
        self._auth: asyncio.Future[None] | None = None
        self._pinged_at = 0.0
        self._next_xid = 1
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def closed_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            pass

    async def handshake(self, connect: bytes) -> Connected:
        assert self._transport is not None
        self._handshake = self._loop.create_future()
        self._transport.write(jute.frame(connect))
        return await self._handshake

    async def authenticate(self, scheme: str, credentials: bytes) -> None:
        assert self._transport is not None
        self._auth = self._loop.create_future()
        body = jute.auth(scheme, credentials)
        self._transport.write(jute.frame(jute.request(jute.AUTH_XID, OpCode.AUTH, body)))
        await self._auth

    def send(self, code: OpCode, body: bytes = b"") -> asyncio.Future[Reply]:
        if self._transport is None or self.is_closed:
            raise ConnectionLoss
        xid, self._next_xid = self._next_xid, self._next_xid % 0x7FFF_FFFF + 1
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._pending.append(_Pending(xid, reply))
        self._transport.write(jute.frame(jute.request(xid, code, body)))
        return reply

    def ping(self) -> None:
        if self._transport is not None and not self.is_closed:
            self._pinged_at = self._loop.time()
            self._transport.write(jute.frame(jute.request(jute.PING_XID, OpCode.PING)))

    def close(self) -> None:
        if self.is_closed:
            return
        self._closed.set()
        if self._transport is not None:
            self._transport.abort()
        waiting: list[asyncio.Future[object]] = [
            each  # type: ignore[misc]
            for each in (self._handshake, self._auth, *(pending.reply for pending in self._pending))
            if each is not None
        ]
        self._pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLoss())
                future.exception()

    # ------------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        if self.is_closed:  # abandoned meanwhile
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        position = 0
        try:
            while len(self._received) - position >= 4:
                (size,) = _unpack_int(self._received, position)
                if not 0 <= size <= MAX_FRAME_BYTES:
                    raise ValueError(f"invalid frame size of {size} bytes")
                end = position + 4 + size
                if end > len(self._received):
                    break
                self._handle_frame(bytes(self._received[position + 4 : end]))
                position = end
        except (ValueError, struct.error) as error:
            logger.warning("ZooKeeper sent an invalid reply: %s", error)
            self.close()
        del self._received[:position]

    def _handle_frame(self, payload: bytes) -> None:
        if self.is_closed:
            return
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(jute.read_connected(payload))
            return
        header, position = jute.read_reply_header(payload)
        if header.xid == jute.PING_XID:
            self._session.heard(self._pinged_at)
        elif header.xid == jute.WATCH_XID:
            self._session.on_event(jute.read_event(payload, position), header.zxid)
        elif header.xid == jute.AUTH_XID:
            self._handle_auth(header)
        else:
            self._handle_reply(header, payload, position)

    def _handle_auth(self, header: ReplyHeader) -> None:
        if self._auth is None or self._auth.done():
            return
        if header.error:
            self._auth.set_exception(ZkError(header.error))
        else:
            self._auth.set_result(None)

    def _handle_reply(self, header: ReplyHeader, payload: bytes, position: int) -> None:
        if not self._pending or self._pending[0].xid != header.xid:
            raise ValueError(f"the reply to request {header.xid} is out of order")
        pending = self._pending.popleft()
        self._session.saw_zxid(header.zxid)
        if pending.reply.done():
            return
        if header.error:
            pending.reply.set_exception(ZkError(header.error))
        else:
            pending.reply.set_result(Reply(header.zxid, payload, position))
