"""Tests of memory budgets, the buffer pool, and the choice of connections to close."""

from __future__ import annotations

import struct

from ottla.broker.memory import (
    FIRST_BYTES,
    MAX_POOLED_BYTES,
    POOL_BYTES,
    BufferPool,
    RequestMemory,
    ResponseMemory,
)
from ottla.wire.frame import FrameReader

KIB = 1024


class Waiter:
    def __init__(self, memory: RequestMemory) -> None:
        self.reader = FrameReader(memory)
        self.grants = 0

    def memory_granted(self) -> None:
        self.grants += 1

    def receive(self, data: bytes) -> None:
        room = self.reader.room()
        room[: len(data)] = data
        del room
        self.reader.received(len(data))
        assert self.reader.next_frame() is None


def start_of_frame(size: int, arrived: int) -> bytes:
    return struct.pack(">ih", size, 0) + bytes(arrived - 6)


def make(limit_bytes: int) -> tuple[RequestMemory, list[object]]:
    scheduled: list[object] = []
    memory = RequestMemory(limit_bytes, 100 * KIB * KIB, scheduled.append)
    return memory, scheduled


def test_one_frame_may_exceed_the_budget_and_the_next_waits() -> None:
    memory, _ = make(100 * KIB)
    first, second = Waiter(memory), Waiter(memory)
    first.receive(start_of_frame(500 * KIB, 90 * KIB))
    assert memory.used_bytes > memory.limit_bytes
    assert not first.reader.bytes_refused
    second.receive(start_of_frame(500 * KIB, 5 * KIB))
    assert second.reader.bytes_refused


def test_waiters_are_served_first_come_first_served_and_not_in_the_callers_turn() -> None:
    memory, scheduled = make(100 * KIB)
    holder, *waiters = [Waiter(memory) for _ in range(4)]
    holder.receive(start_of_frame(500 * KIB, 90 * KIB))
    for waiter in waiters:
        waiter.receive(start_of_frame(60 * KIB, 5 * KIB))
        memory.wait(waiter)
    holder.reader.close()
    assert [waiter.grants for waiter in waiters] == [0, 0, 0]
    (wake,) = scheduled
    wake()  # type: ignore[operator]
    assert [waiter.grants for waiter in waiters] == [1, 1, 0]
    waiters[1].reader.close()  # close the connection that exceeds the budget
    scheduled[-1]()  # type: ignore[operator]
    assert [waiter.grants for waiter in waiters] == [1, 1, 1]


def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    memory, _ = make(100 * KIB)
    holder, waiting, newcomer = [Waiter(memory) for _ in range(3)]
    holder.receive(start_of_frame(500 * KIB, 90 * KIB))
    waiting.receive(start_of_frame(90 * KIB, 5 * KIB))
    memory.wait(waiting)
    holder.reader.close()
    newcomer.receive(start_of_frame(5 * KIB, 4 * KIB))
    assert newcomer.reader.bytes_refused


def test_one_that_goes_away_lets_the_next_in() -> None:
    memory, scheduled = make(100 * KIB)
    holder, gone, next_ = [Waiter(memory) for _ in range(3)]
    holder.receive(start_of_frame(500 * KIB, 90 * KIB))
    for waiter in (gone, next_):
        waiter.receive(start_of_frame(200 * KIB, 5 * KIB))
        memory.wait(waiter)
    holder.reader.close()
    memory.forget(gone)
    gone.reader.close()
    for wake in list(scheduled):
        wake()  # type: ignore[operator]
    assert (gone.grants, next_.grants) == (0, 1)


def test_the_first_buffer_is_small_and_a_used_one_may_be_as_large_as_the_frame() -> None:
    memory, _ = make(100 * KIB * KIB)
    assert memory.capacity(1_000_000, 10) == FIRST_BYTES
    assert memory.capacity(1_000_000, 50_000) == 131_072
    assert memory.capacity(10_000, 10) == 16_384
    assert memory.capacity(50_000_000, 49_000_000) == 50_000_000
    memory.give_buffer(bytearray(1 << 20))
    assert memory.capacity(1_000_000, 10) == 1 << 20


def test_a_buffer_is_used_again_unless_somebody_still_looks_at_it() -> None:
    pool = BufferPool()
    buffer = bytearray(65_536)
    pool.release(buffer)
    assert pool.acquire(65_536) is buffer
    kept = memoryview(buffer).toreadonly()[10:20]
    pool.release(buffer)
    assert pool.acquire(65_536) is not buffer
    assert len(kept) == 10


def test_the_pool_is_bounded_and_released_when_it_is_unused() -> None:
    pool = BufferPool()
    pool.release(bytearray(2 * MAX_POOLED_BYTES))
    assert not pool.has(2 * MAX_POOLED_BYTES)
    for _ in range(10):
        pool.release(bytearray(MAX_POOLED_BYTES))
    taken = 0
    while pool.has(MAX_POOLED_BYTES):
        pool.acquire(MAX_POOLED_BYTES)
        taken += 1
    assert taken == POOL_BYTES // MAX_POOLED_BYTES
    pool.release(bytearray(65_536))
    pool.shrink()
    assert pool.has(65_536)
    pool.shrink()
    assert not pool.has(65_536)


class SlowClient:
    def __init__(self, memory: ResponseMemory) -> None:
        self.memory = memory
        self.unsent = 0
        self.evicted = False

    def owe(self, size_bytes: int) -> None:
        self.unsent = size_bytes
        self.memory.set_held(self, size_bytes)

    def bytes_in_memory(self) -> int:
        return self.unsent

    def evict(self) -> None:
        self.evicted = True


def test_the_one_that_is_stuck_longest_goes_first() -> None:
    memory = ResponseMemory(100)
    oldest, second, newest = [SlowClient(memory) for _ in range(3)]
    oldest.owe(40)
    second.owe(40)
    newest.owe(50)
    assert [each.evicted for each in (oldest, second, newest)] == [True, False, False]
    assert memory.used_bytes == 90


def test_what_was_sent_meanwhile_is_not_held_against_anyone() -> None:
    memory = ResponseMemory(100)
    slow, other = SlowClient(memory), SlowClient(memory)
    slow.owe(90)
    slow.unsent = 10
    other.owe(60)
    assert not slow.evicted
    assert memory.used_bytes == 70
    slow.owe(0)
    other.owe(0)
    assert memory.used_bytes == 0
