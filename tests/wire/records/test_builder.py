from __future__ import annotations

import struct

import pytest
from hypothesis import given
from tests.wire.records.strategies import EXAMPLE, codecs, records

from ottla.wire.records import batch as b
from ottla.wire.records.batch import (
    HEADER_STRUCT,
    read_header,
    seal,
    stamp_producer,
    validate,
)
from ottla.wire.records.builder import (
    BatchBuilder,
    ControlType,
    EndTxnMarker,
    build_batch,
    control_type,
    end_txn_marker,
    read_end_txn_marker,
)
from ottla.wire.records.errors import CorruptBatch
from ottla.wire.records.record import BatchRecord, iter_records


def test_a_batch_has_the_attributes_it_was_built_with() -> None:
    batch = build_batch(
        EXAMPLE,
        base_offset=100,
        compression="zstd",
        level=1,
        producer_id=7,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        leader_epoch=5,
        transactional=True,
    )
    header = read_header(batch)
    validate(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 103, 4)
    assert (header.compression, header.timestamp_type, header.leader_epoch) == (4, 0, 5)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 3, 1)
    assert header.is_transactional
    assert not header.is_control
    assert header.base_timestamp == EXAMPLE[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in EXAMPLE)


@given(records())
def test_plain_fields_build_the_same_batch_as_records(originals: list[BatchRecord]) -> None:
    plain = [(r.key, r.value, list(r.headers), r.timestamp) for r in originals]
    assert build_batch(plain) == build_batch(iter(originals))


def test_offsets_are_counted_unless_they_are_to_be_kept() -> None:
    sparse = [record._replace(offset=10 + 3 * record.offset) for record in EXAMPLE]
    kept = build_batch(sparse, base_offset=8, preserve_offsets=True, last_offset=25)
    header = read_header(kept)
    validate(kept, 0, header)
    assert list(iter_records(kept, header)) == sparse
    assert (header.base_offset, header.last_offset, header.record_count) == (8, 25, 4)
    counted = build_batch(sparse, base_offset=8)
    assert [r.offset for r in iter_records(counted, read_header(counted))] == [8, 9, 10, 11]


@pytest.mark.parametrize("offsets", [(5, 5), (6, 5), (4, 5), (5, 5 + 2**31)])
def test_offsets_that_a_batch_cannot_hold_are_refused(offsets: tuple[int, int]) -> None:
    wrong = [EXAMPLE[0]._replace(offset=offset) for offset in offsets]
    with pytest.raises(ValueError, match="offsets"):
        build_batch(wrong, base_offset=5, preserve_offsets=True)


def test_a_batch_without_records_needs_a_last_offset() -> None:
    with pytest.raises(ValueError, match="offsets"):
        build_batch([])
    header = read_header(build_batch([], base_offset=4, last_offset=6))
    assert (header.record_count, header.next_offset, header.max_timestamp) == (0, 7, -1)


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = build_batch(EXAMPLE, delete_horizon=1_800_000_000_000)
    header = read_header(batch)
    assert header.delete_horizon == header.base_timestamp == 1_800_000_000_000
    assert list(iter_records(batch, header)) == EXAMPLE


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_marker_is_a_transactional_control_batch(commit: bool) -> None:
    marker = end_txn_marker(9, 2, commit, coordinator_epoch=11, timestamp=77)
    header = read_header(marker)
    validate(marker, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert (header.record_count, header.max_timestamp) == (1, 77)
    assert control_type(marker) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert read_end_txn_marker(marker) == EndTxnMarker(commit, 11)
    (record,) = iter_records(marker, header)
    assert record.key == (b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00")
    assert record.value == b"\x00\x00\x00\x00\x00\x0b"


def control(key: bytes | None, value: bytes | None = None) -> bytes:
    return build_batch([(key, value, (), 0)], control=True)


def test_other_control_batches_are_no_end_markers() -> None:
    assert control_type(control(b"\x00\x00\x00\x02")) is ControlType.LEADER_CHANGE
    assert read_end_txn_marker(control(b"\x00\x00\x00\x02")) is None
    assert control_type(control(b"\x00\x05\x00\x63")) is ControlType.UNKNOWN
    assert read_end_txn_marker(control(b"\x00\x05\x00\x63")) is None


def test_malformed_control_batches_are_corrupt() -> None:
    for broken in (control(None), control(b"\x00\x00"), build_batch(EXAMPLE)):
        with pytest.raises(CorruptBatch):
            control_type(broken)
    with pytest.raises(CorruptBatch, match="coordinator epoch"):
        read_end_txn_marker(control(b"\x00\x00\x00\x01", b"\x00"))
    empty = build_batch([], last_offset=0, control=True)
    with pytest.raises(CorruptBatch, match="not a control batch"):
        control_type(empty)


def test_sealing_sets_length_and_crc() -> None:
    batch = bytearray(build_batch(EXAMPLE))
    whole = bytes(batch)
    batch[b.LENGTH_AT : b.LENGTH_AT + 4] = b"\x00" * 4
    batch[b.CRC_AT : b.CRC_AT + 4] = b"\x00" * 4
    assert seal(batch) == whole
    assert HEADER_STRUCT.size == b.HEADER_SIZE


@given(records(), codecs)
def test_records_added_one_by_one_make_the_same_batch(
    originals: list[BatchRecord], codec: str
) -> None:
    builder = BatchBuilder(1 << 30)
    for record in originals:
        assert builder.append(record.key, record.value, record.timestamp, record.headers)
    plain = build_batch(originals)
    assert (builder.size, builder.record_count) == (len(plain), len(originals))
    assert builder.max_timestamp == read_header(plain).max_timestamp
    assert builder.build() == plain
    producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 9}
    built = builder.build(compression=codec, transactional=True, **producer)
    expected = build_batch(originals, compression=codec, transactional=True, **producer)
    assert built == expected
    later = builder.build(compression=codec)
    stamp_producer(later, 7, 3, 9, transactional=True)
    assert later == expected


def test_a_full_batch_accepts_no_record_and_is_unchanged() -> None:
    builder = BatchBuilder(200)
    added = 0
    while builder.append(None, bytes(20), added):
        added += 1
    assert builder.record_count == added == 5
    assert builder.size == len(builder.build()) <= 200
    assert builder.max_timestamp == 4


def test_a_batch_takes_its_first_record_whatever_its_size() -> None:
    builder = BatchBuilder(200)
    with pytest.raises(ValueError, match="must contain at least one record"):
        builder.build()
    assert builder.append(b"k", bytes(1_000), 0)
    assert not builder.append(b"k", b"", 0)
    assert builder.record_count == 1


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [0, 7, 2**31 - 1])
def test_a_marker_is_the_batch_that_the_general_way_would_make(
    commit: bool, coordinator_epoch: int
) -> None:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)
    expected = build_batch(
        [(key, value, (), 1_700_000_000_000)],
        base_offset=7,
        producer_id=9,
        producer_epoch=3,
        leader_epoch=2,
        transactional=True,
        control=True,
    )
    marker = end_txn_marker(
        9, 3, commit, coordinator_epoch, 1_700_000_000_000, base_offset=7, leader_epoch=2
    )
    assert marker == expected
