"""One client's connection: requests in, answers out in the order of the requests.

Requests are served while nothing stands against it. `_held_up` has a bit for each thing that does;
while any is set the socket is not read, and frames already received are kept:

    bit       set when                                          cleared when
    TURN      a wake-up has served `FRAMES_PER_TURN` requests   the loop comes round again
    WRITING   the peer does not read: unsent bytes pile up,     the socket has taken them
              in memory or in files
    TASK      a coroutine serves a request                      it is done
    PARKED    too many, or too large, answers wait for an       an answer has gone out
              earlier one, or a request must be alone
    MEMORY    a large frame waits for the request budget        the budget grants it
    ARRIVING  connections come faster than they may             its turn has come
    ENDING    the connection is being closed                    never

Answers that are ready in the wake-up that brought their requests go out in one write. Once a
request is parked (its handler gave a future, or a coroutine), its answer and those of all later
requests go through `_parked`, in order; whatever is complete at its front is written together,
after all that became complete in one round of the loop. Records that are still in their files go
out past the transport (file_sender.py); until they have, nothing else does.

There is no task, no timer and no buffer per connection: an idle one is this object, its reader and
its transport."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ottla.base.errors import KafkaError
from ottla.base.ports import Piece, ReadableBuffer
from ottla.broker.context import Body, RequestContext
from ottla.broker.file_sender import FileSender
from ottla.broker.known_produce import KnownProduce
from ottla.broker.router import ANSWERED_ALONE, RequestRefused, decode, encode
from ottla.net.backpressure import write_pieces
from ottla.net.same_machine import do_not_pace
from ottla.wire.codec import DecodeError
from ottla.wire.frame import FrameReader, FrameRefused

if TYPE_CHECKING:
    from ottla.broker.server import Server

FRAMES_PER_TURN = 128
"""A client that sends many requests at once must let the others have a turn."""
MAX_PARKED = 256
MAX_HELD_BYTES = 16 * 1024
"""Answers that are ready and cannot go out yet; above this no further request is served."""
HIGH_WATER_BYTES = 16 * 1024
"""Above this many unsent bytes, the kernel's buffer not counted, no further request is served."""
LOW_WATER_BYTES = 0

PRODUCE = 0

TURN = 1
WRITING = 2
TASK = 4
PARKED = 8
MEMORY = 16
ENDING = 32
ARRIVING = 64


class ParkedAnswer:
    """The place of an answer in the order; the callback of the future that will bring it."""

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
        """The connection waits for it."""
        self.pieces: list[Piece] | None = None
        self.held_bytes = 0

    @property
    def is_droppable(self) -> bool:
        """Nothing is lost if it never comes."""
        return self.pieces is None and self.context.api_key in ANSWERED_ALONE

    def __call__(self, future: asyncio.Future[Body | None]) -> None:
        self.future = None
        self.connection.answered(self, future)


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_held_bytes",
        "_held_up",
        "_known_produce",
        "_parked",
        "_sender",
        "_transport",
        "active",
        "flush_is_due",
        "last_active",
        "listener",
        "peer",
        "reader",
        "server",
        "unsent_seen",
    )

    def __init__(self, server: Server, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.peer = ""
        self.reader = FrameReader(server.request_memory)
        self._transport: asyncio.Transport | None = None
        self._held_up = 0
        self._known_produce: KnownProduce | None = None
        self._parked: deque[ParkedAnswer] | None = None
        self._held_bytes = 0
        self._sender: FileSender | None = None
        self.flush_is_due = False
        self.active = True
        """Something arrived since the server last looked."""
        self.last_active = 0.0
        self.unsent_seen = 0

    # ------------------------------------------------------------------------- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        address = stream.get_extra_info("peername")
        self.peer = address[0] if address else "unknown"
        if not self.server.admit(self):
            self._held_up = ENDING
            stream.abort()
            return
        stream.set_write_buffer_limits(HIGH_WATER_BYTES, LOW_WATER_BYTES)
        do_not_pace(stream)
        self._transport = stream
        if self.server.is_early(self):
            self._hold_up(ARRIVING)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        self.server.bytes_in += nbytes
        self.reader.received(nbytes)
        self._serve_frames()

    def pause_writing(self) -> None:
        self._hold_up(WRITING)
        self._account()

    def resume_writing(self) -> None:
        self.active = True
        self._held_up &= ~WRITING
        self._account()
        self.flush()
        self._go_on(0)  # unless that write made us pause again

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._held_up |= ENDING
        self.reader.close()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self.server.forget(self)
        parked, self._parked = self._parked, None
        for answer in parked or ():
            if answer.future is not None and (answer.is_droppable or not answer.is_task):
                answer.future.cancel()

    # ---------------------------------------------------------------------------- from the server

    @property
    def is_ending(self) -> bool:
        return bool(self._held_up & ENDING)

    @property
    def is_stuck(self) -> bool:
        """The peer does not take what we write."""
        return bool(self._held_up & WRITING)

    def unsent_bytes(self) -> int:
        if self._transport is None:
            return 0
        unsent = self._transport.get_write_buffer_size() + self._held_bytes
        return unsent + (0 if self._sender is None else self._sender.unsent_bytes())

    def bytes_in_memory(self) -> int:
        """Of answers that the peer has not taken."""
        if self._transport is None:
            return 0
        held = self._transport.get_write_buffer_size() + self._held_bytes
        return held + (0 if self._sender is None else self._sender.bytes_in_memory())

    def name(self) -> str:
        address = self._transport.get_extra_info("peername") if self._transport else None
        return f"{address[0]}:{address[1]}" if address else self.peer

    def finish(self) -> None:
        """Serve nothing more, and close when the answers still owed have gone out."""
        self._hold_up(ENDING)
        if all(each.is_droppable for each in self._parked or ()):
            self._close()

    def abort(self) -> None:
        self._held_up |= ENDING
        if self._transport is not None:
            self._transport.abort()

    def evict(self) -> None:
        self.server.report_abuse(
            self, f"it does not read its answers: {self.unsent_bytes()} bytes are unsent"
        )
        self.abort()

    def memory_granted(self) -> None:
        self._go_on(MEMORY)

    def arrived(self) -> None:
        self._go_on(ARRIVING)

    def next_turn(self) -> None:
        self._go_on(TURN)

    # ------------------------------------------------------------------------------------ serving

    def _hold_up(self, reason: int) -> None:
        if not self._held_up and self._transport is not None:
            self._transport.pause_reading()
        self._held_up |= reason

    def _go_on(self, reason: int) -> None:
        self._held_up &= ~reason
        if self._held_up:
            return
        if self._serve_frames() and self._transport is not None:
            self._transport.resume_reading()

    def _serve_frames(self) -> bool:
        """Whether more may be read."""
        ready: list[Piece] = []
        served = 0
        reader = self.reader
        try:
            while not self._held_up:
                frame = reader.next_frame()
                if frame is None:
                    break
                self._serve(frame, ready)
                served += 1
                if served == FRAMES_PER_TURN:
                    self._hold_up(TURN)
                    self.server.schedule(self.next_turn)
        except (FrameRefused, RequestRefused, DecodeError) as error:
            self._refuse(str(error), ready)
        except Exception as error:
            self._fail(error, ready)
        if ready:
            self._write(ready)
        if self._held_up:
            reader.suspend()
        elif reader.starving:
            self._hold_up(MEMORY)
            self.server.request_memory.wait(self)
        return not self._held_up

    def _serve(self, frame: memoryview, ready: list[Piece]) -> None:
        server = self.server
        known = self._known_produce
        if known is not None and not self._parked:
            answer = known.answer(frame)
            if answer is not None:
                server.requests += 1
                ready.append(answer)
                return
        route, context, position = server.router.open(frame, self)
        if route.alone and self._parked:
            self.reader.put_back(frame)
            self._hold_up(PARKED)
            return
        if route.is_coroutine and self.reader.frame_is_shared:
            frame = memoryview(bytes(frame))
        server.requests += 1
        request = decode(context, frame, position)
        response = route.handle(server.broker, context, request)
        if type(response) is dict:
            if context.api_key == PRODUCE and server.known_produce is not None:
                if known is None:
                    known = self._known_produce = server.known_produce()
                known.learn(frame, context, request, response)
            self._answer(context, response, ready)
        elif response is not None:
            self._park(context, response)

    def _answer(self, context: RequestContext, body: Body, ready: list[Piece]) -> None:
        pieces = encode(context, body)
        if self._parked:
            answer = ParkedAnswer(self, context, None, is_task=False)
            self._append_parked(answer)
            self._hold(answer, pieces)
            return
        ready += pieces
        if len(pieces) > 1:  # large: let the peer take it before we make the next
            self._write(ready)
            ready.clear()

    def _park(self, context: RequestContext, response: Any) -> None:
        is_task = not asyncio.isfuture(response)
        if is_task:
            response = self.server.spawn(response)
            self._hold_up(TASK)
        answer = ParkedAnswer(self, context, response, is_task)
        self._append_parked(answer)
        response.add_done_callback(answer)

    def _append_parked(self, answer: ParkedAnswer) -> None:
        if self._parked is None:
            self._parked = deque()
        self._parked.append(answer)
        if len(self._parked) >= MAX_PARKED:
            self._hold_up(PARKED)

    def _hold(self, answer: ParkedAnswer, pieces: list[Piece]) -> None:
        """Keep an answer that is ready until the earlier ones have gone out."""
        answer.pieces = pieces
        answer.held_bytes = sum(len(each) for each in pieces if isinstance(each, ReadableBuffer))
        self._held_bytes += answer.held_bytes
        if self._held_bytes > MAX_HELD_BYTES:
            self._hold_up(PARKED)
            self._account()

    def _account(self) -> None:
        """Tell the server what it holds for a peer that is slow, or that asked out of measure."""
        unsent = 0
        if self._held_up & WRITING or self._held_bytes > MAX_HELD_BYTES:
            unsent = self.bytes_in_memory()
        self.unsent_seen = unsent
        self.server.response_memory.hold(self, unsent)

    def answered(self, answer: ParkedAnswer, future: asyncio.Future[Body | None]) -> None:
        if self._transport is None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Exception):
                self.server.report_failure(self, error)
            return
        try:
            body = future.result()
            pieces = [] if body is None else encode(answer.context, body)
        except asyncio.CancelledError:
            self.abort()
            return
        except Exception as error:
            self._fail(error, [])
            return
        if self._held_up & WRITING or (self._parked and self._parked[0] is not answer):
            self._hold(answer, pieces)
        else:
            answer.pieces = pieces
        if not self.flush_is_due:
            self.flush_is_due = True
            self.server.flush_soon(self)
        if answer.is_task:
            self._go_on(TASK)

    def flush(self) -> None:
        """Write the parked answers whose turn has come."""
        self.flush_is_due = False
        parked = self._parked
        if not parked or self._held_up & WRITING or self._transport is None:
            return
        ready: list[Piece] = []
        was_held = self._held_bytes
        while parked and parked[0].pieces is not None:
            answer = parked.popleft()
            self._held_bytes -= answer.held_bytes
            ready += answer.pieces or ()
        if was_held > MAX_HELD_BYTES:
            self._account()
        if ready:
            self._write(ready)
        if self._held_up & PARKED:
            self._go_on(PARKED)
        if self._held_up & ENDING and not parked:
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
        elif all(isinstance(piece, ReadableBuffer) for piece in pieces):
            write_pieces(transport, cast("list[ReadableBuffer]", pieces))
        else:
            self._send_files(transport, pieces)

    def _send_files(self, transport: asyncio.Transport, pieces: list[Piece]) -> None:
        """A large answer is a frame's head and what follows it, so it never is a single piece."""
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
        self._hold_up(WRITING)

    def _file_sender(self, transport: asyncio.Transport, pieces: list[Piece]) -> FileSender | None:
        """None if nothing can be sent past the transport now: it has something to send itself, or
        is no socket's, or there is no descriptor left."""
        if transport.get_write_buffer_size() or not transport.get_extra_info("socket"):
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
            elif not isinstance(error, ConnectionError):  # else the peer has gone, as peers do
                self.server.report_closing(self, str(error))
            self.abort()
            return
        self.resume_writing()
        if self._held_up & ENDING and not self._parked:
            self._close()

    def _close(self) -> None:
        """When what is being sent is sent."""
        if self._transport is not None and self._sender is None:
            self._transport.close()

    def _refuse(self, reason: str, ready: list[Piece]) -> None:
        self.server.report_abuse(self, reason)
        self._end(ready)

    def _fail(self, error: Exception, ready: list[Piece]) -> None:
        """A KafkaError is a handler's way to say that it can only close the connection."""
        if isinstance(error, KafkaError):
            self.server.report_closing(self, error.message)
        else:
            self.server.report_failure(self, error)
        self._end(ready)

    def _end(self, ready: list[Piece]) -> None:
        """Send what is ready, and close: the client will come back on a new connection."""
        self._hold_up(ENDING)
        if self._transport is None:
            return
        if ready:
            self._write(ready)
            ready.clear()
        self._close()
        self.reader.close()
