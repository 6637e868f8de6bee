"""Reusable memory for large responses.

A consumer that keeps up receives one response of several megabytes after another, and on many
machines allocating new memory costs more than receiving data into it. The last few buffers are
therefore kept. A buffer is reused only if no view of it exists any more. Not thread-safe.
"""

from __future__ import annotations

MAX_BUFFERS = 4
MAX_KEPT_BYTES = 32 * 1024 * 1024
_GRANULE = 256 * 1024
_MAX_WASTE = 4
"""Maximum ratio of a buffer's size to the requested size, apart from one granule."""


class ReceiveBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        """All buffers, including those in use; the most recently used one is the last."""

    def acquire(self, size: int) -> bytearray:
        """Return a buffer with at least `size` bytes and arbitrary contents."""
        for index, buffer in enumerate(self._kept):
            if size <= len(buffer) <= size * _MAX_WASTE + _GRANULE and _is_free(buffer):
                self._kept.append(self._kept.pop(index))
                return buffer
        buffer = bytearray(-(-size // _GRANULE) * _GRANULE)
        self._kept.append(buffer)
        while len(self._kept) > MAX_BUFFERS or sum(map(len, self._kept)) > MAX_KEPT_BYTES:
            del self._kept[0]
        return buffer


def _is_free(buffer: bytearray) -> bool:
    """Return whether no view of the buffer exists: only then can it be resized, as tried here."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
