"""One connection to a ZooKeeper server: frames, replies in the order of the requests, and SASL.

When a connection ends, requests without a reply fail with `ConnectionLoss`, and may or may not have
been carried out. `failure` is the reason, if another attempt would fail as well.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import deque
from typing import NamedTuple, Protocol, cast

from ottla.base.config.zookeeper_security import SASL, ZooKeeperCredentials
from ottla.base.errors import UserError
from ottla.metadata.zookeeper import jute
from ottla.metadata.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Error
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
_TLS_ALERT = b"\x15\x03"
"""Start of the answer of a server that expected TLS. As a frame's size it is too large."""

_unpack_int = struct.Struct(">i").unpack_from


class ConnectionLoss(ZkError):
    """The connection ended before the reply: the request may or may not have been carried out."""

    def __init__(self) -> None:
        super().__init__(ZkCode.CONNECTION_LOSS)


class SettingsRejected(UserError):
    """The client's settings do not fit the server. The message is one or two sentences."""


class Reply(NamedTuple):
    zxid: int
    payload: bytes
    position: int


class _Pending(NamedTuple):
    xid: int
    reply: asyncio.Future[Reply]


class Listener(Protocol):
    """The session that a connection belongs to."""

    def heard(self, sent_at: float) -> None:
        """Handle the reply to a ping."""

    def saw_zxid(self, zxid: int) -> None:
        """Handle the zxid of a reply."""

    def saw_event(self, event: WatchEvent, zxid: int) -> None:
        """Handle an event of a watch."""


class Connection(asyncio.Protocol):
    """The client's end of a connection.

    Args:
        listener: Receives what is not a reply to a request.
        address: Host and port of the server, for messages.
    """

    def __init__(self, listener: Listener, address: str) -> None:
        self._listener = listener
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._handshake: asyncio.Future[Connected] | None = None
        self._pending: deque[_Pending] = deque()
        self._auth: asyncio.Future[None] | None = None
        self._pinged_at = 0.0
        self._next_xid = 1
        self._closed = asyncio.Event()
        self._user: str | None = None
        self.failure: SettingsRejected | None = None

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
        if self.is_closed:
            raise ConnectionLoss
        self._transport.write(jute.frame(connect))
        return await self._handshake

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

    def close(self, failure: SettingsRejected | None = None) -> None:
        if self.is_closed:
            return
        self.failure = failure
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

    # -------------------------------------------------------------------------- authentication

    async def authenticate(self, credentials: ZooKeeperCredentials) -> None:
        """Prove to the server that this client knows a password.

        Raises:
            SettingsRejected: The server rejects the user, or does not support the scheme.
            ConnectionLoss: The connection ended.
        """
        self._user = credentials.user
        try:
            if credentials.scheme == SASL:
                await self._authenticate_with_sasl(credentials)
            else:
                await self._add_auth(credentials)
        except ConnectionLoss:
            raise self.failure or ConnectionLoss() from None
        except (ZkError, DigestMd5Error) as error:
            raise self._user_rejected(str(error)) from None

    def _user_rejected(self, reason: str) -> SettingsRejected:
        return SettingsRejected(
            f"ZooKeeper at {self._address} does not accept the user '{self._user}': {reason}. "
            "Check zookeeper.auth.user and zookeeper.auth.password."
        )

    async def _authenticate_with_sasl(self, credentials: ZooKeeperCredentials) -> None:
        client = DigestMd5Client(credentials.user, credentials.password)
        challenge = await self._sasl(b"")
        if not challenge:
            raise SettingsRejected(
                f"ZooKeeper at {self._address} does not offer SASL. Configure it there, or set "
                "zookeeper.auth.scheme=digest."
            )
        client.check(await self._sasl(client.respond(challenge)))

    async def _sasl(self, token: bytes) -> bytes:
        reply = await self.send(OpCode.SASL, jute.buffer(token))
        return jute.read_token(reply.payload, reply.position)

    async def _add_auth(self, credentials: ZooKeeperCredentials) -> None:
        assert self._transport is not None
        self._auth = self._loop.create_future()
        if self.is_closed:
            raise ConnectionLoss
        body = jute.auth("digest", f"{credentials.user}:{credentials.password}".encode())
        self._transport.write(jute.frame(jute.request(jute.AUTH_XID, OpCode.AUTH, body)))
        await self._auth

    # ------------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        if self.is_closed:  # abandoned meanwhile
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        # A TLS 1.3 server rejects a client's certificate after the client's handshake.
        self.close(tls_failure(error, self._address) if error is not None else None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.startswith(_TLS_ALERT):
            rejection = SettingsRejected(
                f"ZooKeeper expects TLS at {self._address}. Set zookeeper.ssl.client.enable=true, "
                "or the plain-text port in zookeeper.connect."
            )
            self.close(rejection)
            return
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
        if header.error == ZkCode.AUTHENTICATION_REQUIRED:
            self.close(self._authentication_required())
        elif header.xid == jute.PING_XID:
            self._listener.heard(self._pinged_at)
        elif header.xid == jute.WATCH_XID:
            self._listener.saw_event(jute.read_event(payload, position), header.zxid)
        elif header.xid == jute.AUTH_XID:
            self._handle_auth(header)
        else:
            self._handle_reply(header, payload, position)

    def _authentication_required(self) -> SettingsRejected:
        if self._user is not None:
            return self._user_rejected("authentication failed")
        return SettingsRejected(
            f"ZooKeeper at {self._address} requires authentication. Set zookeeper.auth.user and "
            "zookeeper.auth.password."
        )

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
        self._listener.saw_zxid(header.zxid)
        if pending.reply.done():
            return
        if header.error:
            pending.reply.set_exception(ZkError(header.error))
        else:
            pending.reply.set_result(Reply(header.zxid, payload, position))


def tls_failure(error: Exception, address: str) -> SettingsRejected | None:
    """Return why TLS could not be set up, or None if another attempt may succeed.

    Args:
        error: The error of a connection.
        address: Host and port of the server.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SettingsRejected(
            f"The certificate of ZooKeeper at {address} is not trusted: {error.verify_message}. "
            "Check zookeeper.ssl.truststore.location and the host name in zookeeper.connect."
        )
    if not isinstance(error, ssl.SSLError) or isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError
    ):
        return None
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:
        return SettingsRejected(
            f"ZooKeeper at {address} rejected the TLS connection: {reason}. Check the certificate "
            "in zookeeper.ssl.keystore.location."
        )
    return SettingsRejected(
        f"Cannot set up TLS with ZooKeeper at {address}: {reason}. Check that it is the port for "
        "TLS (secureClientPort)."
    )
