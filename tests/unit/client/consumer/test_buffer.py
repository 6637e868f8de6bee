"""Tests of handing out fetched bytes as records: limits, transactions, corruption, interrupts."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.fetched import FetchedPartition
from ottla.client.consumer.record import Record
from ottla.client.consumer.subscription import PartitionState, Subscription
from ottla.client.errors import ClientError, RecordTooLarge
from ottla.wire.records.builder import build_batch, end_txn_marker

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(first: int, count: int, **options: Any) -> bytes:
    records = [(None, b"%d" % (first + number), (), 0) for number in range(count)]
    return bytes(build_batch(records, base_offset=first, **options))


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    return end_txn_marker(producer, 0, commit, 0, 0, base_offset=offset)


class Fixture:
    def __init__(self, *partitions: TopicPartition) -> None:
        self.subscription = Subscription()
        self.subscription.assign(partitions)
        self.buffer = RecordBuffer(self.subscription)
        for state in self.subscription:
            state.seek(0)

    def state(self, tp: TopicPartition) -> PartitionState:
        return self.subscription.state(tp)

    def add(self, tp: TopicPartition, data: bytes, **options: Any) -> FetchedPartition:
        state = self.state(tp)
        assert state.fetch_position is not None
        fetched = FetchedPartition(state, state.version, data, state.fetch_position, **options)
        state.fetch_position = fetched.end_offset
        self.buffer.add(fetched)
        return fetched

    def take(self, limit: int = 100) -> list[int]:
        self.buffer.mark_consumed()
        records = self.buffer.take(limit)
        self.buffer.is_delivered = True
        return [record.offset for record in records]


def test_records_below_the_position_are_skipped_and_a_cut_batch_is_left_out() -> None:
    fixture = Fixture(A)
    fixture.state(A).seek(2)
    fixture.add(A, batch(0, 4) + batch(4, 2) + batch(6, 2)[:-1])
    assert fixture.take() == [2, 3, 4, 5]
    assert fixture.state(A).fetch_position == 6
    fixture.buffer.mark_consumed()
    assert fixture.state(A).position == 6


def test_takes_are_bounded_and_continue_across_batches_and_partitions() -> None:
    fixture = Fixture(A, B)
    fixture.add(A, batch(0, 3) + batch(3, 3))
    fixture.add(B, batch(0, 3))
    assert [len(fixture.take(4)) for _ in range(4)] == [4, 4, 1, 0]
    assert (fixture.state(A).position, fixture.state(B).position) == (6, 3)


def test_aborted_transactions_and_markers_are_left_out_when_reading_committed() -> None:
    data = (
        batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        + batch(2, 1)
        + marker(3, 7, commit=False)
        + batch(4, 1, producer_id=7, producer_epoch=0, base_sequence=2, transactional=True)
        + marker(5, 7, commit=True)
    )
    fixture = Fixture(A)
    fixture.add(A, data, aborted=[(7, 0)])
    assert fixture.take() == [2, 4]
    fixture.buffer.mark_consumed()
    assert fixture.state(A).position == 6, "behind the marker"
    fixture = Fixture(A)
    fixture.add(A, data)
    assert fixture.take() == [0, 1, 2, 4]


def test_positions_move_only_when_the_user_comes_back() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 4))
    assert fixture.take(3) == [0, 1, 2]
    assert fixture.state(A).position == 0
    assert fixture.buffer.in_hand_position(A) == 3
    fixture.buffer.mark_consumed()
    assert fixture.state(A).position == 3
    assert fixture.state(A).position_epoch == -1


def test_a_take_that_was_not_delivered_is_undone() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 4))
    assert fixture.take(1) == [0]
    fixture.buffer.mark_consumed()
    fixture.buffer.take(2)  # Ctrl-C interrupts before is_delivered is set
    fixture.buffer.mark_consumed()
    state = fixture.state(A)
    assert (state.position, state.fetch_position) == (1, 1)
    assert fixture.take() == []
    fixture.add(A, batch(0, 4))
    assert fixture.take() == [1, 2, 3]


def test_what_an_iterator_has_left_goes_back() -> None:
    fixture = Fixture(A, B)
    fixture.add(A, batch(0, 3))
    fixture.add(B, batch(0, 3))
    records = fixture.buffer.take(5)
    handed = fixture.buffer.iterate(records)
    assert [next(handed).offset for _ in range(2)] == [0, 1]
    fixture.buffer.mark_consumed()
    assert (fixture.state(A).position, fixture.state(B).position) == (2, 0)
    assert fixture.take() == [2, 0, 1, 2]


def test_letting_go_of_an_iterator_counts_all_but_the_record_in_hand() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 5))
    handed = fixture.buffer.iterate(fixture.buffer.take(5))
    assert [next(handed).offset for _ in range(3)] == [0, 1, 2]
    fixture.buffer.discard_in_hand()
    assert fixture.state(A).position == 2


def test_letting_go_of_a_poll_counts_none_of_it() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 5))
    assert fixture.take(3) == [0, 1, 2]
    fixture.buffer.discard_in_hand()
    assert fixture.state(A).position == 0


def test_seeking_voids_what_was_fetched_before() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 5))
    assert fixture.take(1) == [0]
    fixture.state(A).seek(3)
    assert fixture.take() == []
    assert fixture.state(A).position == 3
    fixture.add(A, batch(0, 5))
    assert fixture.take() == [3, 4]


def test_paused_and_held_partitions_keep_what_they_have() -> None:
    fixture = Fixture(A, B)
    fixture.add(A, batch(0, 2))
    fixture.add(B, batch(0, 2))
    fixture.state(A).is_paused = True
    fixture.state(B).is_held = True
    assert fixture.take() == []
    fixture.state(A).is_paused = False
    fixture.state(B).is_held = False
    assert fixture.take() == [0, 1, 0, 1]


def test_damage_is_reported_after_what_is_before_it_and_each_time() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    fixture = Fixture(A)
    fixture.add(A, batch(0, 2) + bytes(damaged))
    assert fixture.take() == [0, 1]
    for _ in range(2):
        with pytest.raises(ClientError, match="offset 2 is invalid") as caught:
            fixture.take()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert (caught.value.topic, caught.value.partition) == A
    fixture.state(A).seek(4)
    fixture.add(A, batch(4, 1))
    assert fixture.take() == [4]


def test_without_checksums_damaged_values_pass() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-2] ^= 1
    fixture = Fixture(A)
    fixture.add(A, bytes(damaged), check_crcs=False)
    assert fixture.take() == [0]


def test_a_batch_that_no_answer_can_hold_is_an_error() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 50)[:-1])
    with pytest.raises(RecordTooLarge, match=r"max\.partition\.fetch\.bytes"):
        fixture.take()


def test_the_users_list_is_the_users() -> None:
    fixture = Fixture(A)
    fixture.add(A, batch(0, 2) + batch(2, 2))
    records = fixture.buffer.take(2)
    fixture.buffer.is_delivered = True
    records += records
    assert fixture.take() == [2, 3]


def test_a_deserialiser_is_called_once_for_each_record() -> None:
    seen: list[bytes] = []
    subscription = Subscription()
    subscription.assign([A])
    buffer = RecordBuffer(subscription, value_deserializer=lambda data: seen.append(data) or data)
    state = subscription.state(A)
    state.seek(0)
    buffer.add(FetchedPartition(state, state.version, batch(0, 3), 0))
    next(buffer.iterate(buffer.take(3)))
    buffer.mark_consumed()
    rest: list[Record] = buffer.take(3)
    assert [record.offset for record in rest] == [1, 2]
    assert seen == [b"0", b"1", b"2"]
