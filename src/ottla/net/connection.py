"""One TCP connection to a broker: pipelined requests, responses in the order of the requests.

    opening   TCP and TLS handshakes, ApiVersions, SASL
    open      requests are sent at once; each waits for its response in `_waiting`
    renewing  the client authenticates again; further requests wait until it has
    closed    all waiting requests have failed with ConnectionLost; nothing is sent any more

A broker that limits the lifetime of sessions closes a connection whose client does not authenticate
again in time (KIP-368). The first request after most of that time has passed therefore waits, with
all later ones, until the requests before it have their responses and the client has authenticated.

A request that is not answered in time closes the connection, because all later requests wait for it
too, as in Kafka's own clients. The `records` of a response are views of a buffer that belongs to
this response alone: as long as a view exists, the buffer is not reused.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from errno import ECONNREFUSED
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ottla import __version__
from ottla.base.errors import ErrorCode
from ottla.base.ports import ReadableBuffer
from ottla.net.backpressure import write_pieces
from ottla.net.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnsupportedVersion,
)
from ottla.net.receive_buffers import ReceiveBuffers
from ottla.net.same_machine import disable_pacing
from ottla.wire import codec, rpc, schema
from ottla.wire.api import Api
from ottla.wire.codec import DecodeError
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.api_versions import ApiVersionsResponse

ResponseT = TypeVar("ResponseT")

MAX_FRAME_BYTES = 1 << 30
"""Maximum size of a response. A larger size means that the peer is not a Kafka broker."""
MAX_OPENING_FRAME_BYTES = 1 << 20
"""Maximum size of a response while the connection opens: the first bytes of other protocols (TLS)
look like sizes of many megabytes, for which no memory should be allocated."""
TLS_ALERT = b"\x15\x03"
"""Start of a TLS server's answer to a client that does not use TLS."""
RECEIVE_BYTES = 64 * 1024
SEND_HIGH_WATER_BYTES = 4 * 1024 * 1024
SOFTWARE_NAME = "ottla"

MAX_HELD_BYTES = SEND_HIGH_WATER_BYTES
"""Size of the requests that wait for an authentication, above which `can_write` is false."""
RENEWAL_WINDOW = (0.85, 0.95)
"""Share of a session's lifetime after which the client authenticates again, chosen at random, so
that the clients of a broker do not do it all at once."""
MIN_RENEWAL_INTERVAL_S = 1.0
"""Brokers refuse to authenticate a client more often than once a second."""
RENEWAL_TIMEOUT_S = 30.0

Authenticate = Callable[["Connection"], Awaitable[float]]
"""Function that authenticates a connection, and returns the lifetime of the session in seconds, or
0 if it is not limited."""

_SASL_APIS = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
_NEVER = float("inf")

_unpack_size = struct.Struct(">i").unpack_from


class VersionRange(NamedTuple):
    minimum: int
    maximum: int


class _Waiting(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    response: asyncio.Future[Any]
    """Gets the message that the codec decodes. `send` gives it the type of the response."""
    deadline: float


class _Renewal:
    """The requests that wait until the client has authenticated again."""

    def __init__(self, is_idle: asyncio.Future[None]) -> None:
        self.is_idle = is_idle
        """Done when the requests that were sent before have their responses."""
        self.task: asyncio.Task[None] | None = None
        self.waiting: list[_Waiting] = []
        self.pieces: list[Sequence[ReadableBuffer]] = []
        self.held_bytes = 0

    def hold(self, pieces: Sequence[ReadableBuffer]) -> None:
        self.pieces.append(pieces)
        self.held_bytes += sum(map(len, pieces))

    def set_idle(self) -> None:
        if not self.is_idle.done():
            self.is_idle.set_result(None)

    def end(self) -> None:
        """Stop to authenticate, because the connection is closed."""
        self.set_idle()
        self.pieces.clear()
        if self.task is not None and self.task is not asyncio.current_task(self.task.get_loop()):
            self.task.cancel()


class Connection(asyncio.BufferedProtocol):
    """A connection to a broker. Create it with `open`."""

    def __init__(self, name: str, client_id: str | None) -> None:
        self.name = name
        """Address as host:port, for messages."""
        self.api_versions: Mapping[int, VersionRange] = {}
        self.finalized_features: Mapping[str, int] = {}
        self.last_used = 0.0
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._waiting: deque[_Waiting] = deque()
        self._next_id = 0
        self._max_frame_bytes = MAX_OPENING_FRAME_BYTES
        self._closed_by: ClientError | None = None
        self._deadline_timer: asyncio.Handle | None = None
        self._deadline_at = 0.0
        """Time of the timer: uvloop's handles do not have it for timers that are due at once."""
        self._writable: asyncio.Future[None] | None = None
        self._authenticate: Authenticate | None = None
        self._renew_at = _NEVER
        """Time from which on the client must authenticate again before the next request."""
        self._renewal: _Renewal | None = None
        self._small = bytearray(RECEIVE_BYTES)
        self._small_view = memoryview(self._small)
        self._filled = 0
        self._buffers = ReceiveBuffers()
        self._large: memoryview | None = None
        """Buffer of a partly received response that does not fit into the small buffer."""

    # -------------------------------------------------------------------------------------- opening

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        timeout_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
        authenticate: Authenticate | None = None,
    ) -> Connection:
        """Connect, negotiate TLS, request the API versions, and authenticate.

        Args:
            host: The broker's host.
            port: The broker's port.
            client_id: The client id to send with each request.
            timeout_s: How long opening may take, in seconds.
            tls: The TLS context, or None for plain text.
            authenticate: Authenticates the connection, or None for no SASL.

        Raises:
            ConnectionLost: The broker cannot be reached, or closed the connection.
            KafkaTimeout: The connection was not ready within `timeout_s`.
            AuthenticationFailed: One side did not accept the other's credentials.
        """
        connection = cls(f"{host}:{port}", client_id)
        connection._is_tls = tls is not None
        loop = connection._loop
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: connection, host, port, ssl=tls)
                await connection._negotiate_versions(timeout_s)
                if authenticate is not None:
                    connection._authenticate = authenticate
                    await connection._start_session(authenticate)
                connection._max_frame_bytes = MAX_FRAME_BYTES
        except BaseException as error:
            waiting_for = connection._waiting_for()
            connection.close()
            if isinstance(error, asyncio.CancelledError):
                error.add_note(waiting_for)
            if isinstance(error, ClientError) or not isinstance(error, OSError):
                raise
            failure = _open_error(error, connection.name, timeout_s, waiting_for, tls)
            raise failure from error if isinstance(error, ssl.SSLError) else None
        return connection

    @property
    def certificate_expires_at(self) -> float | None:
        """Time when the broker's certificate expires, in seconds since 1970; None without TLS, or
        if the certificate is not verified."""
        transport = self._transport
        certificate = None if transport is None else transport.get_extra_info("peercert")
        return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None

    def _waiting_for(self) -> str:
        """Describe the step that has not been completed, for messages."""
        if self._transport is None:
            return f"cannot connect to {self.name} (no answer)"
        request = self._waiting[0].api.name if self._waiting else "the connection request"
        return f"{self.name} did not answer {request}"

    async def _negotiate_versions(self, timeout_s: float) -> None:
        """Send ApiVersions in the newest version known here.

        A broker that does not know that version answers in version 0 (KIP-511), and is asked again
        in version 0.
        """
        request = rpc.api_versions(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        newest = schema.versions(Api.API_VERSIONS)[-1]
        response = await self.send(request, newest, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self.send(request, 0, timeout_s)
        if response.error_code:
            raise ConnectionLost(f"{self.name} rejected ApiVersions: {response.error_code}")
        self.api_versions = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version)
            for entry in response.api_keys
        }
        self.finalized_features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }

    # ------------------------------------------------------------------------------------- requests

    def version_of(self, api: int, minimum: int = 0, maximum: int | None = None) -> int:
        """Return the newest version of an API that both sides support, within the given bounds.

        Raises:
            UnsupportedVersion: There is no such version.
        """
        theirs = self.api_versions.get(api)
        ours = schema.versions(api)
        if theirs is not None:
            version = min(ours[-1], theirs.maximum)
            if maximum is not None:
                version = min(version, maximum)
            if version >= max(ours[0], theirs.minimum, minimum):
                return version
        has = (
            "does not support it"
            if theirs is None
            else f"supports {theirs.minimum} to {theirs.maximum}"
        )
        raise UnsupportedVersion(
            f"{Api(api).name} version {max(ours[0], minimum)} or newer is required, but "
            f"{self.name} {has}"
        )

    async def request(
        self,
        request: Request[ResponseT],
        timeout_s: float,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send a request in the newest version that both sides support, and return the response.

        Args:
            request: The request, created with `ottla.wire.rpc`.
            timeout_s: How long to wait for the response, in seconds.
            min_version: The oldest version that can express the request.
            max_version: The newest version to use, or None for any.

        Raises:
            UnsupportedVersion: There is no such version.
            KafkaTimeout: The broker did not answer in time.
            ConnectionLost: The connection ended before the response.
        """
        version = self.version_of(request.api, min_version, max_version)
        response = self.send(request, version, timeout_s)
        try:
            return await response
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(f"{self.name} did not answer {request.api.name}")
            raise

    def send(
        self, request: Request[ResponseT], version: int, timeout_s: float
    ) -> asyncio.Future[ResponseT]:
        """Send a request at once.

        Args:
            request: The request, created with `ottla.wire.rpc`.
            version: The version of the request.
            timeout_s: How long to wait for the response, in seconds.

        Returns:
            A future with the response, or the error that closed the connection.

        Raises:
            ClientError: The connection is closed.
        """
        api, body = request
        correlation_id = self._write(api, version, body)
        response: asyncio.Future[ResponseT] = self._loop.create_future()
        deadline = self._loop.time() + timeout_s
        waiting = _Waiting(correlation_id, api, version, response, deadline)
        renewal = self._renewal
        if renewal is None or api in _SASL_APIS:
            self._waiting.append(waiting)
        else:
            renewal.waiting.append(waiting)
        timer = self._deadline_timer
        if timer is None or self._deadline_at > deadline:
            if timer is not None:
                timer.cancel()
            self._deadline_at = deadline
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)
        return response

    def send_without_response(self, request: Request[object], version: int) -> None:
        """Send a request that has no response, such as Produce with acks=0."""
        self._write(request.api, version, request.body)

    def _write(self, api: Api, version: int, body: Mapping[str, object]) -> int:
        if self._closed_by is not None or self._transport is None:
            raise self._closed_by or ConnectionLost(f"{self.name} is not connected")
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        pieces = codec.encode_request(api, version, correlation_id, self._client_id, body)
        self.last_used = now = self._loop.time()
        if now >= self._renew_at:
            self._renew_session()
        renewal = self._renewal
        if renewal is None or api in _SASL_APIS:
            write_pieces(self._transport, pieces)
        else:
            renewal.hold(pieces)
        return correlation_id

    async def drain(self) -> None:
        """Wait until the write buffer is below its high-water mark."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def _check_deadline(self) -> None:
        self._deadline_timer = None
        waiting = [*self._waiting, *(self._renewal.waiting if self._renewal is not None else ())]
        if not waiting:
            return
        first = min(waiting, key=attrgetter("deadline"))
        if first.deadline > self._loop.time():
            self._deadline_at = first.deadline
            self._deadline_timer = self._loop.call_at(first.deadline, self._check_deadline)
            return
        self.close(KafkaTimeout(f"{self.name} did not answer {first.api.name} in time"))

    # ------------------------------------------------------------------------------- the session

    async def _start_session(self, authenticate: Authenticate) -> None:
        """Authenticate, and plan when to do it again."""
        started_at = self._loop.time()
        lifetime_s = await authenticate(self)
        if lifetime_s > 0:
            planned_at = started_at + lifetime_s * random.uniform(*RENEWAL_WINDOW)
            self._renew_at = max(planned_at, self._loop.time() + MIN_RENEWAL_INTERVAL_S)

    def _renew_session(self) -> None:
        assert self._authenticate is not None
        self._renew_at = _NEVER
        self._renewal = _Renewal(self._loop.create_future())
        self._renewal.task = self._loop.create_task(self._renew(self._renewal, self._authenticate))

    async def _renew(self, renewal: _Renewal, authenticate: Authenticate) -> None:
        try:
            if self._waiting:
                await renewal.is_idle
            async with asyncio.timeout(RENEWAL_TIMEOUT_S):
                await self._start_session(authenticate)
        except TimeoutError:
            self.close(KafkaTimeout(f"{self.name} did not authenticate the client again in time"))
        except ClientError as error:
            self.close(error)
        except Exception as error:
            self.close(ConnectionLost(f"could not authenticate with {self.name} again: {error}"))
            raise
        if self._closed_by is not None or self._transport is None:
            return
        self._renewal = None
        self._waiting.extend(renewal.waiting)
        for pieces in renewal.pieces:
            write_pieces(self._transport, pieces)

    # ---------------------------------------------------------------------------------------- state

    @property
    def is_open(self) -> bool:
        return self._closed_by is None

    @property
    def can_write(self) -> bool:
        """Whether the connection is open and its write buffer is not full."""
        renewal = self._renewal
        is_full = renewal is not None and renewal.held_bytes > MAX_HELD_BYTES
        return self._closed_by is None and self._writable is None and not is_full

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + (0 if self._renewal is None else len(self._renewal.waiting))

    def close(self, error: ClientError | None = None) -> None:
        """Close the connection, and fail all waiting requests.

        Args:
            error: The error for the waiting requests; by default, ConnectionLost.
        """
        if self._closed_by is not None:
            return
        self._closed_by = error or ConnectionLost(f"the connection to {self.name} was closed")
        if self._transport is not None:
            self._transport.abort()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.resume_writing()
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            self._waiting.extend(renewal.waiting)
            renewal.end()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.response.done():
                waiting.response.set_exception(self._closed_by)
                waiting.response.exception()  # no asyncio warning if its caller has been cancelled

    # --------------------------------------------------------------------- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's, but have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SEND_HIGH_WATER_BYTES)
        disable_pacing(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and _rejects_certificate(error):
            # In TLS 1.3 the client's part of the handshake ends before the broker verifies it.
            self.close(_certificate_rejected(self.name, error))
            return
        reason = "" if error is None else f": {error}"
        self._ended_by_broker(reason)

    def eof_received(self) -> None:
        self._ended_by_broker()

    def _ended_by_broker(self, reason: str = "") -> None:
        error = ConnectionLost(f"{self._closed_by_broker()}{reason}")
        if self._renewal is not None and not self._waiting:
            # The broker's last response may have rejected the credentials. The task that waits for
            # it runs first, and closes the connection with that error.
            self._loop.call_soon(self.close, error)
        else:
            self.close(error)

    def _closed_by_broker(self) -> str:
        text = f"{self.name} closed the connection"
        if self._waiting:
            text += f" before it answered {self._waiting[0].api.name}"
        if not self.api_versions and not self._is_tls:
            text += " (if it is a TLS listener, set security.protocol to SSL or SASL_SSL)"
        elif not self.api_versions:
            text += " (it may require a client certificate that it trusts)"
        return text

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._filled :]
        return self._small_view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        try:
            if self._large is None:
                self._handle_small_frames()
            elif self._filled == len(self._large):
                frame, self._large, self._filled = self._large, None, 0
                self._handle_frame(frame.toreadonly())
        except DecodeError as error:
            self.close(ConnectionLost(f"{self.name} did not send a Kafka response: {error}"))

    def _handle_small_frames(self) -> None:
        """Process all complete frames, and move a larger one to a buffer of its own."""
        start, filled = 0, self._filled
        while filled - start >= 4:
            (size,) = _unpack_size(self._small, start)
            if not 4 <= size <= self._max_frame_bytes:
                if self._small[start : start + 2] == TLS_ALERT:
                    raise DecodeError("it uses TLS, set security.protocol to SSL or SASL_SSL")
                raise DecodeError(f"invalid frame size of {size} bytes")
            end = start + 4 + size
            if end > filled:
                if size + 4 > RECEIVE_BYTES:
                    here = filled - start - 4
                    self._large = memoryview(self._buffers.acquire(size))[:size]
                    self._large[:here] = self._small_view[start + 4 : filled]
                    self._filled = here
                    return
                break
            # Copied, because the small buffer is reused and the response may be kept.
            self._handle_frame(memoryview(bytes(self._small_view[start + 4 : end])))
            start = end
        if start:
            self._small[: filled - start] = self._small[start:filled]
        self._filled = filled - start

    def _handle_frame(self, frame: memoryview) -> None:
        if not self._waiting:
            raise DecodeError("a response without a request")
        waiting = self._waiting[0]
        if waiting.api == Api.API_VERSIONS and not self.api_versions:
            correlation_id, response = _decode_versions(waiting.version, frame)
        else:
            correlation_id, response = codec.decode_response(waiting.api, waiting.version, frame)
        if correlation_id != waiting.correlation_id:
            raise DecodeError("a response to another request")
        self._waiting.popleft()
        if not waiting.response.done():
            waiting.response.set_result(response)
        if self._renewal is not None and not self._waiting:
            self._renewal.set_idle()


def _open_error(
    error: OSError, name: str, timeout_s: float, waiting_for: str, tls: ssl.SSLContext | None
) -> ClientError:
    if isinstance(error, TimeoutError):
        return KafkaTimeout(f"{waiting_for} within {timeout_s:g} s")
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"the certificate of {name} is not trusted: {error.verify_message}"
        )
    if isinstance(error, ssl.SSLError) and _rejects_certificate(error):
        return _certificate_rejected(name, error)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if reason == "wrong version number":
            reason += "; the broker does not seem to use TLS on this port"
        return ConnectionLost(f"cannot connect to {name} (TLS handshake failed: {reason})")
    reason = _reason(error)
    if tls is not None and isinstance(error, ConnectionError) and error.errno != ECONNREFUSED:
        reason += " during the TLS handshake; does the broker use TLS on this port?"
    return ConnectionLost(f"cannot connect to {name} ({reason})")


def _rejects_certificate(error: ssl.SSLError) -> bool:
    """Return whether the broker did not accept the certificate of the client, or its lack."""
    reason = error.reason or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _certificate_rejected(name: str, error: ssl.SSLError) -> AuthenticationFailed:
    if "REQUIRED" in (error.reason or ""):
        return AuthenticationFailed(
            f"{name} requires a client certificate (ssl.certificate.location or "
            "ssl.keystore.location)"
        )
    alert = (error.reason or "").partition("ALERT_")[2].replace("_", " ").lower()
    return AuthenticationFailed(f"{name} rejected the client's certificate: {alert}")


def _reason(error: OSError) -> str:
    """Return the operating system's description; asyncio's messages quote calls and tuples."""
    if isinstance(error, socket.gaierror):
        return f"host name not resolved: {(error.strerror or 'unknown').lower()}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return "the connection was closed"
    return error.strerror or str(error) or type(error).__name__


def _decode_versions(version: int, frame: memoryview) -> tuple[int, ApiVersionsResponse]:
    """Decode an ApiVersions response: in the requested version, or in version 0 with error 35."""
    if len(frame) >= 6 and _unpack_short(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return codec.decode_response(Api.API_VERSIONS, version, frame)


_unpack_short = struct.Struct(">h").unpack_from
