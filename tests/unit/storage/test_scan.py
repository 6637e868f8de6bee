"""Tests that batches read from disk are served only if every check passes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.logs import batch_of, headers_of

from ottla.storage.scan import Expected, verified_prefix
from ottla.wire.records.batch import HEADER_SIZE


def batches(*bases: int, epoch: int = 3, count: int = 2) -> bytes:
    return b"".join(
        batch_of(*[b"%d" % (base + n) for n in range(count)], base_offset=base, leader_epoch=epoch)
        for base in bases
    )


def expected(offset: int, max_offset: int = 1_000, end: int = 1_000, epoch: int = 3) -> Expected:
    return Expected(offset, max_offset, end, epoch, None)


THREE = batches(10, 12, 14)
SIZE = len(THREE) // 3


def with_base_offset(data: bytes, number: int, base_offset: int) -> bytes:
    at = number * SIZE
    return data[:at] + struct.pack(">q", base_offset) + data[at + 8 :]


def test_whole_batches_within_the_limit_are_good() -> None:
    assert verified_prefix(THREE, len(THREE), expected(10)) == (3 * SIZE, 16, False)
    assert verified_prefix(THREE, 3 * SIZE - 1, expected(10)) == (2 * SIZE, 14, False)
    assert verified_prefix(THREE, SIZE, expected(11)) == (SIZE, 12, False)
    assert verified_prefix(THREE, SIZE - 1, expected(10)) == (0, 10, False)
    assert verified_prefix(b"", 100, expected(10)) == (0, 10, False)


def test_a_part_of_a_batch_at_the_end_is_left_out() -> None:
    for length in range(SIZE, 2 * SIZE):
        assert verified_prefix(THREE[:length], length, expected(10)) == (SIZE, 12, False)


def test_batches_at_the_maximum_offset_are_left_out() -> None:
    assert verified_prefix(THREE, len(THREE), expected(10, max_offset=14)) == (2 * SIZE, 14, False)
    assert verified_prefix(THREE, len(THREE), expected(10, max_offset=13)) == (2 * SIZE, 14, False)
    assert verified_prefix(THREE, len(THREE), expected(10, max_offset=10)) == (0, 10, False)


def test_a_batch_in_the_making_behind_the_maximum_offset_is_no_damage() -> None:
    prefix = verified_prefix(THREE, len(THREE), expected(10, max_offset=14, end=14))
    assert prefix == (2 * SIZE, 14, False)


def test_gaps_that_compaction_left_are_no_damage() -> None:
    gappy = batches(10, 20, 30)
    assert verified_prefix(gappy, len(gappy), expected(10)) == (3 * SIZE, 32, False)
    assert verified_prefix(gappy, len(gappy), expected(5)) == (3 * SIZE, 32, False)


def test_a_batch_before_the_offset_asked_for_is_damage() -> None:
    assert verified_prefix(THREE, len(THREE), expected(12)) == (0, 12, True)


@pytest.mark.parametrize("byte", range(17, SIZE))
def test_a_byte_that_the_crc_covers_is_never_wrong(byte: int) -> None:
    damaged = bytearray(THREE)
    damaged[SIZE + byte] ^= 0x10
    assert verified_prefix(damaged, len(THREE), expected(10)) == (SIZE, 12, True)


@pytest.mark.parametrize("size", [SIZE + 1, SIZE + HEADER_SIZE, 1 << 30])
def test_a_batch_that_is_longer_than_the_rest_of_its_segment_is_damage(size: int) -> None:
    damaged = bytearray(THREE)
    struct.pack_into(">i", damaged, 2 * SIZE + 8, size - 12)

    assert verified_prefix(damaged, 1 << 31, expected(10)) == (2 * SIZE, 14, True)
    assert verified_prefix(damaged[2 * SIZE :], 1 << 31, expected(14)) == (0, 14, True)


@given(st.integers(0, 3 * SIZE * 8 - 1), st.integers(10, 15), st.sampled_from([0, 61]))
def test_no_flipped_bit_is_served(bit: int, offset: int, ahead: int) -> None:
    """This holds for any bit, any fetch offset and any number of bytes read past the limit."""
    damaged = bytearray(THREE)
    damaged[bit // 8] ^= 1 << bit % 8
    first = (offset - 10) // 2 * SIZE
    for limit in (SIZE, 2 * SIZE, 3 * SIZE):
        buffer = damaged[first : first + limit + HEADER_SIZE]
        prefix = verified_prefix(buffer, limit, expected(offset, end=16))
        served = bytes(buffer[: prefix.size])
        is_down = struct.unpack_from(">q", damaged, first)[0] < 10 + first // SIZE * 2
        if is_down and first + 8 > bit // 8 >= first:
            continue  # a first batch with a lower base offset looks like one with more records
        assert served == THREE[first : first + len(served)]
        assert prefix.next_offset == (offset if not served else headers_of(served)[-1].next_offset)


def test_an_offset_that_is_too_high_is_noticed_by_the_next_batch() -> None:
    damaged = with_base_offset(THREE, 1, 13)
    assert verified_prefix(damaged, len(THREE), expected(10)) == (SIZE, 12, True)
    assert verified_prefix(damaged[SIZE:], 2 * SIZE, expected(12)) == (0, 12, True)
    seen = damaged[SIZE : 2 * SIZE + HEADER_SIZE]
    assert verified_prefix(seen, SIZE, expected(12)) == (0, 12, True)


def test_an_offset_that_is_too_high_for_the_segment_is_noticed_at_its_end() -> None:
    damaged = with_base_offset(THREE, 2, 15)
    assert verified_prefix(damaged, len(THREE), expected(10, end=16)) == (2 * SIZE, 14, True)
    assert verified_prefix(damaged[2 * SIZE :], SIZE, expected(14, end=16)) == (0, 14, True)


def test_a_reader_inside_a_batch_is_not_fooled_by_its_offset() -> None:
    damaged = with_base_offset(THREE, 0, 11)
    assert verified_prefix(damaged, len(THREE), expected(11)) == (0, 11, True)


def test_damage_does_not_spread_to_the_batch_before_it() -> None:
    unreadable = THREE[:SIZE] + bytes(SIZE) + THREE[2 * SIZE :]
    assert verified_prefix(unreadable, len(THREE), expected(10)) == (SIZE, 12, True)
    assert verified_prefix(unreadable, len(THREE), expected(11)) == (SIZE, 12, True)


def test_an_epoch_that_the_log_does_not_know_there_is_damage() -> None:
    assert verified_prefix(THREE, len(THREE), expected(10, epoch=2)) == (0, 10, True)
    assert verified_prefix(THREE, len(THREE), expected(10, epoch=4)) == (0, 10, True)
    assert verified_prefix(THREE, len(THREE), expected(10, epoch=-1))[0] == len(THREE)


def test_each_batch_has_the_epoch_of_its_offset() -> None:
    data = batches(10, epoch=3) + batches(12, epoch=4) + batches(14, epoch=3)
    known = {10: 3, 12: 4, 14: 4}
    several = Expected(11, 1_000, 1_000, 3, known.__getitem__)
    assert verified_prefix(data, len(data), several) == (2 * SIZE, 14, True)
    known[14] = 3
    assert verified_prefix(data, len(data), several) == (3 * SIZE, 16, False)
