"""Memory for large answers, used again.

A consumer that keeps up receives one answer of megabytes after another, and on many machines new
memory costs more than what is received into it. So the last few buffers are kept. Whoever keeps a
view of an answer keeps its buffer from being used: only one that nobody can look at is given out
again. Not for several threads."""

from __future__ import annotations

MAX_BUFFERS = 4
MAX_KEPT_BYTES = 32 * 1024 * 1024
_GRANULE = 256 * 1024
_MOST_WASTE = 4
"""A buffer is given out for no less than this part of what it holds."""


class ReceiveBuffers:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        """Those given out as well; the one that was given out last is the last."""

    def take(self, size: int) -> bytearray:
        """At least so many bytes, with anything in them."""
        for index, buffer in enumerate(self._kept):
            if size <= len(buffer) <= size * _MOST_WASTE + _GRANULE and _is_free(buffer):
                self._kept.append(self._kept.pop(index))
                return buffer
        buffer = bytearray(-(-size // _GRANULE) * _GRANULE)
        self._kept.append(buffer)
        while len(self._kept) > MAX_BUFFERS or sum(map(len, self._kept)) > MAX_KEPT_BYTES:
            del self._kept[0]
        return buffer


def _is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it: only then may its size change, by one byte and back."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
