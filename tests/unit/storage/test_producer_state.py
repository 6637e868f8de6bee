"""Tests of idempotent producers: accepted batches, retries, and snapshots."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from tests.unit.storage.logs import NOW, batch_of

from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.producer_state import (
    CACHED_BATCHES,
    MalformedSnapshot,
    ProducerState,
)
from ottla.wire.records.batch import MAX_SEQUENCE, BatchHeader, read_header
from ottla.wire.records.builder import end_txn_marker

PRODUCER = 4_000


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, at: int = NOW
) -> BatchHeader:
    return read_header(
        batch_of(
            *[b"v"] * count,
            timestamp=at,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(epoch: int = 0) -> BatchHeader:
    return read_header(
        end_txn_marker(PRODUCER, epoch, commit=False, coordinator_epoch=5, timestamp=NOW)
    )


def state_after(*headers: BatchHeader) -> ProducerState:
    state, offset = ProducerState(), 100
    for each in headers:
        assert state.check(each) is None
        state.update(each, offset)
        offset += each.last_offset_delta + 1
    return state


def refusal(state: ProducerState, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(batch)
    return caught.value.code


# ------------------------------------------------------------------------------------- decisions


def test_batches_without_sequence_numbers_are_never_retries() -> None:
    """Coordinators write such batches on behalf of transactional producers."""
    batch = header(-1, transactional=True)
    state = state_after(batch, batch, header(-1, count=3, transactional=True))
    assert state.check(batch) is None
    assert state.check(header(-1, epoch=1, transactional=True)) is None
    later = state_after(batch, header(-1, epoch=1, transactional=True))
    assert refusal(later, batch) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_never_seen_may_begin_with_any_sequence() -> None:
    assert ProducerState().check(header(77)) is None


def test_the_next_sequence_is_accepted() -> None:
    assert state_after(header(0, 3)).check(header(3, 2)) is None


def test_a_gap_is_refused() -> None:
    assert refusal(state_after(header(0, 3)), header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_recognised_as_a_retry() -> None:
    state = state_after(*(header(n * 2, 2) for n in range(8)))
    for number in range(8 - CACHED_BATCHES, 8):
        repeated = state.check(header(number * 2, 2))
        assert repeated is not None
        assert (repeated.first_offset, repeated.last_offset) == (100 + number * 2, 101 + number * 2)


def test_an_older_batch_is_a_duplicate_whose_offset_is_forgotten() -> None:
    state = state_after(*(header(n * 2, 2) for n in range(8)))
    assert refusal(state, header(4, 2)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_is_not_a_retry() -> None:
    state = state_after(header(0, 4))
    assert refusal(state, header(2, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, header(0, 3)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_sequences_wrap_around() -> None:
    state = state_after(header(MAX_SEQUENCE - 1, 4))
    assert state.check(header(2)) is None
    repeated = state.check(header(MAX_SEQUENCE - 1, 4))
    assert repeated is not None
    assert repeated.first_sequence == MAX_SEQUENCE - 1
    assert repeated.last_sequence == 1
    assert refusal(state, header(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, header(MAX_SEQUENCE - 5)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero() -> None:
    state = state_after(header(0, 3))
    assert state.check(header(0, epoch=1)) is None
    assert refusal(state, header(3, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    state = state_after(header(0), header(0, epoch=1))
    assert refusal(state, header(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_older_epoch_are_no_retries_in_the_new_one() -> None:
    state = state_after(header(0, 2), header(0, 2, epoch=1))
    repeated = state.check(header(0, 2, epoch=1))
    assert repeated is not None
    assert repeated.first_offset == 102
    assert len(state.producers[PRODUCER].batches) == 1


def test_after_a_marker_has_raised_the_epoch_sequences_begin_at_zero() -> None:
    """Two batches in flight may arrive out of order, so the later one must be retried."""
    state = state_after(header(0, 3, transactional=True))
    state.update(marker(epoch=1), 103, (True, 5))
    assert refusal(state, header(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=1)) is None


def test_a_marker_of_the_same_epoch_does_not_end_the_sequence() -> None:
    state = state_after(header(0, 3, transactional=True))
    state.update(marker(), 103, (False, 5))
    assert state.check(header(3)) is None


# ----------------------------------------------------------------------------------- transactions


def test_the_first_unstable_offset_is_where_the_oldest_open_transaction_began() -> None:
    state = ProducerState()
    assert state.first_unstable_offset is None
    state.update(header(0, 2, transactional=True), 100)
    other = header(0, transactional=True)._replace(producer_id=7)
    state.update(other, 102)
    state.update(header(2, transactional=True), 103)
    assert state.first_unstable_offset == 100
    completed = state.update(marker(), 104, (True, 5))
    assert completed == (PRODUCER, 100, 104, True)
    assert state.first_unstable_offset == 102
    state.update(marker()._replace(producer_id=7), 105, (False, 5))
    assert state.first_unstable_offset is None


def test_a_marker_without_records_ends_nothing() -> None:
    state = ProducerState()
    assert state.update(marker(), 100, (True, 5)) is None
    assert state.producers[PRODUCER].coordinator_epoch == 5


def test_a_batch_without_a_producer_leaves_no_trace() -> None:
    state = ProducerState()
    state.update(read_header(batch_of(b"v")), 100)
    assert not state.producers


# ----------------------------------------------------------------------------------------- expiry


def test_silent_producers_are_forgotten_unless_they_have_a_transaction_open() -> None:
    state = state_after(header(0, at=NOW))
    state.update(header(0, transactional=True, at=NOW)._replace(producer_id=7), 200)
    assert state.expire(NOW + 999, 1_000) == []
    assert state.expire(NOW + 1_000, 1_000) == [PRODUCER]
    assert list(state.producers) == [7]
    assert state.check(header(55)) is None


# -------------------------------------------------------------------------------------- snapshots

ENTRIES = (
    "00000002"
    # producer ID, epoch, last sequence, last offset, offset delta,
    # timestamp, coordinator epoch, first offset of the transaction
    "0000000000000fa0 0003 00000004 0000000000000068 00000001"
    "0000018bcfe56800 ffffffff ffffffffffffffff"
    "0000000000000007 0000 00000000 00000000000000c8 00000000"
    "0000018bcfe56801 00000005 00000000000000c8"
)


def filled() -> ProducerState:
    state = ProducerState()
    state.update(header(0, 3, epoch=3), 100)
    state.update(header(3, 2, epoch=3), 103)
    other = header(0, transactional=True, at=NOW + 1)._replace(producer_id=7)
    state.update(marker()._replace(producer_id=7), 199, (True, 5))
    state.update(other, 200)
    return state


def test_a_snapshot_has_kafkas_bytes() -> None:
    body = bytes.fromhex(ENTRIES)
    assert filled().encode() == struct.pack(">hI", 1, crc32c(body)) + body


def test_an_empty_snapshot_has_kafkas_bytes() -> None:
    assert ProducerState().encode().hex() == "0001" + f"{crc32c(bytes(4)):08x}" + "00000000"


def test_a_producer_without_batches_has_kafkas_bytes() -> None:
    state = ProducerState()
    state.update(marker(epoch=2), 100, (True, 5))
    assert state.encode()[10:].hex(" ") == bytes.fromhex(
        "0000000000000fa0 0002 ffffffff ffffffffffffffff 00000000 0000018bcfe56800 00000005"
        "ffffffffffffffff"
    ).hex(" ")


def test_a_snapshot_remembers_the_last_batch_of_each_producer() -> None:
    state = ProducerState()
    state.restore(filled().encode())
    assert state.encode() == filled().encode()
    assert state.first_unstable_offset == 200
    repeated = state.check(header(3, 2, epoch=3))
    assert repeated is not None
    assert (repeated.first_offset, repeated.last_offset) == (103, 104)
    assert state.check(header(5, epoch=3)) is None
    assert refusal(state, header(0, 3, epoch=3)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize("cut", [0, 1, 5, 6, 9, 10, 60, 101])
def test_a_torn_snapshot_is_not_believed(cut: int) -> None:
    state = filled()
    with pytest.raises(MalformedSnapshot):
        state.restore(filled().encode()[:cut])
    assert not state.producers


def test_a_flipped_bit_in_a_snapshot_is_noticed() -> None:
    snapshot = filled().encode()
    for byte in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[byte] ^= 0x04
        with pytest.raises(MalformedSnapshot):
            ProducerState().restore(bytes(damaged))


def test_a_snapshot_that_claims_more_producers_than_it_has_is_not_believed() -> None:
    body = struct.pack(">i", 2**31 - 1)
    with pytest.raises(MalformedSnapshot):
        ProducerState().restore(struct.pack(">hI", 1, crc32c(body)) + body)
    body = struct.pack(">i", -1)
    with pytest.raises(MalformedSnapshot):
        ProducerState().restore(struct.pack(">hI", 1, crc32c(body)) + body)
