"""Splitting bytes into frames, without a socket."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.memory import SHARED_BYTES, RequestMemory
from ottla.wire.frame import (
    MAX_ORDINARY_FRAME_BYTES,
    MIN_FRAME_BYTES,
    SMALL_FRAME_BYTES,
    FrameReader,
    FrameRefused,
    check_frame_size,
    identify_protocol,
)

MIB = 1024 * 1024


def memory_of(limit_bytes: int = 64 * MIB, max_frame_bytes: int = 100 * MIB) -> RequestMemory:
    return RequestMemory(limit_bytes, max_frame_bytes, lambda wake: wake())


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Feed the bytes to the reader as a transport would, and return the complete frames."""
    frames = []
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        assert count > 0
        room[:count] = data[:count]
        del room
        reader.received(count)
        data = data[count:]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(data[:length])
        data = data[length:]
    return [piece for piece in [*pieces, data] if piece]


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(MIN_FRAME_BYTES, 300),
            st.sampled_from([SMALL_FRAME_BYTES - 5, SMALL_FRAME_BYTES - 4, SMALL_FRAME_BYTES - 3]),
            st.sampled_from([60_000, 65_536, 131_072, SHARED_BYTES - 4, SHARED_BYTES, 700_000]),
        ),
        max_size=6,
    ),
    lengths=st.lists(st.sampled_from([1, 2, 3, 4, 5, 100, 4_096, 70_000, 300_000]), max_size=30),
    seed=st.integers(0, 2**32),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sizes: list[int], lengths: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    payloads = [rng.randbytes(size) for size in sizes]
    memory = memory_of()
    reader = FrameReader(memory)
    received: list[bytes] = []
    for piece in cut(b"".join(map(framed, payloads)), lengths):
        received += feed(reader, piece)
    assert received == payloads
    assert memory.used_bytes == 0


@given(seed=st.integers(0, 2**32))
def test_many_readers_share_one_buffer_without_mixing(seed: int) -> None:
    rng = random.Random(seed)
    memory = memory_of()
    readers = [FrameReader(memory) for _ in range(4)]
    payloads = [
        [rng.randbytes(rng.choice([8, 300, 5_000, 90_000])) for _ in range(4)] for _ in readers
    ]
    left = [b"".join(map(framed, each)) for each in payloads]
    received: list[list[bytes]] = [[] for _ in readers]
    while any(left):
        n = rng.choice([n for n, each in enumerate(left) if each])
        length = rng.choice([3, 900, 40_000])
        received[n] += feed(readers[n], left[n][:length])
        left[n] = left[n][length:]
    assert received == payloads


def test_frames_not_asked_for_survive_others_using_the_buffer() -> None:
    memory = memory_of()
    first, second = FrameReader(memory), FrameReader(memory)
    payloads = [bytes([n]) * 1_000 for n in range(20)]
    data = b"".join(map(framed, payloads)) + framed(b"last one")[:7]
    first.room()[: len(data)] = data
    first.received(len(data))
    one = first.next_frame()
    assert one is not None
    assert first.frame_is_shared
    first.suspend()
    assert memory.used_bytes == len(data) - 1_004
    assert feed(second, framed(b"\xff" * 30_000)) == [b"\xff" * 30_000]
    two = first.next_frame()
    assert two is not None
    assert not first.frame_is_shared
    first.put_back(two)
    rest = []
    while (frame := first.next_frame()) is not None:
        rest.append(bytes(frame))
    assert rest == payloads[1:]
    assert memory.used_bytes == 0
    assert feed(first, framed(b"last one")[7:]) == [b"last one"]


def test_a_claim_takes_memory_only_as_bytes_arrive() -> None:
    memory = memory_of()
    reader = FrameReader(memory)
    size = 50 * MIB
    feed(reader, struct.pack(">ihh", size, 0, 9))
    assert memory.used_bytes <= 65_536
    arrived = 8
    for _ in range(20):
        feed(reader, bytes(100_000))
        arrived += 100_000
        assert memory.used_bytes <= max(65_536, 4 * arrived)
    reader.close()
    assert memory.used_bytes == 0


def test_a_large_frame_is_not_read_beyond_its_end() -> None:
    reader = FrameReader(memory_of())
    feed(reader, framed(bytes(500_000))[:300_000])
    while len(reader.room()) < 200_004:
        feed(reader, bytes(len(reader.room())))
        break
    assert len(reader.room()) <= 200_004


def test_a_refused_reader_keeps_its_bytes_and_continues_when_granted() -> None:
    memory = memory_of(limit_bytes=100_000)
    greedy, waiting = FrameReader(memory), FrameReader(memory)
    feed(greedy, framed(bytes(400_000))[:200_000])
    assert memory.exhausted
    payload = random.Random(1).randbytes(50_000)
    data = framed(payload)
    room = waiting.room()
    room[:6_000] = data[:6_000]
    waiting.received(6_000)
    assert waiting.next_frame() is None
    assert waiting.bytes_refused > 0
    greedy.close()
    assert memory.take(waiting, waiting.bytes_refused)
    waiting.granted()
    assert waiting.bytes_refused == 0
    assert feed(waiting, data[6_000:]) == [payload]
    assert memory.used_bytes == 0


def test_closing_in_any_state_gives_everything_back() -> None:
    memory = memory_of(limit_bytes=300_000)
    for start in (b"", framed(bytes(100))[:50], framed(bytes(200_000))[:90_000]):
        reader = FrameReader(memory)
        feed(reader, start)
        reader.close()
        assert memory.used_bytes == 0
    greedy, starving = FrameReader(memory), FrameReader(memory)
    feed(greedy, framed(bytes(900_000))[:400_000])
    starving.room()[:5_000] = framed(bytes(50_000))[:5_000]
    starving.received(5_000)
    assert starving.next_frame() is None
    assert starving.bytes_refused
    starving.close()
    greedy.close()
    assert memory.used_bytes == 0


@pytest.mark.parametrize("size", [-(2**31), -1, 0, MIN_FRAME_BYTES - 1, 100 * MIB + 1, 2**31 - 1])
def test_a_size_that_no_frame_has_is_refused_as_soon_as_it_is_here(size: int) -> None:
    with pytest.raises(FrameRefused, match=f"claims {size} bytes"):
        feed(FrameReader(memory_of()), struct.pack(">i", size))


def test_a_limit_below_the_ordinary_one_holds_for_all() -> None:
    memory = memory_of(max_frame_bytes=1_000)
    assert feed(FrameReader(memory), framed(bytes(1_000))) == [bytes(1_000)]
    with pytest.raises(FrameRefused, match=r"socket\.request\.max\.bytes is 1000"):
        feed(FrameReader(memory), struct.pack(">i", 1_001))


def test_only_produce_may_exceed_the_ordinary_limit() -> None:
    size = MAX_ORDINARY_FRAME_BYTES + 1
    check_frame_size(size, struct.pack(">ih", size, 0), 100 * MIB)
    check_frame_size(size - 1, struct.pack(">ih", size - 1, 3), 100 * MIB)
    with pytest.raises(FrameRefused, match="API 3 claims"):
        check_frame_size(size, struct.pack(">ih", size, 3), 100 * MIB)


def test_strangers_are_recognised_by_their_first_bytes() -> None:
    assert identify_protocol(b"\x16\x03\x01\x02") == "a TLS client"
    assert identify_protocol(b"GET /") == "an HTTP client"
    assert identify_protocol(b"\x00\x00\x00\x20") is None
    expected = "a TLS client connected to a port that expects the plaintext Kafka protocol"
    with pytest.raises(FrameRefused, match=expected):
        feed(FrameReader(memory_of()), b"\x16\x03\x01\x02\x00\x01")
