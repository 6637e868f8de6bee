from __future__ import annotations

import struct

import pytest

from ottla.wire.records import batch as b
from ottla.wire.records.batch import seal
from ottla.wire.records.builder import build_batch, end_txn_marker
from ottla.wire.records.errors import BatchError, CorruptBatch, UnsupportedMagic
from ottla.wire.records.fetched import iter_fetched


def plain(base_offset: int, count: int = 2) -> bytes:
    return build_batch([(b"k", b"v", (), 0)] * count, base_offset=base_offset)


def transactional(base_offset: int, producer_id: int, count: int = 2) -> bytes:
    return build_batch(
        [(b"k", b"v", (), 0)] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(base_offset: int, producer_id: int, commit: bool) -> bytes:
    return end_txn_marker(producer_id, 0, commit, 0, 0, base_offset=base_offset)


def wanted(records: bytes, **bounds: object) -> list[int]:
    """Return the base offsets of the batches that a reader gets."""
    found = iter_fetched(records, **bounds)  # type: ignore[arg-type]
    return [header.base_offset for header, is_wanted in found if is_wanted]


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    whole = plain(0)
    records = whole + plain(2)
    for cut in range(len(whole), len(records)):
        assert wanted(records[:cut]) == [0]
    assert wanted(records) == [0, 2]
    assert wanted(b"") == []


def test_batches_outside_the_bounds_are_not_wanted() -> None:
    records = plain(0) + plain(2) + plain(4) + plain(6)
    assert wanted(records, first_offset=3, end_offset=6) == [2, 4]
    assert [h.base_offset for h, _ in iter_fetched(records, 3, 6)] == [0, 2, 4]


def test_control_batches_are_not_wanted_and_move_the_reader_on() -> None:
    records = transactional(0, 7) + marker(2, 7, commit=True)
    *_, (last, is_wanted) = iter_fetched(records)
    assert (last.next_offset, is_wanted) == (3, False)


def test_without_a_list_of_the_aborted_all_transactions_are_read() -> None:
    records = transactional(0, 7) + marker(2, 7, commit=False)
    assert wanted(records) == [0]
    assert wanted(records, aborted=[]) == [0]
    assert wanted(records, aborted=[(7, 0)]) == []


def test_an_abort_reaches_to_its_marker_and_spares_other_producers() -> None:
    records = b"".join(
        (
            transactional(0, 7),
            transactional(2, 8),
            plain(4),
            marker(6, 7, commit=False),
            transactional(7, 7),
            marker(9, 7, commit=True),
            marker(10, 8, commit=True),
        )
    )
    assert wanted(records, aborted=[(7, 0)]) == [2, 4, 7]


def test_a_producer_may_abort_twice_in_a_fetch() -> None:
    records = b"".join(
        (
            transactional(0, 7),
            marker(2, 7, commit=False),
            transactional(3, 7),
            marker(5, 7, commit=True),
            transactional(6, 7),
            marker(8, 7, commit=False),
            transactional(9, 7),
        )
    )
    assert wanted(records, aborted=[(7, 6), (7, 0)]) == [3, 9]


def test_an_abort_that_began_before_the_fetch_counts() -> None:
    records = transactional(100, 7) + marker(102, 7, commit=False)
    assert wanted(records, aborted=[(7, 3)]) == []


def test_a_commit_marker_does_not_end_an_abort() -> None:
    # Same as in Kafka: only an abort marker ends it, whatever else is in the log.
    records = transactional(0, 7) + marker(2, 7, commit=True) + transactional(3, 7)
    assert wanted(records, aborted=[(7, 0)]) == []


def test_a_marker_below_the_first_offset_still_ends_its_transaction() -> None:
    records = transactional(0, 7) + marker(2, 7, commit=False) + transactional(3, 7)
    assert wanted(records, first_offset=3, aborted=[(7, 0)]) == [3]


def test_records_of_a_producer_without_a_transaction_are_not_aborted() -> None:
    idempotent = build_batch(
        [(b"k", b"v", (), 0)], producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert wanted(idempotent, aborted=[(7, 0)]) == [0]


def test_a_damaged_batch_raises_after_those_before_it() -> None:
    records = bytearray(plain(0) + plain(2))
    records[-1] ^= 1
    found = iter_fetched(records)
    assert next(found)[0].base_offset == 0
    with pytest.raises(CorruptBatch):
        next(found)


def test_a_damaged_batch_is_not_taken_for_one_below_the_bounds() -> None:
    batch = bytearray(plain(10))
    struct.pack_into(">i", batch, b.LAST_OFFSET_DELTA_AT, -5)
    for records in (batch, seal(batch)):
        with pytest.raises(BatchError):
            wanted(bytes(records), first_offset=10)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic: int) -> None:
    short = bytearray(34)
    struct.pack_into(">qi", short, 0, 0, 22)
    short[b.MAGIC_AT] = magic
    long = bytearray(short) + bytes(100)
    struct.pack_into(">i", long, 8, len(long) - 12)
    for records in (short, long, plain(0) + short, plain(0) + long):
        with pytest.raises(UnsupportedMagic, match=f"message format {magic} is not supported"):
            list(iter_fetched(records))


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1, 2**63 - 2])
def test_offsets_that_cannot_be_are_refused(base_offset: int) -> None:
    batch = bytearray(plain(0))
    struct.pack_into(">q", batch, b.BASE_OFFSET_AT, base_offset)
    if base_offset == 2**63 - 1:
        assert list(iter_fetched(batch)) == []  # the batch begins at the highest possible offset
        return
    with pytest.raises(CorruptBatch, match="invalid offsets"):
        list(iter_fetched(seal(batch), -(2**63)))
