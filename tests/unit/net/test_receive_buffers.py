from __future__ import annotations

from ottla.net.receive_buffers import MAX_BUFFERS, MAX_KEPT_BYTES, ReceiveBuffers

MEGABYTE = 1024 * 1024


def test_a_buffer_is_reused_once_no_view_is_left() -> None:
    buffers = ReceiveBuffers()
    first = buffers.acquire(MEGABYTE)
    view = memoryview(first)[10:20].toreadonly()
    assert buffers.acquire(MEGABYTE) is not first
    del view
    assert buffers.acquire(MEGABYTE - 5) is first
    assert len(first) >= MEGABYTE


def test_a_view_of_a_view_keeps_its_buffer() -> None:
    buffers = ReceiveBuffers()
    first = buffers.acquire(MEGABYTE)
    inner = memoryview(memoryview(first)[: MEGABYTE // 2].toreadonly())[5:10]
    assert all(buffers.acquire(MEGABYTE) is not first for _ in range(2 * MAX_BUFFERS))
    assert bytes(inner) == bytes(5)


def test_a_small_answer_does_not_hold_a_large_buffer() -> None:
    buffers = ReceiveBuffers()
    large = buffers.acquire(16 * MEGABYTE)
    assert buffers.acquire(MEGABYTE) is not large
    assert buffers.acquire(8 * MEGABYTE) is large


def test_what_is_kept_is_bounded() -> None:
    buffers = ReceiveBuffers()
    taken = [memoryview(buffers.acquire(12 * MEGABYTE)) for _ in range(5)]
    assert len(taken) == 5
    assert sum(map(len, buffers._kept)) <= MAX_KEPT_BYTES
    huge = buffers.acquire(MAX_KEPT_BYTES + 1)
    assert len(huge) > MAX_KEPT_BYTES
    assert not buffers._kept
