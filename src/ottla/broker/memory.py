"""Memory budgets of connections: one for incoming requests, one for outgoing responses.

Requests (`RequestMemory`). A request that arrives whole in the shared buffer costs nothing. Charged
are the buffers of large frames and the frames that wait to be served. When the budget is used up,
  - a large frame that needs more waits, first come, first served, and its connection is not read;
  - one frame at a time may exceed the budget, so that there is always progress;
  - connections read in small portions, so that they keep little.
Therefore `used_bytes` <= `limit_bytes` + one frame + what was in the shared buffer when the budget
ran out, which is at most `NARROW_BYTES` per connection.

Responses (`ResponseMemory`). The responses that a client does not read stay in memory. When all
unsent responses together exceed the limit, the server closes the connections that have been stuck
for the longest time, until they do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.wire.frame import (
    MAX_ORDINARY_FRAME_BYTES,
    SIZE_BYTES,
    SMALL_FRAME_BYTES,
    FrameReader,
    check_frame_size,
)

SHARED_BYTES = (256 + 16) * 1024
"""Requests are often a batch of 64, 128 or 256 KB and a little more; this size splits none."""
PEEK_BYTES = 16 * 1024
NARROW_BYTES = 2 * SMALL_FRAME_BYTES
FIRST_BYTES = 64 * 1024
"""Size of the first buffer of a large frame, whatever size the frame claims."""
MAX_POOLED_BYTES = 4 * 1024 * 1024
"""Buffers up to this size are rounded to powers of two and reused."""
POOL_BYTES = 16 * 1024 * 1024


class MemoryWaiter(Protocol):
    reader: FrameReader

    def memory_granted(self) -> None: ...


class BufferPool:
    """Used buffers, whose pages are already mapped and need not be cleared again."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._size_bytes = 0
        self._used = False

    def has(self, capacity: int) -> bool:
        return bool(self._free.get(capacity))

    def acquire(self, capacity: int) -> bytearray:
        free = self._free.get(capacity)
        while free:
            buffer = free.pop()
            self._size_bytes -= capacity
            self._used = True
            if not _has_views(buffer):
                return buffer
        return bytearray(capacity)

    def release(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        if capacity > MAX_POOLED_BYTES or self._size_bytes + capacity > POOL_BYTES:
            return
        self._free.setdefault(capacity, []).append(buffer)
        self._size_bytes += capacity

    def shrink(self) -> None:
        """Drop all buffers if none was used since the last call. The sweep calls this."""
        if not self._used:
            self._free.clear()
            self._size_bytes = 0
        self._used = False


def _has_views(buffer: bytearray) -> bool:
    """Return whether a view of the buffer is still alive, because a handler kept one instead of
    copying. Python refuses to resize such a buffer, and we refuse to overwrite it."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


class RequestMemory:
    """The budget and the buffers for incoming requests."""

    def __init__(
        self,
        limit_bytes: int,
        max_frame_bytes: int,
        schedule: Callable[[Callable[[], None]], object],
    ) -> None:
        self.limit_bytes = limit_bytes
        self.max_frame_bytes = max_frame_bytes
        self.ordinary_frame_bytes = min(max_frame_bytes, MAX_ORDINARY_FRAME_BYTES)
        self.used_bytes = 0
        self.now = 0.0
        self.pool = BufferPool()
        self.waiting: deque[MemoryWaiter] = deque()
        self._overdrawn: FrameReader | None = None
        self._schedule = schedule
        self._scheduled = False
        writable = memoryview(bytearray(SHARED_BYTES))
        self.shared = writable.toreadonly()
        self._wide, self._wide_peek = writable, writable[:PEEK_BYTES]
        self._narrow = writable[:NARROW_BYTES]
        self.window, self.peek = self._wide, self._wide_peek

    def check(self, size: int, head: bytes) -> bool:
        check_frame_size(size, head, self.max_frame_bytes)
        return len(head) >= SIZE_BYTES + 2  # with the API key

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def take(self, owner: FrameReader, size_bytes: int) -> bool:
        if owner is not self._overdrawn and (self.waiting or not self._fits(size_bytes)):
            return False
        self._grant(owner, size_bytes)
        return True

    def release(self, owner: FrameReader, size_bytes: int) -> None:
        if owner is self._overdrawn:
            self._overdrawn = None
        self.charge(-size_bytes)

    def charge(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        if self.exhausted:
            self.window = self.peek = self._narrow
        else:
            self.window, self.peek = self._wide, self._wide_peek
        if size_bytes < 0:
            self._wake_soon()

    def wait(self, waiter: MemoryWaiter) -> None:
        """Queue a connection whose reader is starving; its `memory_granted` is called later."""
        self.waiting.append(waiter)

    def forget(self, waiter: MemoryWaiter) -> None:
        if waiter in self.waiting:
            self.waiting.remove(waiter)
            self._wake_soon()

    def capacity(self, total_bytes: int, filled_bytes: int) -> int:
        final = total_bytes
        if total_bytes <= MAX_POOLED_BYTES:
            final = _power_of_two(total_bytes)
            if self.pool.has(final):
                return final
        return min(final, _power_of_two(max(FIRST_BYTES, 2 * filled_bytes)))

    def take_buffer(self, capacity: int) -> bytearray:
        return self.pool.acquire(capacity)

    def give_buffer(self, buffer: bytearray) -> None:
        self.pool.release(buffer)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.limit_bytes or self._overdrawn is None

    def _grant(self, owner: FrameReader, size_bytes: int) -> None:
        self.charge(size_bytes)
        if self.used_bytes > self.limit_bytes and self._overdrawn is None:
            self._overdrawn = owner

    def _wake_soon(self) -> None:
        """Wake the waiters in the next loop iteration: the caller is processing its own frames."""
        if self.waiting and not self._scheduled:
            self._scheduled = True
            self._schedule(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        while self.waiting and self._fits(self.waiting[0].reader.bytes_refused):
            waiter = self.waiting.popleft()
            self._grant(waiter.reader, waiter.reader.bytes_refused)
            waiter.reader.granted()
            waiter.memory_granted()


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


class SlowClient(Protocol):
    """A connection with unsent responses."""

    def bytes_in_memory(self) -> int: ...

    def evict(self) -> None:
        """Close the connection at once, with everything that it has not sent."""


class ResponseMemory:
    """The budget for responses that clients have not read."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[SlowClient, int] = {}
        """Bytes held for each stuck connection; the one stuck longest comes first."""

    def set_held(self, client: SlowClient, size_bytes: int) -> None:
        """Set the bytes held for a connection; 0 when it is not stuck any more."""
        self.used_bytes += size_bytes - self._held.get(client, 0)
        if size_bytes:
            self._held[client] = size_bytes
        else:
            self._held.pop(client, None)
        if self.used_bytes > self.limit_bytes:
            self._evict()

    def _evict(self) -> None:
        for client in list(self._held):  # refresh: some of it may have been sent since
            size_bytes = client.bytes_in_memory()
            self.used_bytes += size_bytes - self._held[client]
            self._held[client] = size_bytes
        while self.used_bytes > self.limit_bytes and len(self._held) > 0:
            client = next(iter(self._held))
            self.used_bytes -= self._held.pop(client)
            client.evict()
