from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records.strategies import EXAMPLE

from ottla.base.errors import ErrorCode
from ottla.wire.records import batch as b
from ottla.wire.records.batch import (
    BatchHeader,
    Extent,
    iter_headers,
    read_header,
    seal,
    stamped_prefix,
    validate,
    verified_extent,
    with_append_time,
)
from ottla.wire.records.builder import build_batch
from ottla.wire.records.errors import CorruptBatch, InvalidBatch, UnsupportedMagic
from ottla.wire.records.record import iter_records


def patched(
    batch: bytes | bytearray, position: int, layout: str, value: int, sealed: bool = True
) -> bytearray:
    """Return the batch with one field changed, and the matching CRC if `sealed`."""
    copy = bytearray(batch)
    struct.pack_into(layout, copy, position, value)
    return seal(copy) if sealed else copy


def many(count: int, base_offset: int = 0) -> bytes:
    return b"".join(
        build_batch(EXAMPLE, base_offset=base_offset + 4 * index) for index in range(count)
    )


def test_a_header_has_the_fields_of_its_61_bytes() -> None:
    fields = (7, 49 + 3, 5, 2, 0xFEDCBA98, 0x1C, 9, -2, 2**62, 2**61, 3, 2**31 - 4, 10)
    data = b"??" + struct.pack(">qiibIhiqqqhii", *fields) + b"abc"
    header = read_header(data, 2)
    assert header == BatchHeader(2, 64, 7, 5, 2, 0xFEDCBA98, 0x1C, 9, *fields[7:])
    assert (header.last_offset, header.next_offset, header.end) == (16, 17, 66)
    assert (header.compression, header.timestamp_type) == (4, 1)
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.delete_horizon is None


def test_the_constants_are_where_the_fields_are() -> None:
    positions = {
        ">q": (b.BASE_OFFSET_AT, b.BASE_TIMESTAMP_AT, b.MAX_TIMESTAMP_AT, b.PRODUCER_ID_AT),
        ">i": (b.LAST_OFFSET_DELTA_AT, b.BASE_SEQUENCE_AT, b.RECORD_COUNT_AT, b.LEADER_EPOCH_AT),
        ">h": (b.ATTRIBUTES_AT, b.PRODUCER_EPOCH_AT),
        ">b": (b.MAGIC_AT,),
        ">I": (b.CRC_AT,),
    }
    marked = bytearray(b.HEADER_SIZE)
    value = 0
    for layout, places in positions.items():
        for place in places:
            value += 1
            struct.pack_into(layout, marked, place, value)
    struct.pack_into(">i", marked, b.LENGTH_AT, 49)
    header = read_header(marked)
    assert (header.size, header.base_offset, header.base_timestamp) == (61, 1, 2)
    assert (header.max_timestamp, header.producer_id, header.last_offset_delta) == (3, 4, 5)
    assert (header.base_sequence, header.record_count, header.leader_epoch) == (6, 7, 8)
    assert (header.attributes, header.producer_epoch, header.magic, header.crc) == (9, 10, 11, 12)


@pytest.mark.parametrize(
    ("first", "delta", "last"),
    [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2)],
)
def test_sequences_wrap_to_zero(first: int, delta: int, last: int) -> None:
    header = read_header(build_batch(EXAMPLE))
    assert header._replace(base_sequence=first, last_offset_delta=delta).last_sequence == last


def test_a_batch_without_a_sequence_has_no_last_one() -> None:
    assert read_header(build_batch(EXAMPLE)).last_sequence == -1


def test_headers_of_whole_batches_are_walked_and_a_partial_tail_is_left_out() -> None:
    data = many(3)
    size = len(data) // 3
    assert [h.base_offset for h in iter_headers(data)] == [0, 4, 8]
    assert [h.position for h in iter_headers(data, size)] == [size, 2 * size]
    for end in (3 * size - 1, 2 * size + 61, 2 * size + 60, 2 * size + 1, 2 * size):
        assert [h.base_offset for h in iter_headers(data, end=end)] == [0, 4]
    assert list(iter_headers(b"")) == []


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_an_impossible_size_is_corrupt(length: int) -> None:
    data = many(1) + patched(many(1), b.LENGTH_AT, ">i", length, sealed=False)
    walk = iter_headers(data)
    assert next(walk).base_offset == 0
    with pytest.raises(CorruptBatch, match="invalid length"):
        next(walk)
    broken = bytes(data[len(data) // 2 :])
    with pytest.raises(CorruptBatch, match="invalid length"):
        validate(broken, 0, read_header(broken))


def test_too_few_bytes_for_a_header_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="too few"):
        read_header(many(1)[:60])
    with pytest.raises(CorruptBatch, match="too few"):
        read_header(b"", 5)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_distinguished_from_corruption(magic: int) -> None:
    old = bytearray(34)
    struct.pack_into(">qiIb", old, 0, 0, 22, 0, magic)
    with pytest.raises(UnsupportedMagic) as short:
        read_header(old)
    assert short.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(UnsupportedMagic):
        list(iter_headers(bytes(old) * 3))
    large = patched(many(1), b.MAGIC_AT, ">b", magic)
    with pytest.raises(UnsupportedMagic):
        validate(large, 0, read_header(large))


def test_an_unknown_magic_is_corrupt() -> None:
    data = patched(many(1), b.MAGIC_AT, ">b", 3)
    with pytest.raises(CorruptBatch, match="magic 3"):
        validate(data, 0, read_header(data))


def test_a_good_batch_is_valid_wherever_it_lies() -> None:
    data = b"\xff" * 7 + many(1) + b"\xff" * 7
    validate(memoryview(data), 7, read_header(data, 7), from_client=True)


def test_a_cut_batch_is_corrupt() -> None:
    data = many(1)
    with pytest.raises(CorruptBatch, match=f"{len(data) - 1} of {len(data)} bytes"):
        validate(data[:-1], 0, read_header(data))


@given(st.data())
def test_any_flipped_bit_under_the_crc_is_found(data: st.DataObject) -> None:
    batch = bytearray(many(1))
    place = data.draw(st.integers(b.CRC_AT, len(batch) - 1))
    batch[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatch, match="CRC") as caught:
        validate(batch, 0, read_header(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert verified_extent(batch) == Extent(0, -1, True)


@pytest.mark.parametrize(
    ("position", "layout", "value", "code"),
    [
        (b.BASE_OFFSET_AT, ">q", 1, ErrorCode.INVALID_RECORD),
        (b.LAST_OFFSET_DELTA_AT, ">i", 4, ErrorCode.INVALID_RECORD),
        (b.LAST_OFFSET_DELTA_AT, ">i", 2, ErrorCode.INVALID_RECORD),
        (b.RECORD_COUNT_AT, ">i", 0, ErrorCode.INVALID_RECORD),
        (b.ATTRIBUTES_AT, ">h", 5, ErrorCode.INVALID_RECORD),
        (b.ATTRIBUTES_AT, ">h", b.CONTROL_BIT, ErrorCode.INVALID_RECORD),
        (b.ATTRIBUTES_AT, ">h", b.DELETE_HORIZON_BIT, ErrorCode.INVALID_RECORD),
        (b.ATTRIBUTES_AT, ">h", b.APPEND_TIME_BIT, ErrorCode.INVALID_TIMESTAMP),
        (b.PRODUCER_ID_AT, ">q", 0, ErrorCode.INVALID_RECORD),
    ],
)
def test_batches_that_a_client_may_not_send_are_refused(
    position: int, layout: str, value: int, code: ErrorCode
) -> None:
    data = patched(many(1), position, layout, value)
    with pytest.raises(InvalidBatch) as caught:
        validate(data, 0, read_header(data), from_client=True)
    assert caught.value.code is code


def test_an_empty_client_batch_is_refused_even_if_its_count_and_delta_agree() -> None:
    data = patched(patched(many(1), b.RECORD_COUNT_AT, ">i", 0), 23, ">i", -1)
    with pytest.raises(InvalidBatch):
        validate(data, 0, read_header(data), from_client=True)


def test_compacted_batches_may_have_fewer_records_than_offsets_but_never_more() -> None:
    for count in (0, 3, 4):
        data = patched(many(1, base_offset=9), b.RECORD_COUNT_AT, ">i", count)
        validate(data, 0, read_header(data))
    for count in (5, -1):
        data = patched(many(1), b.RECORD_COUNT_AT, ">i", count)
        with pytest.raises(InvalidBatch):
            validate(data, 0, read_header(data))


def test_a_verified_extent_ends_before_a_partial_tail_which_is_not_corruption() -> None:
    data = many(3)
    size = len(data) // 3
    assert verified_extent(data) == Extent(3 * size, 12, False)
    assert verified_extent(data, position=size) == Extent(2 * size, 12, False)
    assert verified_extent(b"") == Extent(0, -1, False)
    for end in (3 * size - 1, 2 * size + 61, 2 * size + 1, 2 * size):
        assert verified_extent(data, end) == Extent(2 * size, 8, False)


def test_a_verified_extent_ends_before_damage() -> None:
    size = len(many(1))
    for place in (size + b.MAGIC_AT, size + b.LENGTH_AT, size + b.CRC_AT, 2 * size - 1):
        data = bytearray(many(3))
        data[place] ^= 0x80
        assert verified_extent(data) == Extent(size, 4, True)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_a_stamp_changes_offset_and_epoch_and_leaves_the_batch_valid(
    offset: int, epoch: int
) -> None:
    batch = many(1)
    stamped = stamped_prefix(offset, epoch, memoryview(batch)) + batch[b.STAMP_SIZE :]
    header = read_header(stamped)
    validate(stamped, 0, header)
    expected = read_header(batch)._replace(base_offset=offset, leader_epoch=epoch)
    assert header == expected


def test_append_time_stands_for_all_records() -> None:
    batch = many(1)
    changed = with_append_time(batch, 42)
    header = read_header(changed)
    validate(changed, 0, header)
    assert (header.timestamp_type, header.max_timestamp) == (1, 42)
    assert list(iter_records(changed, header)) == [r._replace(timestamp=42) for r in EXAMPLE]
    assert batch == many(1)
