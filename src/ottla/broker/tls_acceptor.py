"""Accepting connections to a TLS listener: admission first, then the handshake.

The event loop's own server does the handshake before it creates the connection. A client could then
hold any number of handshakes open that no limit counts."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from ottla.broker.connection import Connection, ConnectionOwner, HandshakeFailed
from ottla.core.security.principal import (
    ANONYMOUS,
    MappingRules,
    NoMatchingRule,
    Principal,
    distinguished_name,
)
from ottla.net.tls import alert_of

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 5.0
"""Time limit for a client to acknowledge the end of a TLS connection."""
ALERT_TIMEOUT_S = 1.0
"""Time limit for a client to close the connection after the alert of a failed handshake."""
DISCARDED_BYTES = 16 * 1024
MAX_DISCARDED_READS = 16
RETRY_ACCEPT_S = 1.0
ACCEPTS_PER_WAKEUP = 128

_NO_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_REASONS = {
    "HTTP_REQUEST": "the client does not use TLS",
    "WRONG_VERSION_NUMBER": "the client does not use TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client rejected the certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client rejected the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client rejected the certificate as expired",
    "UNSUPPORTED_PROTOCOL": "the client supports no enabled version of TLS",
    "NO_SHARED_CIPHER": "the client supports no enabled cipher suite",
}
"""Descriptions of OpenSSL's errors."""


class ListenerTls(Protocol):
    """The TLS settings of a listener, which may change while it runs."""

    def server(self, listener: str) -> ssl.SSLContext: ...

    def rules(self, listener: str) -> MappingRules: ...


class AcceptingServer(ConnectionOwner, Protocol):
    """The server of the accepted connections."""

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class TlsAcceptor:
    """A listening socket whose connections use TLS."""

    def __init__(
        self,
        server: AcceptingServer,
        listener: str,
        sock: socket.socket,
        backlog: int,
        tls: ListenerTls,
    ) -> None:
        """Start to accept connections.

        Args:
            server: The server of the connections.
            listener: Name of the listener.
            sock: The bound socket.
            backlog: Length of the accept queue.
            tls: The TLS settings.
        """
        self._server = server
        self._listener = listener
        self._socket = sock
        self._backlog = backlog
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        sock.listen(backlog)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_WAKEUP):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                logger.warning("cannot accept a connection on %s: %s", self._listener, error)
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(
                    RETRY_ACCEPT_S, self._loop.add_reader, self._socket, self._accept
                )
                return
            sock.setblocking(False)
            self._admit(sock, address[0], address[1])

    def _admit(self, sock: socket.socket, peer: str, port: int) -> None:
        connection = Connection(self._server, self._listener)
        connection.peer = peer
        if not self._server.admit(connection):
            sock.close()
            return
        handshake = TlsHandshake(self._server, connection, sock, f"{peer}:{port}", self._tls)
        connection.handshake = handshake
        if not self._server.must_wait(connection):
            handshake.start()


class TlsHandshake:
    """The handshake of one connection."""

    def __init__(
        self,
        server: AcceptingServer,
        connection: Connection,
        sock: socket.socket,
        address: str,
        tls: ListenerTls,
    ) -> None:
        self.address = address
        self._server = server
        self._connection = connection
        self._socket: socket.socket | None = sock
        self._tls = tls
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._server.spawn(self._run())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._give_up()

    async def _run(self) -> None:
        connection, sock = self._connection, self._socket
        assert sock is not None
        try:
            kept_open = sock.dup()
        except OSError as error:
            self._server.report_handshake_failure(connection, error.strerror or str(error))
            self._give_up()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._tls.server(connection.listener),
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:  # ssl.SSLError is one
            if not connection.is_ending:
                self._server.report_handshake_failure(connection, _reason(error))
                await _send_alert(kept_open, alert_of(error))
            self._give_up()
        except BaseException:
            self._give_up()
            raise
        finally:
            kept_open.close()
        self._socket = None

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._server.forget(self._connection)

    def principal(self, transport: asyncio.BaseTransport) -> Principal:
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        try:
            principal = self._tls.rules(self._connection.listener).principal_of(name)
        except NoMatchingRule:
            message = f"no rule of ssl.principal.mapping.rules matches {name}"
            raise HandshakeFailed(message) from None
        if principal == ANONYMOUS:
            raise HandshakeFailed(f"{name} maps to the name of clients without authentication")
        return principal


async def _send_alert(sock: socket.socket, alert: bytes) -> None:
    """Send the alert of a failed handshake, and wait until the client has closed the connection.

    If the socket were closed at once, bytes from the client would make the system reset the
    connection, and the client could lose the alert.
    """
    if not alert:
        return
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ALERT_TIMEOUT_S):
            await loop.sock_sendall(sock, alert)
            sock.shutdown(socket.SHUT_WR)
            for _ in range(MAX_DISCARDED_READS):
                if not await loop.sock_recv(sock, DISCARDED_BYTES):
                    break


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the client is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.replace("_", " ").lower())
    if isinstance(error, ConnectionAbortedError):
        return f"the handshake took longer than {HANDSHAKE_TIMEOUT_S:g} seconds"
    return "the client disconnected"
