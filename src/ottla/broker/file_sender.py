"""An answer whose records are still in their files: they go from there to the socket, uncopied.

The transport cannot do that, so the answer is sent past it, on a descriptor of our own, which lives
until all is sent; the transport must have nothing to send then. What was in memory when the answer
was made may be gone when a slow peer wants it. The loop does not wait for it: it is read in a
thread, verified because it comes from a disk now, and sent from there."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ottla.base.ports import FileRange, Piece, ReadableBuffer
from ottla.storage.scan import holds_intact_batches

BYTES_PER_CALL = 1_048_576
BYTES_PER_TURN = 4 * BYTES_PER_CALL
"""Then others have a turn."""
CACHED_FOR_S = 1.0
"""How long what was seen in memory is taken to be there."""
_MORE = getattr(socket, "MSG_MORE", 0)


class FileSender:
    def __init__(
        self,
        transport: asyncio.Transport,
        pieces: Iterable[Piece],
        *,
        on_end: Callable[[Exception | None], None],
        on_load: Callable[[], None],
        load: Callable[[Callable[[], bytes]], Coroutine[Any, Any, bytes]],
    ) -> None:
        """`on_end` is called once, in a later turn of the loop, if `start` has not sent everything:
        with what went wrong, ConnectionError if the peer has gone, OSError if it is the file;
        anything else is a fault of ours. `load` runs what waits for a disk in a thread; `on_load`
        is called when there is more in memory therefore."""
        self._pieces = deque(pieces)
        self._sent = 0
        """Of the first piece."""
        self._on_end = on_end
        self._on_load = on_load
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._cached_to, self._cached_until = 0, 0.0
        """How much of the first piece is in memory, and for how long it is taken to be there."""
        self._loading: asyncio.Task[None] | None = None
        self._is_waiting = False
        self._socket = _duplicate(transport.get_extra_info("socket"))

    def start(self) -> bool:
        """Whether everything is sent already. Raises OSError as `on_end` is told."""
        try:
            is_sent = self._send()
        except OSError:
            self.close()
            raise
        if is_sent:
            self.close()
        return is_sent

    def unsent_bytes(self) -> int:
        return sum(map(len, self._pieces)) - self._sent

    def bytes_in_memory(self) -> int:
        return sum(len(each) for each in self._pieces if isinstance(each, ReadableBuffer))

    def close(self) -> None:
        """Send no more; `on_end` is not called any more."""
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
            self._is_waiting = False
        if self._loading is not None:
            self._loading.cancel()
        self._socket.close()
        self._pieces.clear()
        self._sent = 0

    # ------------------------------------------------------------------------------- sending

    def _go_on(self) -> None:
        try:
            if not self._send():
                return
            failure = None
        except OSError as error:
            failure = error
        self._end(failure)

    def _end(self, error: Exception | None) -> None:
        self.close()
        self._on_end(error)

    def _send(self) -> bool:
        """Send what the socket takes. False if there is more; then somebody calls again."""
        left = BYTES_PER_TURN
        while self._pieces and left > 0:
            piece = self._pieces[0]
            wanted = min(len(piece) - self._sent, BYTES_PER_CALL)
            try:
                if isinstance(piece, ReadableBuffer):
                    count = self._send_bytes(piece)
                elif self._is_in_memory(piece, wanted):
                    count = piece.send(self._socket.fileno(), self._sent, wanted)
                else:
                    self._start_loading(piece)
                    return False
            except BlockingIOError:
                break
            left -= count
            self._sent += count
            if self._sent == len(piece):
                self._pieces.popleft()
                self._sent = self._cached_to = 0
            elif count < wanted:
                break
        if not self._pieces:
            return True
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._socket, self._go_on)
        return False

    def _send_bytes(self, piece: ReadableBuffer) -> int:
        flags = _MORE if len(self._pieces) > 1 else 0
        return self._socket.send(memoryview(piece)[self._sent :], flags)

    def _is_in_memory(self, piece: FileRange, length: int) -> bool:
        now, end = self._loop.time(), self._sent + length
        if end > self._cached_to or now > self._cached_until:
            if not piece.is_cached(self._sent, length):
                return False
            self._cached_to, self._cached_until = end, now + CACHED_FOR_S
        return True

    # ------------------------------------------------------------------------------- loading

    def _start_loading(self, piece: FileRange) -> None:
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
            self._is_waiting = False
        self._loading = self._loop.create_task(self._load_and_go_on(piece))

    async def _load_and_go_on(self, piece: FileRange) -> None:
        try:
            data = await self._load(lambda: _read_verified(piece))
        except Exception as error:
            self._loading = None
            self._end(error)
            return
        self._loading = None
        self._pieces[0] = data
        self._on_load()
        self._go_on()


def _read_verified(piece: FileRange) -> bytes:
    data = piece.read()
    if not holds_intact_batches(data):
        raise OSError("what it was being sent is damaged on disk")
    return data


def _duplicate(original: Any) -> socket.socket:
    descriptor = os.dup(original.fileno())
    return socket.socket(original.family, original.type, original.proto, fileno=descriptor)
