"""Zero-copy sending of a response whose records are still in files (sendfile).

The transport cannot do this, so the response is sent past it, on a duplicate of the socket's file
descriptor, which is closed when all is sent. The transport must have nothing to send meanwhile.

Records that were in the page cache when the response was built may be gone when a slow client reads
them. The event loop does not wait for the disk: a thread reads them, verifies them, since they now
come from the disk, and they are sent from memory."""

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
BYTES_PER_WAKEUP = 4 * BYTES_PER_CALL
"""Bytes sent before other connections get their chance."""
CACHED_FOR_S = 1.0
"""Time for which data that was found in the page cache is assumed to stay there."""
_MORE = getattr(socket, "MSG_MORE", 0)


class FileSender:
    """A response that is being sent, piece by piece."""

    def __init__(
        self,
        transport: asyncio.Transport,
        pieces: Iterable[Piece],
        *,
        on_end: Callable[[Exception | None], None],
        on_load: Callable[[], None],
        load: Callable[[Callable[[], bytes]], Coroutine[Any, Any, bytes]],
    ) -> None:
        """Prepare to send; `start` sends.

        Args:
            transport: The transport of the connection.
            pieces: The response: bytes and file ranges.
            on_end: Called once, in a later loop iteration, if `start` has not sent everything. Its
                argument is None, ConnectionError if the client has disconnected, OSError if the
                file cannot be read, or any other exception for a bug.
            on_load: Called when more of the response is in memory.
            load: Runs a function that reads from the disk in a thread.
        """
        self._pieces = deque(pieces)
        self._sent = 0
        """Bytes of the first piece that have been sent."""
        self._on_end = on_end
        self._on_load = on_load
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._cached_to, self._cached_until = 0, 0.0
        """How much of the first piece is in the page cache, and until when that is assumed."""
        self._loading: asyncio.Task[None] | None = None
        self._is_waiting = False
        self._socket = _duplicate(transport.get_extra_info("socket"))

    def start(self) -> bool:
        """Send what the socket takes now. Returns whether that was everything. Raises OSError like
        the argument of `on_end`."""
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
        """Stop sending; `on_end` will not be called."""
        if self._is_waiting:
            self._loop.remove_writer(self._socket)
            self._is_waiting = False
        if self._loading is not None:
            self._loading.cancel()
        self._socket.close()
        self._pieces.clear()
        self._sent = 0

    # ------------------------------------------------------------------------------- sending

    def _continue(self) -> None:
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
        """Send what the socket takes. Returns False if there is more; then the event loop or a
        finished load calls `_continue`."""
        left = BYTES_PER_WAKEUP
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
            self._loop.add_writer(self._socket, self._continue)
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
        self._loading = self._loop.create_task(self._load_and_continue(piece))

    async def _load_and_continue(self, piece: FileRange) -> None:
        try:
            data = await self._load(lambda: _read_verified(piece))
        except Exception as error:
            self._loading = None
            self._end(error)
            return
        self._loading = None
        self._pieces[0] = data
        self._on_load()
        self._continue()


def _read_verified(piece: FileRange) -> bytes:
    data = piece.read()
    if not holds_intact_batches(data):
        raise OSError("the data to be sent is damaged on disk")
    return data


def _duplicate(original: Any) -> socket.socket:
    descriptor = os.dup(original.fileno())
    return socket.socket(original.family, original.type, original.proto, fileno=descriptor)
