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

Settings that do not fit the ensemble, such as a wrong password, make `start` fail once every server
has rejected them. Later they are logged, and the session keeps trying: somebody may be changing the
ensemble's settings.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ottla.base.config.zookeeper_security import ZooKeeperCredentials
from ottla.base.errors import UserError
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.connection import (
    Connection,
    ConnectionLoss,
    Reply,
    SettingsRejected,
    tls_failure,
)
from ottla.metadata.zookeeper.jute import Connected, OpCode, WatchEvent, ZkCode, ZkError

logger = logging.getLogger(__name__)

CONNECT_ATTEMPT_S = 2.0
RETRY_PAUSE_S = 0.05
REJECTED_PAUSE_S = 1.0
"""Pause after every server has rejected the settings, which other attempts rarely change."""
NO_SESSION = 0
NO_PASSWORD = bytes(16)

TlsContext: TypeAlias = Callable[[], Awaitable[ssl.SSLContext]]
"""Returns the TLS context for the next connection. Raises UserError if its files are unusable."""


class SessionClosed(ZkError):
    def __init__(self) -> None:
        super().__init__(ZkCode.SESSION_EXPIRED)


class ZooKeeperSession:
    """A session with one of the servers of an ensemble.

    Args:
        servers: Hosts and ports of the servers.
        timeout_ms: The session timeout to request.
        tls: Source of the TLS contexts, or None for plain text.
        credentials: The user to authenticate as, or None.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout_ms: int,
        tls: TlsContext | None = None,
        credentials: ZooKeeperCredentials | None = None,
    ) -> None:
        self._servers = list(servers)
        random.shuffle(self._servers)
        self._wanted_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        """The session timeout that the ensemble granted."""
        self._tls = tls
        self._credentials = credentials
        self.session_id = NO_SESSION
        self._password = NO_PASSWORD
        self._last_zxid = 0
        self._last_heard = 0.0
        self._connection: Connection | None = None
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_prepared = False
        self._was_ready = False
        self._reported: set[str] = set()
        self._rejections: dict[tuple[str, int], SettingsRejected] = {}
        self.last_failure: str | None = None
        """Why the last attempt to connect failed, if it did."""
        self._closed = False
        self.on_event: Callable[[WatchEvent, int], None] = lambda event, zxid: None
        self.on_connected: Callable[[], Awaitable[None]] = _nothing
        self.on_lost: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------------ start and close

    async def start(self) -> None:
        """Connect and create a session. The caller must limit the time.

        Raises:
            SettingsRejected: Every server rejects the settings of this client.
        """
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
            self._rejections.pop((host, port), None)
            had_session, self._is_prepared = self.session_id != NO_SESSION, False
            try:
                await self._serve(host, port)
            except SettingsRejected as error:
                self._rejections[host, port] = error
                if not had_session and not self._is_prepared:
                    self.session_id, self._password = NO_SESSION, NO_PASSWORD  # nobody used it
                self._report(str(error), logging.WARNING)
            except (OSError, ZkError, ValueError, TimeoutError, struct.error) as error:
                reason = str(error) or ("no response" if isinstance(error, TimeoutError) else None)
                self._report(f"ZooKeeper {host}:{port}: {reason or type(error).__name__}")
            self._drop_connection()
            rejected = len(self._rejections) == len(self._servers)
            if rejected and not self._was_ready:
                self._reject_start(next(iter(self._rejections.values())))
                return
            if index % len(self._servers) == 0:
                pause_s = REJECTED_PAUSE_S if rejected else RETRY_PAUSE_S
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))

    def _reject_start(self, error: SettingsRejected) -> None:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()

    def _report(self, failure: str, level: int = logging.INFO) -> None:
        """Log each distinct failure once per outage, so that long outages do not fill the log."""
        self.last_failure = failure.rstrip(".")
        if failure not in self._reported and (self._was_ready or level == logging.INFO):
            logger.log(level, "%s", failure)
        self._reported.add(failure)

    def _idle_s(self) -> float:
        return asyncio.get_running_loop().time() - self._last_heard

    async def _serve(self, host: str, port: int) -> None:
        """Connect, and keep the connection until it ends.

        Raises:
            SettingsRejected: The server rejects the settings of this client.
        """
        connection = Connection(self, f"{host}:{port}")
        loop = asyncio.get_running_loop()
        tls = await self._tls_context()
        sent_at = loop.time()
        # Closed even if the server does not answer in time: a late answer would move the session to
        # a connection that has been abandoned.
        try:
            async with asyncio.timeout(CONNECT_ATTEMPT_S):
                await self._connect(connection, host, port, tls)
                granted = await self._handshake(connection)
            if granted.timeout_ms <= 0 or granted.session_id == NO_SESSION:
                self._lose_session("the ensemble reports that it has expired")
                return
            self.session_id, self._password = granted.session_id, granted.password
            self.timeout_ms = granted.timeout_ms
            if self._credentials is not None:
                # Before any other request, even a ping: servers that require authentication would
                # end the session.
                async with asyncio.timeout(CONNECT_ATTEMPT_S):
                    await connection.authenticate(self._credentials)
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
        except ConnectionLoss:
            if connection.failure is None:
                raise
        finally:
            connection.close()
        if connection.failure is not None:
            raise connection.failure

    async def _tls_context(self) -> ssl.SSLContext | None:
        try:
            return None if self._tls is None else await self._tls()
        except UserError as error:
            raise SettingsRejected(str(error)) from None

    async def _connect(
        self, connection: Connection, host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        if tls is None:
            await loop.create_connection(lambda: connection, host, port)
            return
        try:
            await loop.create_connection(lambda: connection, host, port, ssl=tls)
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            rejection = tls_failure(error, f"{host}:{port}")
            if rejection is not None:
                raise rejection from None
            raise ConnectionResetError(
                "the server closed the connection during the TLS handshake; check that it is the "
                "port for TLS (secureClientPort)"
            ) from None

    async def _handshake(self, connection: Connection) -> Connected:
        request = jute.connect_request(
            self._last_zxid, self._wanted_timeout_ms, self.session_id, self._password
        )
        try:
            return await connection.handshake(request)
        except ConnectionLoss:
            if connection.failure is not None:
                raise connection.failure from None
            hint = "" if self._tls is not None else ", or expects TLS (zookeeper.ssl.client.enable)"
            raise ConnectionResetError(
                f"the server closed the connection; perhaps it has no quorum yet{hint}"
            ) from None

    async def _prepare(self, connection: Connection) -> None:
        """Call `on_connected`. Runs beside the pings, because it may take long."""
        try:
            await self.on_connected()
        except SettingsRejected as error:
            connection.close(error)
            return
        except (ZkError, ValueError, struct.error) as error:
            if connection.failure is None:
                logger.warning("Closing an unusable ZooKeeper connection: %s", error)
            connection.close()
            return
        ready, self._ready = self._ready, None
        self._is_prepared = self._was_ready = True
        self.last_failure = None
        self._reported.clear()
        if ready is not None and not ready.done():
            ready.set_result(None)

    async def _keep_alive(self, connection: Connection) -> None:
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

    def heard(self, sent_at: float) -> None:
        self._last_heard = sent_at

    def saw_event(self, event: WatchEvent, zxid: int) -> None:
        self.on_event(event, zxid)

    @property
    def last_zxid(self) -> int:
        """Highest zxid of any reply. All events up to it have been received."""
        return self._last_zxid

    def saw_zxid(self, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)


async def _nothing() -> None:
    return None
