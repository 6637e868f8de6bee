"""Splitting a byte stream into frames: a four-byte size, then that many bytes of one request.

A reader consumes bytes and returns frames; it does not know about sockets. The caller repeats

    buffer = reader.room()        where the next bytes go; never empty
    reader.received(count)        this many bytes were written there
    while reader.next_frame(): …  views of complete frames, without their size
    reader.suspend()              only if the caller stops before `next_frame` returned None

Between two rounds, a reader is in one of these states:

    state      the reader holds                            the next bytes go
    idle       nothing                                     to the shared buffer
    rest       the start of a frame of at most 4 KB        to the shared buffer, after a copy of it
    large      its own buffer, partly filled               to the unfilled part
    starving   the start of a larger frame for which       nowhere: do not call `room` before
               memory was refused                          `granted` is called
    suspended  frames that were not requested yet          nowhere: request the frames first

Invariants. All readers share one buffer. It holds the bytes of one reader only between `room` and
the point where `next_frame` returns None or `suspend` is called, without interruption. A frame that
lies in the shared buffer (`frame_is_shared`) is invalid after that; any other frame stays valid
until the next call of `next_frame`. A claimed size does not reserve memory: a large buffer is at
most twice as large as what has actually arrived, and every byte of it is charged to the budget of
`FrameMemory`. Outside the budget, a reader holds at most 4 KB.
"""

from __future__ import annotations

import struct
from typing import NoReturn, Protocol

from ottla.wire.api import Api

SIZE_BYTES = 4
MIN_FRAME_BYTES = 8
"""Size of the API key, the version and the correlation ID; every request has these."""
MAX_ORDINARY_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum size of a request other than Produce. Only Produce carries records."""
SMALL_FRAME_BYTES = 4096

_unpack_size = struct.Struct(">i").unpack_from
_unpack_api_key = struct.Struct(">h").unpack_from

_PROTOCOLS: tuple[tuple[bytes, str], ...] = (
    (b"\x16\x03", "a TLS client"),
    *(
        (method, "an HTTP client")
        for method in (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC")
    ),
    (b"PRI ", "an HTTP/2 client"),
    (b"SSH-", "an SSH client"),
)


class FrameRefused(Exception):
    """The peer sent bytes that cannot be a frame. The message is meant for the broker's log."""


def identify_protocol(head: bytes) -> str | None:
    """Return the kind of client that sent these bytes, if it speaks another well-known protocol."""
    return next((name for start, name in _PROTOCOLS if head.startswith(start)), None)


def check_frame_size(size: int, head: bytes, max_frame_bytes: int) -> None:
    """Check the size that a frame claims.

    Args:
        size: The claimed size.
        head: The first bytes of the frame, including the size. If they include the API key, the
            limit for requests other than Produce is checked as well.
        max_frame_bytes: Value of socket.request.max.bytes.

    Raises:
        FrameRefused: No valid frame has this size.
    """
    if MIN_FRAME_BYTES <= size <= max_frame_bytes:
        if size <= MAX_ORDINARY_FRAME_BYTES or len(head) < SIZE_BYTES + 2:
            return
        (api_key,) = _unpack_api_key(head, SIZE_BYTES)
        if api_key == Api.PRODUCE:
            return
        raise FrameRefused(
            f"a request of API {api_key} claims {size} bytes; the limit for every API except "
            f"Produce is {MAX_ORDINARY_FRAME_BYTES} bytes"
        )
    _refuse(size, head, f"socket.request.max.bytes is {max_frame_bytes}")


def check_stranger(size: int, head: bytes, min_frame_bytes: int, max_frame_bytes: int) -> None:
    """Check the size that a frame of a client claims that is not authenticated.

    Args:
        size: The claimed size.
        head: The first bytes of the frame, including the size.
        min_frame_bytes: Minimum size.
        max_frame_bytes: Value of sasl.server.max.receive.size.

    Raises:
        FrameRefused: No valid frame has this size.
    """
    if not min_frame_bytes <= size <= max_frame_bytes:
        _refuse(
            size,
            head,
            f"sasl.server.max.receive.size is {max_frame_bytes}, and the client is not "
            "authenticated",
        )


def _refuse(size: int, head: bytes, limit: str) -> NoReturn:
    stranger = identify_protocol(head)
    if stranger is not None:
        raise FrameRefused(
            f"{stranger} connected to a port that expects the plaintext Kafka protocol"
        )
    if size < MIN_FRAME_BYTES:
        raise FrameRefused(f"a frame claims {size} bytes; a valid request is longer")
    raise FrameRefused(f"a frame claims {size} bytes; {limit}")


class FrameMemory(Protocol):
    """Memory that all readers of a server share."""

    @property
    def ordinary_frame_bytes(self) -> int:
        """Maximum size of a frame that needs no `check`."""

    @property
    def now(self) -> float: ...

    @property
    def shared(self) -> memoryview:
        """The shared buffer, for reading frames."""

    @property
    def window(self) -> memoryview:
        """Writable part of the shared buffer."""

    @property
    def peek(self) -> memoryview:
        """Shorter `window` for reads after a large frame, because the start of the next is
        copied."""

    def check(self, size: int, head: bytes) -> bool:
        """Check an unusual size that a frame claims. Return False if more of `head`, the first
        eight bytes or fewer, is needed. Raise FrameRefused if no valid frame has this size."""

    def take(self, owner: FrameReader, size_bytes: int) -> bool:
        """Charge the budget for a large frame. Return False if the budget is used up."""

    def release(self, owner: FrameReader, size_bytes: int) -> None:
        """Return the total charge for a large frame to the budget."""

    def charge(self, size_bytes: int) -> None:
        """Charge the budget for bytes that have already arrived; negative to undo that."""

    def capacity(self, total_bytes: int, filled_bytes: int) -> int:
        """Return the size of the buffer to allocate now for a frame that has partly arrived."""

    def take_buffer(self, capacity: int) -> bytearray: ...

    def give_buffer(self, buffer: bytearray) -> None: ...


class FrameReader:
    """Reader that splits the byte stream of one connection into frames."""

    __slots__ = (
        "_after_large",
        "_charged_bytes",
        "_end",
        "_filled",
        "_kept_bytes",
        "_large",
        "_memory",
        "_position",
        "_rest",
        "_total",
        "_view",
        "frame_is_shared",
        "large_since",
        "bytes_refused",
    )

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self._view: memoryview | None = None
        """The bytes being split, from `_position` to `_end`."""
        self._position = 0
        self._end = 0
        self._rest = b""
        self._kept_bytes = 0
        """Bytes charged to the budget for a copy to which `_view` refers."""
        self._large: bytearray | None = None
        self._charged_bytes = 0
        """Bytes charged to the budget for `_large`, which may still have to grow to that size."""
        self._filled = 0
        self._total = 0
        self._after_large = False
        self.frame_is_shared = False
        self.bytes_refused = 0
        """Bytes that the budget refused; while it is not 0, `room` must not be called."""
        self.large_since = 0.0

    @property
    def holds_large_frame(self) -> bool:
        return self._large is not None

    def room(self) -> memoryview:
        """Return the buffer for the next bytes."""
        large = self._large
        if large is not None:
            if self._filled == len(large):  # deferred until no view of the buffer exists
                large.extend(bytes(self._charged_bytes - self._filled))
            return memoryview(large)[self._filled : self._total]
        memory = self._memory
        rest = self._rest
        window = memory.peek if self._after_large else memory.window
        if not rest:
            return window
        length = len(rest)
        window[:length] = rest
        return window[length:]

    def received(self, count: int) -> None:
        """Record that `count` bytes were written to the buffer from `room`."""
        if self._large is None:
            self._view = self._memory.shared
            self._position = 0
            self._end = len(self._rest) + count
            self._rest = b""
            self.frame_is_shared = True
            return
        self._filled += count
        if self._filled == self._total:
            self._view = memoryview(self._large).toreadonly()
            self._position = 0
            self._end = self._total
        elif self._filled == len(self._large):
            self._take(self._memory.capacity(self._total, self._filled) - self._filled)

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size.

        Returns None if there is no complete frame; the rest is kept for later.

        Raises:
            FrameRefused: The next bytes cannot be a frame.
        """
        view = self._view
        if view is None:
            return None
        position = self._position
        end = self._end
        if position == end and self.frame_is_shared:  # the usual case: nothing to clean up
            self._view = None
            return None
        start = position + SIZE_BYTES
        total = 0
        if start <= end:
            (size,) = _unpack_size(view, position)
            if MIN_FRAME_BYTES <= size <= self._memory.ordinary_frame_bytes or self._check(size):
                stop = start + size
                if stop <= end:
                    self._position = stop
                    return view[start:stop]
                total = size + SIZE_BYTES
        self._keep_rest(total)
        return None

    def _check(self, size: int) -> bool:
        """Check a claimed size. Return False if that requires an API key that has not arrived."""
        assert self._view is not None
        head = bytes(self._view[self._position : min(self._end, self._position + 8)])
        return self._memory.check(size, head)

    def use_memory(self, memory: FrameMemory) -> None:
        """Use another memory, which must have the same shared buffer and the same budget."""
        self._memory = memory

    def put_back(self, frame: memoryview) -> None:
        """Undo the last `next_frame`, which returned `frame`."""
        self._position -= len(frame) + SIZE_BYTES

    def suspend(self) -> None:
        """Copy the frames that were not requested out of the shared buffer."""
        if self._view is None or not self.frame_is_shared:
            return
        self._keep(bytes(self._view[self._position : self._end]))

    def granted(self) -> None:
        """Continue after the budget has granted and charged the bytes that were refused."""
        self._charged_bytes += self.bytes_refused
        self.bytes_refused = 0
        if self._large is None and self._view is not None:
            self._begin_large(self._view[self._position : self._end])
            self._forget_view()

    def close(self) -> None:
        """Release all memory."""
        if self._large is not None:
            self._end_large(self._large)
        self._forget_view()
        self._rest = b""
        self.bytes_refused = 0

    # -------------------------------------------------------------------------- transitions

    def _keep_rest(self, total: int) -> None:
        """Keep an incomplete frame. The next state is idle, rest, large or starving."""
        view = self._view
        assert view is not None
        if self._large is not None:
            self._end_large(self._large)
            self._view = None
            self._after_large = self._total > len(self._memory.shared)
            return
        left = view[self._position : self._end]
        self._after_large = total > len(self._memory.shared)
        if total <= SMALL_FRAME_BYTES:
            self._rest = bytes(left)
        else:
            self._total = total
            self._take(self._memory.capacity(total, len(left)))
            if self.bytes_refused:
                self.suspend()
                return
            self._begin_large(left)
        self._forget_view()

    def _take(self, size_bytes: int) -> None:
        if self._memory.take(self, size_bytes):
            self._charged_bytes += size_bytes
        else:
            self.bytes_refused = size_bytes

    def _begin_large(self, start: memoryview) -> None:
        buffer = self._memory.take_buffer(self._charged_bytes)
        self._filled = len(start)
        buffer[: self._filled] = start
        self._large = buffer
        self.frame_is_shared = False
        self.large_since = self._memory.now

    def _end_large(self, buffer: bytearray) -> None:
        self._large = None
        self._memory.release(self, self._charged_bytes)
        self._charged_bytes = 0
        self._memory.give_buffer(buffer)

    def _keep(self, copy: bytes) -> None:
        self._view = memoryview(copy)
        self._position = 0
        self._end = len(copy)
        self._kept_bytes = len(copy)
        self._memory.charge(len(copy))
        self.frame_is_shared = False

    def _forget_view(self) -> None:
        self._view = None
        if self._kept_bytes:
            self._memory.charge(-self._kept_bytes)
            self._kept_bytes = 0
