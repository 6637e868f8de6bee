"""A client connection: requests in, responses out in the order of the requests.

The connection serves requests while no bit of `_paused` is set. While any is set, the socket is
not read and frames that were already received are kept:

    bit       set when                                          cleared when
    YIELDING  `FRAMES_PER_WAKEUP` requests were served at once  the next loop iteration begins
    WRITING   the client does not read: unsent bytes            the socket has taken them
              accumulate, in memory or in files
    TASK      a coroutine serves a request                      it is done
    PENDING   too many, or too large, responses wait for an     a response has been sent
              earlier one, or a request must be alone
    MEMORY    a large frame waits for the request budget        the budget grants it
    ARRIVING  connections arrive faster than allowed            the connection rate admits it
    THROTTLED the client is over a quota (KIP-219)              its throttle time has passed
    ENDING    the connection is being closed                    never

Responses that are ready in the same wake-up as their requests are sent in one write. Once a request
is pending (its handler returned a future or a coroutine), its response and those of all later
requests go through `_pending`, in order. Everything complete at the front of that queue is written
together, once per iteration of the event loop. Records that are still in files are sent past the
transport (file_sender.py); nothing else is sent until they are.

A connection to a TLS listener is admitted before its handshake (tls_acceptor.py), so that the
limits apply to clients that are not authenticated. Its transport exists after the handshake.

A connection has no task, timer or buffer of its own: an idle one consists of this object, its
reader and its transport."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from ottla.base.errors import KafkaError
from ottla.base.ports import Piece, ReadableBuffer
from ottla.broker.authorization import Access
from ottla.broker.context import Body, ClientAuthentication, RequestContext
from ottla.broker.file_sender import FileSender
from ottla.broker.memory import RequestMemory, ResponseMemory
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.quotas import (
    MIN_THROTTLE_S,
    ClientMeter,
    ClientQuotas,
    MeasuredCoroutine,
    RequestCharge,
)
from ottla.broker.router import (
    EXCLUSIVE_APIS,
    HandlerPorts,
    RequestRejected,
    Router,
    decode,
    encode,
)
from ottla.core.security.principal import ANONYMOUS, Principal
from ottla.net.backpressure import write_encrypted, write_pieces
from ottla.net.same_machine import disable_pacing
from ottla.wire.codec import DecodeError
from ottla.wire.frame import FrameReader, FrameRefused

FRAMES_PER_WAKEUP = 128
"""Requests of one client served at once before other connections get their chance."""
MAX_PENDING = 256
MAX_HELD_BYTES = 16 * 1024
"""Size of responses waiting for an earlier one, above which no further request is served."""
HIGH_WATER_BYTES = 16 * 1024
"""Unsent bytes, not counting the kernel's buffer, above which no further request is served."""
LOW_WATER_BYTES = 0

T = TypeVar("T")

YIELDING = 1
WRITING = 2
TASK = 4
PENDING = 8
MEMORY = 16
ENDING = 32
ARRIVING = 64
THROTTLED = 128


class ConnectionOwner(Protocol):
    """The server of a connection: shared state, limits and reports."""

    requests: int
    bytes_in: int
    bytes_out: int

    @property
    def broker(self) -> HandlerPorts: ...

    @property
    def router(self) -> Router: ...

    @property
    def produce_fast_path(self) -> Callable[[], ProduceFastPath] | None: ...

    @property
    def client_quotas(self) -> ClientQuotas | None: ...

    @property
    def request_memory(self) -> RequestMemory: ...

    @property
    def response_memory(self) -> ResponseMemory: ...

    def admit(self, connection: Connection) -> bool: ...

    def authentication(self, connection: Connection) -> Authentication | None: ...

    def access(self, connection: Connection) -> Access | None: ...

    def must_wait(self, connection: Connection) -> bool: ...

    def throttle(self, connection: Connection, until: float) -> None: ...

    def forget(self, connection: Connection) -> None: ...

    def report_abuse(self, connection: Connection, reason: str) -> None: ...

    def report_closing(self, connection: Connection, reason: str) -> None: ...

    def report_authentication(self, connection: Connection, *, is_repeated: bool) -> None: ...

    def report_failed_authentication(
        self, connection: Connection, reason: str, *, is_repeated: bool
    ) -> None: ...

    def report_expired_session(self) -> None: ...

    def report_failure(self, connection: Connection, error: Exception) -> None: ...

    def report_handshake_failure(self, connection: Connection, reason: str) -> None: ...

    def schedule(self, callback: Callable[[], None]) -> object: ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...

    def flush_soon(self, connection: Connection) -> None: ...


class Authentication(ClientAuthentication, Protocol):
    """The SASL dialogue of a connection (authentication.py)."""

    @property
    def deadline(self) -> float:
        """Monotonic time when the connection is closed; infinite for an authenticated client."""

    def begin(self) -> None:
        """Start the time limit for the authentication."""

    def admits(self, frame: memoryview, ready: list[Piece]) -> bool:
        """Return whether a frame is a request to be served; if not, it has been handled.

        Raises RequestRejected if the connection must be closed."""

    def timed_out(self) -> None:
        """Report that the deadline has passed."""


class Handshake(Protocol):
    """The TLS handshake of a connection."""

    @property
    def address(self) -> str:
        """Host and port of the client."""

    def start(self) -> None: ...

    def cancel(self) -> None: ...

    def principal(self, transport: asyncio.BaseTransport) -> Principal:
        """Return the principal of the client. Raises HandshakeFailed if it has none."""


class HandshakeFailed(Exception):
    """A TLS handshake has failed. The message is the reason, without a period."""


class PendingResponse:
    """The place of a response in the queue, and the callback of the future that completes it."""

    __slots__ = ("connection", "context", "future", "held_bytes", "is_task", "pieces")

    def __init__(
        self,
        connection: Connection,
        context: RequestContext,
        future: asyncio.Future[Body | None] | None,
        is_task: bool,
    ) -> None:
        self.connection = connection
        self.context = context
        self.future = future
        self.is_task = is_task
        """Whether it is a task, for which the connection waits."""
        self.pieces: list[Piece] | None = None
        self.held_bytes = 0

    @property
    def is_droppable(self) -> bool:
        """Whether the response can be abandoned: the request changes nothing and is not done."""
        return self.pieces is None and self.context.api_key in EXCLUSIVE_APIS

    def __call__(self, future: asyncio.Future[Body | None]) -> None:
        self.future = None
        self.connection.response_ready(self, future)


class Connection(asyncio.BufferedProtocol):
    """The protocol of one client connection."""

    __slots__ = (
        "_held_bytes",
        "_paused",
        "_produce_fast_path",
        "_pending",
        "_sender",
        "_transport",
        "access",
        "active",
        "authentication",
        "flush_is_due",
        "handshake",
        "last_active",
        "listener",
        "meter_memo",
        "peer",
        "principal",
        "reader",
        "server",
        "unsent_seen",
    )

    def __init__(self, server: ConnectionOwner, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.peer = ""
        self.principal = ANONYMOUS
        self.access: Access | None = None
        """Permissions of the principal; None if the broker has no authorizer."""
        self.handshake: Handshake | None = None
        """The TLS handshake, in progress or complete; None for plain text."""
        self.authentication: Authentication | None = None
        """Checks every frame, until the client is authenticated or while its session has a limited
        lifetime; None if any request is allowed."""
        self.meter_memo: tuple[object, str | None, ClientMeter | None] | None = None
        self.reader = FrameReader(server.request_memory)
        self._transport: asyncio.Transport | None = None
        self._paused = 0
        self._produce_fast_path: ProduceFastPath | None = None
        self._pending: deque[PendingResponse] | None = None
        self._held_bytes = 0
        self._sender: FileSender | None = None
        self.flush_is_due = False
        self.active = True
        """Whether the client has sent or read anything since the last sweep."""
        self.last_active = 0.0
        self.unsent_seen = 0

    # ------------------------------------------------------------------------- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        if self.handshake is not None:
            self._secured(stream, self.handshake)
            return
        address = stream.get_extra_info("peername")
        self.peer = address[0] if address else "unknown"
        if not self.server.admit(self):
            self._paused = ENDING
            stream.abort()
            return
        self._use_transport(stream)
        if self.server.must_wait(self):
            self._pause(ARRIVING)
        elif self.authentication is not None:
            self.authentication.begin()

    def _secured(self, stream: asyncio.Transport, handshake: Handshake) -> None:
        self._use_transport(stream)
        if self.authentication is not None:  # the certificate does not name the client
            self.authentication.begin()
        else:
            try:
                self._identify(handshake.principal(stream))
            except HandshakeFailed as error:
                self.server.report_handshake_failure(self, str(error))
                self._paused = ENDING
        if self.is_ending:
            stream.abort()

    def _use_transport(self, stream: asyncio.Transport) -> None:
        stream.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        disable_pacing(stream)
        self._transport = stream
        self.authentication = self.server.authentication(self)
        self._identify(ANONYMOUS)

    def _identify(self, principal: Principal) -> None:
        self.principal = principal
        self.meter_memo = None
        self.access = self.server.access(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        self.server.bytes_in += nbytes
        self.reader.received(nbytes)
        self._serve_frames()

    def pause_writing(self) -> None:
        self._pause(WRITING)
        self._account()

    def resume_writing(self) -> None:
        self.active = True
        self._paused &= ~WRITING
        self._account()
        self.flush()
        self._resume(0)  # unless the flush has paused writing again

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._paused |= ENDING
        self.reader.close()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self.server.forget(self)
        self.authentication = None
        pending_responses, self._pending = self._pending, None
        for pending in pending_responses or ():
            if pending.future is not None and (pending.is_droppable or not pending.is_task):
                pending.future.cancel()

    # ---------------------------------------------------------------------------- from the server

    @property
    def is_ending(self) -> bool:
        return bool(self._paused & ENDING)

    @property
    def is_stuck(self) -> bool:
        """Whether the client does not read its responses."""
        return bool(self._paused & WRITING)

    def unsent_bytes(self) -> int:
        if self._transport is None:
            return 0
        unsent = self._transport.get_write_buffer_size() + self._held_bytes
        return unsent + (0 if self._sender is None else self._sender.unsent_bytes())

    def bytes_in_memory(self) -> int:
        """Return the bytes in memory of responses that the client has not read."""
        if self._transport is None:
            return 0
        held = self._transport.get_write_buffer_size() + self._held_bytes
        return held + (0 if self._sender is None else self._sender.bytes_in_memory())

    def name(self) -> str:
        if self.handshake is not None:
            return self.handshake.address
        address = self._transport.get_extra_info("peername") if self._transport else None
        return f"{address[0]}:{address[1]}" if address else self.peer

    def finish(self) -> None:
        """Serve no further request, and close once the pending responses have been sent."""
        self._pause(ENDING)
        if self._transport is None and self.handshake is not None:
            self.handshake.cancel()
        if all(each.is_droppable for each in self._pending or ()):
            self._close()

    def abort(self) -> None:
        self._paused |= ENDING
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def evict(self) -> None:
        self.server.report_abuse(
            self, f"the client does not read its responses: {self.unsent_bytes()} bytes are unsent"
        )
        self.abort()

    def memory_granted(self) -> None:
        self._resume(MEMORY)

    def admitted(self) -> None:
        if self.handshake is not None:
            self.handshake.start()
        if self.authentication is not None:
            self.authentication.begin()
        self._resume(ARRIVING)

    @property
    def is_tls(self) -> bool:
        return self.handshake is not None

    @property
    def is_peer(self) -> bool:
        rule, access = self.server.broker.peer_rule, self.access
        if access is None:
            return rule.is_peer(self.listener, self.principal)
        return self.listener == rule.listener and access.acts_as_broker()

    def authenticated(self, principal: Principal, *, is_limited: bool) -> None:
        """Serve every request from now on.

        Args:
            principal: The client.
            is_limited: Whether the session has a limited lifetime, which is then checked.
        """
        self._identify(principal)
        self.reader.use_memory(self.server.request_memory)
        if not is_limited:
            self.authentication = None

    def yielded(self) -> None:
        self._resume(YIELDING)

    def throttle_ended(self) -> None:
        self._resume(THROTTLED)

    # ------------------------------------------------------------------------------------ serving

    def _pause(self, reason: int) -> None:
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused |= reason

    def _resume(self, reason: int) -> None:
        self._paused &= ~reason
        if self._paused:
            return
        if self._serve_frames() and self._transport is not None:
            self._transport.resume_reading()

    def _serve_frames(self) -> bool:
        """Serve the frames received so far. Returns whether the socket may be read again."""
        ready: list[Piece] = []
        served = 0
        reader = self.reader
        try:
            while not self._paused:
                frame = reader.next_frame()
                if frame is None:
                    break
                self._serve(frame, ready)
                served += 1
                if served == FRAMES_PER_WAKEUP:
                    self._pause(YIELDING)
                    self.server.schedule(self.yielded)
        except (FrameRefused, RequestRejected, DecodeError) as error:
            self._refuse(str(error), ready)
        except Exception as error:
            self._fail(error, ready)
        if ready:
            self._write(ready)
        if self._paused:
            reader.suspend()
        elif reader.bytes_refused:
            self._pause(MEMORY)
            self.server.request_memory.wait(self)
        return not self._paused

    def _serve(self, frame: memoryview, ready: list[Piece]) -> None:
        server = self.server
        if self.authentication is not None and not self.authentication.admits(frame, ready):
            return
        if server.client_quotas is not None:
            self._serve_charged(server.client_quotas.charge(self, frame), frame, ready)
            return
        fast_path = self._produce_fast_path
        if fast_path is not None and not self._pending:
            encoded = fast_path.try_append(frame)
            if encoded is not None:
                server.requests += 1
                ready.append(encoded)
                return
        self._handle(frame, ready, None)

    def _serve_charged(
        self, charge: RequestCharge | None, frame: memoryview, ready: list[Piece]
    ) -> None:
        """Serve a frame while there are client quotas."""
        fast_path = self._produce_fast_path
        is_free = charge is None or charge.allows_fast_path
        if fast_path is not None and is_free and not self._pending:
            encoded = fast_path.try_append(frame)
            if encoded is not None:
                self.server.requests += 1
                ready.append(encoded)
                return
        self._handle(frame, ready, charge)

    def _handle(self, frame: memoryview, ready: list[Piece], charge: RequestCharge | None) -> None:
        server = self.server
        route, context, position = server.router.open(frame, self)
        if route.is_exclusive and self._pending:
            self.reader.put_back(frame)
            self._pause(PENDING)
            return
        if route.is_coroutine and self.reader.frame_is_shared:
            frame = memoryview(bytes(frame))
        server.requests += 1
        if charge is not None:
            context.charge = charge
            self._throttle(charge)  # before later requests of the same wake-up
        request = decode(context, frame, position)
        response = route.handle(server.broker, context, request)
        if type(response) is dict:
            body: Any = response
            if route.has_fast_path and server.produce_fast_path is not None:
                if self._produce_fast_path is None:
                    self._produce_fast_path = server.produce_fast_path()
                self._produce_fast_path.learn(frame, context, request, body)
            if charge is not None:
                body = self._charged(charge, body)
            self._send_response(context, body, ready)
        elif response is not None:
            if charge is not None and charge.measures_time:
                monotonic = server.broker.clock.monotonic
                charge.end(monotonic())
                if not asyncio.isfuture(response):
                    response = MeasuredCoroutine(response, charge, monotonic)
            self._await_response(context, response)
        elif charge is not None:
            self._charged(charge, {})

    def _charged(self, charge: RequestCharge, body: Body) -> Body:
        """Return a response with its throttle time, and hold the connection for that time."""
        body = charge.throttled(body, self.server.broker.clock.monotonic())
        self._throttle(charge)
        return body

    def _throttle(self, charge: RequestCharge) -> None:
        if charge.until - self.server.broker.clock.monotonic() >= MIN_THROTTLE_S:
            self._pause(THROTTLED)
            self.server.throttle(self, charge.until)

    def _send_response(self, context: RequestContext, body: Body, ready: list[Piece]) -> None:
        pieces = encode(context, body)
        if self._pending:
            pending = PendingResponse(self, context, None, is_task=False)
            self._append_pending(pending)
            self._hold(pending, pieces)
            return
        ready += pieces
        if len(pieces) > 1:  # large: let the client read it before the next one is built
            self._write(ready)
            ready.clear()

    def _await_response(self, context: RequestContext, response: Any) -> None:
        is_task = not asyncio.isfuture(response)
        if is_task:
            response = self.server.spawn(response)
            self._pause(TASK)
        pending = PendingResponse(self, context, response, is_task)
        self._append_pending(pending)
        response.add_done_callback(pending)

    def respond_later(self, context: RequestContext, response: Coroutine[Any, Any, Any]) -> None:
        """Serve no other request until a coroutine is done, and send its result as response."""
        self._await_response(context, response)

    def _append_pending(self, pending: PendingResponse) -> None:
        if self._pending is None:
            self._pending = deque()
        self._pending.append(pending)
        if len(self._pending) >= MAX_PENDING:
            self._pause(PENDING)

    def _hold(self, pending: PendingResponse, pieces: list[Piece]) -> None:
        """Keep a finished response until the earlier ones have been sent."""
        pending.pieces = pieces
        pending.held_bytes = sum(len(each) for each in pieces if isinstance(each, ReadableBuffer))
        self._held_bytes += pending.held_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            self._pause(PENDING)
            self._account()

    def _account(self) -> None:
        """Report the memory held for a client that is slow, or whose responses are too large."""
        unsent = 0
        if self._paused & WRITING or self._held_bytes > MAX_HELD_BYTES:
            unsent = self.bytes_in_memory()
        self.unsent_seen = unsent
        self.server.response_memory.set_held(self, unsent)

    def response_ready(self, pending: PendingResponse, future: asyncio.Future[Body | None]) -> None:
        if self._transport is None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Exception):
                self.server.report_failure(self, error)
            return
        try:
            body = future.result()
            charge = pending.context.charge
            if charge is not None and body is not None:
                body = self._charged(charge, body)
            pieces = [] if body is None else encode(pending.context, body)
        except asyncio.CancelledError:
            self.abort()
            return
        except Exception as error:
            self._fail(error, [])
            return
        if self._paused & WRITING or (self._pending and self._pending[0] is not pending):
            self._hold(pending, pieces)
        else:
            pending.pieces = pieces
        if not self.flush_is_due:
            self.flush_is_due = True
            self.server.flush_soon(self)
        if pending.is_task:
            self._resume(TASK)

    def flush(self) -> None:
        """Write the pending responses that are complete and next in order."""
        self.flush_is_due = False
        pending = self._pending
        if not pending or self._paused & WRITING or self._transport is None:
            return
        ready: list[Piece] = []
        was_held = self._held_bytes
        while pending and pending[0].pieces is not None:
            first = pending.popleft()
            self._held_bytes -= first.held_bytes
            ready += first.pieces or ()
        if was_held > MAX_HELD_BYTES:
            self._account()
        if ready:
            self._write(ready)
        if self._paused & PENDING:
            self._resume(PENDING)
        if self._paused & ENDING and not pending:
            self._close()

    # ------------------------------------------------------------------------------------ writing

    def _write(self, pieces: list[Piece]) -> None:
        transport = self._transport
        if transport is None:
            return
        size = sum(map(len, pieces))
        self.server.bytes_out += size
        if len(pieces) == 1:
            transport.write(cast("ReadableBuffer", pieces[0]))
        elif size <= HIGH_WATER_BYTES:
            transport.write(b"".join(cast("list[ReadableBuffer]", pieces)))
        elif self.is_tls:
            write_encrypted(transport, cast("list[ReadableBuffer]", pieces))
        elif all(isinstance(piece, ReadableBuffer) for piece in pieces):
            write_pieces(transport, cast("list[ReadableBuffer]", pieces))
        else:
            self._send_files(transport, pieces)

    def _send_files(self, transport: asyncio.Transport, pieces: list[Piece]) -> None:
        """Send a response with records in files, past the transport where possible. Such a response
        has at least two pieces, the head of its frame and the rest."""
        try:
            sender = self._file_sender(transport, pieces)
            if sender is None:
                write_pieces(
                    transport,
                    [each if isinstance(each, ReadableBuffer) else each.read() for each in pieces],
                )
                return
            if sender.start():
                return
        except OSError as error:
            self._files_sent(error)
            return
        self._sender = sender
        self._pause(WRITING)

    def _file_sender(self, transport: asyncio.Transport, pieces: list[Piece]) -> FileSender | None:
        """Return a sender, or None if the response must go through the transport: the transport
        encrypts, has unsent data or no socket, or no file descriptor is left."""
        if self.is_tls or transport.get_write_buffer_size():
            return None
        if not transport.get_extra_info("socket"):
            return None
        with suppress(OSError):
            return FileSender(
                transport,
                pieces,
                on_end=self._files_sent,
                on_load=self._account,
                load=self.server.broker.run_blocking,
            )
        return None

    def _files_sent(self, error: Exception | None) -> None:
        self._sender = None
        if error is not None:
            if not isinstance(error, OSError):
                self.server.report_failure(self, error)
            elif not isinstance(error, ConnectionError):  # a disconnect is not worth a log line
                self.server.report_closing(self, str(error))
            self.abort()
            return
        self.resume_writing()
        if self._paused & ENDING and not self._pending:
            self._close()

    def _close(self) -> None:
        """Close the transport, unless files are still being sent; `_files_sent` closes it then."""
        if self._transport is not None and self._sender is None:
            self._transport.close()

    def _refuse(self, reason: str, ready: list[Piece]) -> None:
        self.server.report_abuse(self, reason)
        self._end(ready)

    def _fail(self, error: Exception, ready: list[Piece]) -> None:
        """Close the connection after an error. A handler raises KafkaError when closing is the only
        answer it has; anything else is a bug."""
        if isinstance(error, KafkaError):
            self.server.report_closing(self, error.message)
        else:
            self.server.report_failure(self, error)
        self._end(ready)

    def _end(self, ready: list[Piece]) -> None:
        """Send the responses that are ready, and close. The client will reconnect."""
        self._pause(ENDING)
        if self._transport is None:
            return
        if ready:
            self._write(ready)
            ready.clear()
        self._close()
        self.reader.close()
