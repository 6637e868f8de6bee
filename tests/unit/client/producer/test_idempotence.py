"""Tests of sequence numbers, by tables and against a model of a broker (Hypothesis)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.client.producer.idempotence import MAX_EPOCH, Idempotence, PartitionSequences

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
NETWORK = ErrorCode.NETWORK_EXCEPTION
MAX_SEQUENCE = 0x7FFFFFFF


@dataclass(eq=False)
class Batch:
    count: int = 5
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    sequence_was_reset: bool = False
    in_request: bool = False
    may_be_written: bool = False

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    def set_producer_state(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, epoch
        self.base_sequence = base_sequence

    @property
    def state(self) -> tuple[int, int]:
        return self.producer_epoch, self.base_sequence


def producer(*, is_transactional: bool = False) -> tuple[Idempotence, PartitionSequences]:
    idempotence = Idempotence(is_transactional=is_transactional)
    idempotence.set_producer_id(7, 0)
    return idempotence, PartitionSequences()


def send(idempotence: Idempotence, partition: PartitionSequences, count: int) -> list[Batch]:
    batches = [Batch() for _ in range(count)]
    for batch in batches:
        assert idempotence.may_send(partition, batch)
        idempotence.assign(partition, batch)
    return batches


def test_sequences_count_records() -> None:
    batches = send(*producer(), 3)
    assert [batch.state for batch in batches] == [(0, 0), (0, 5), (0, 10)]


def test_sequences_begin_anew_after_the_largest() -> None:
    idempotence, partition = producer()
    send(idempotence, partition, 1)
    partition.next_sequence = MAX_SEQUENCE - 1
    assert [batch.base_sequence for batch in send(idempotence, partition, 2)] == [
        MAX_SEQUENCE - 1,
        3,
    ]


def test_nothing_is_sent_without_a_producer_id() -> None:
    assert not Idempotence().may_send(PartitionSequences(), Batch())


def test_only_the_oldest_batch_is_sent_again() -> None:
    idempotence, partition = producer()
    first, second, third = send(idempotence, partition, 3)
    assert all(
        idempotence.may_retry(partition, batch, code)
        for batch, code in ((first, NETWORK), (second, OUT_OF_ORDER), (third, OUT_OF_ORDER))
    )
    may = [idempotence.may_send(partition, batch) for batch in (first, second, third)]
    assert may == [True, False, False]
    idempotence.acknowledged(partition, first, 0)
    assert idempotence.may_send(partition, second)
    assert [batch.state for batch in (second, third)] == [(0, 5), (0, 10)]


def test_a_gap_before_the_next_in_line_begins_a_new_epoch() -> None:
    idempotence, partition = producer()
    first, second, third = send(idempotence, partition, 3)
    idempotence.acknowledged(partition, first, 0)
    assert idempotence.may_retry(partition, second, OUT_OF_ORDER)
    assert not idempotence.may_send(partition, second)
    idempotence.start_requested_epoch()
    assert idempotence.may_send(partition, second)
    assert [batch.state for batch in (second, third)] == [(1, 0), (1, 5)]
    # The response for the third batch was in flight and refers to a sequence already replaced.
    assert idempotence.may_retry(partition, third, OUT_OF_ORDER)
    idempotence.start_requested_epoch()
    assert third.state == (1, 5)


@pytest.mark.parametrize(
    ("is_transactional", "log_start_offset", "was_acked", "retried", "epoch"),
    [
        (False, 0, 0, True, 1),
        (False, 100, 0, True, 1),
        (False, -1, 0, True, 0),  # log start offset unknown: retry
        (True, 100, 0, True, 0),  # all written records are deleted: restart at 0 in the same epoch
        (True, 0, 0, False, 0),  # the transaction must be aborted
    ],
)
def test_a_broker_that_does_not_know_the_producer(
    is_transactional: bool, log_start_offset: int, was_acked: int, retried: bool, epoch: int
) -> None:
    idempotence, partition = producer(is_transactional=is_transactional)
    first, second = send(idempotence, partition, 2)
    idempotence.acknowledged(partition, first, was_acked)
    assert idempotence.may_retry(partition, second, UNKNOWN, log_start_offset) == retried
    idempotence.start_requested_epoch()
    assert idempotence.producer_epoch == epoch
    restarted = retried and log_start_offset != -1
    assert second.state == ((epoch, 0) if restarted else (0, 5))


def test_what_fails_for_good_leaves_no_gap() -> None:
    idempotence, partition = producer()
    first, second = send(idempotence, partition, 2)
    idempotence.failed(partition, first, ErrorCode.INVALID_RECORD, surely_not_written=True)
    idempotence.start_requested_epoch()
    assert second.state == (1, 0)


def test_a_batch_that_may_have_been_written_is_tried_again_before_a_new_epoch_begins() -> None:
    idempotence, partition = producer()
    first, second, third = send(idempotence, partition, 3)
    first.may_be_written = True
    assert idempotence.may_retry(partition, first, NETWORK)
    idempotence.failed(partition, second, ErrorCode.INVALID_RECORD, surely_not_written=True)
    assert idempotence.may_retry(partition, third, OUT_OF_ORDER)
    idempotence.start_requested_epoch()
    assert first.state == (0, 0)
    assert idempotence.may_send(partition, first)
    assert not idempotence.may_send(partition, third)
    idempotence.acknowledged(partition, first, 0)
    idempotence.start_requested_epoch()
    assert third.state == (1, 0)
    assert idempotence.may_send(partition, third)


def test_in_a_transaction_the_others_move_up() -> None:
    idempotence, partition = producer(is_transactional=True)
    first, second, third = send(idempotence, partition, 3)
    idempotence.failed(partition, second, ErrorCode.INVALID_RECORD, surely_not_written=True)
    idempotence.start_requested_epoch()
    assert [batch.state for batch in (first, third)] == [(0, 0), (0, 5)]
    assert partition.next_sequence == 10


def test_after_a_batch_of_unknown_fate_nothing_new_goes_until_the_rest_is_answered() -> None:
    idempotence, partition = producer()
    first, second = send(idempotence, partition, 2)
    idempotence.failed(partition, first, NETWORK, surely_not_written=False)
    assert not idempotence.may_send(partition, Batch())
    # This success proves that the first batch was written.
    idempotence.acknowledged(partition, second, 5)
    assert idempotence.resolve(partition)
    idempotence.start_requested_epoch()
    assert send(idempotence, partition, 1)[0].state == (0, 10)


def test_a_batch_of_unknown_fate_that_was_last_begins_a_new_epoch() -> None:
    idempotence, partition = producer()
    (only,) = send(idempotence, partition, 1)
    idempotence.failed(partition, only, NETWORK, surely_not_written=False)
    assert idempotence.resolve(partition)
    idempotence.start_requested_epoch()
    assert send(idempotence, partition, 1)[0].state == (1, 0)


def test_in_a_transaction_an_unknown_fate_cannot_be_resolved() -> None:
    idempotence, partition = producer(is_transactional=True)
    (only,) = send(idempotence, partition, 1)
    idempotence.failed(partition, only, NETWORK, surely_not_written=False)
    assert not idempotence.resolve(partition)


def test_other_partitions_enter_the_new_epoch_when_nothing_of_the_old_is_open() -> None:
    idempotence, partition = producer()
    other = PartitionSequences()
    (theirs,) = send(idempotence, other, 1)
    idempotence.request_new_epoch(partition)
    idempotence.start_requested_epoch()
    assert not idempotence.may_send(other, Batch())
    assert idempotence.may_send(other, theirs)
    idempotence.acknowledged(other, theirs, 0)
    assert send(idempotence, other, 1)[0].state == (1, 0)


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    idempotence, partition = producer()
    idempotence.set_producer_id(7, MAX_EPOCH)
    first, second = send(idempotence, partition, 2)
    idempotence.failed(partition, first, ErrorCode.INVALID_RECORD, surely_not_written=True)
    idempotence.start_requested_epoch()
    assert not idempotence.has_producer_id
    assert not idempotence.may_send(partition, second)
    idempotence.set_producer_id(8, 0)
    assert (second.producer_id, *second.state) == (8, 0, 0)
    assert idempotence.may_send(partition, second)


# ------------------------------------------------------------------ against a broker model


class BrokerModel:
    """Model of how a partition leader checks sequence numbers."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epoch = -1
        self.next_sequence = 0
        self.recent: list[tuple[int, int]] = []

    def append(self, name: int, batch: Batch) -> ErrorCode:
        if batch.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > self.epoch:
            if batch.base_sequence != 0:
                return OUT_OF_ORDER
            self.recent = []
        elif (batch.producer_epoch, batch.base_sequence) in self.recent:
            return ErrorCode.NONE
        elif batch.base_sequence != self.next_sequence:
            return UNKNOWN if self.epoch < 0 else OUT_OF_ORDER
        self.epoch = batch.producer_epoch
        self.next_sequence = batch.base_sequence + batch.count
        self.recent = [*self.recent, (batch.producer_epoch, batch.base_sequence)][-5:]
        self.log.append(name)
        return ErrorCode.NONE


OUTCOMES = ("ok", "lost request", "lost answer", "not leader", "refused")


class World:
    """A producer with twenty batches to send and the broker that receives them."""

    def __init__(self) -> None:
        self.idempotence, self.partition = producer()
        self.broker = BrokerModel()
        self.waiting: list[tuple[int, Batch]] = [(name, Batch(1 + name % 3)) for name in range(20)]
        self.refused: list[int] = []
        self.acknowledged: list[int] = []

    def round(self, outcomes: list[str]) -> None:
        """Send the batches that may be sent and give each request an outcome.

        A connection that loses a request or a response loses all later ones too."""
        self.idempotence.start_requested_epoch()
        requests = self._requests(len(outcomes))
        is_cut = False
        answers: list[tuple[int, Batch, ErrorCode]] = []
        for (name, batch), outcome in zip(requests, outcomes, strict=False):
            code = NETWORK if is_cut else self._meet(name, batch, outcome)
            is_cut = is_cut or code == NETWORK
            answers.append((name, batch, code))
        again = [(name, batch) for name, batch, code in answers if self._answer(name, batch, code)]
        self.waiting[:0] = again

    def _requests(self, count: int) -> list[tuple[int, Batch]]:
        requests: list[tuple[int, Batch]] = []
        while self.waiting and len(requests) < count:
            batch = self.waiting[0][1]
            if not self.idempotence.may_send(self.partition, batch):
                break
            if not batch.has_sequence:
                self.idempotence.assign(self.partition, batch)
            batch.sequence_was_reset = False
            requests.append(self.waiting.pop(0))
        return requests

    def _meet(self, name: int, batch: Batch, outcome: str) -> ErrorCode:
        if outcome == "lost request":
            return NETWORK
        if outcome == "not leader":
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if outcome == "refused" and not batch.may_be_written:
            return ErrorCode.INVALID_RECORD
        code = self.broker.append(name, batch)
        return NETWORK if outcome == "lost answer" else code

    def _answer(self, name: int, batch: Batch, code: ErrorCode) -> bool:
        """Handle a response and return whether the batch must be sent again."""
        if code == NETWORK:
            batch.may_be_written = True
        if code == ErrorCode.NONE:
            self.idempotence.acknowledged(self.partition, batch, 0)
            self.acknowledged.append(name)
            return False
        if self.idempotence.may_retry(self.partition, batch, code, 0):
            return True
        assert code == ErrorCode.INVALID_RECORD
        self.idempotence.failed(self.partition, batch, code, surely_not_written=True)
        self.refused.append(name)
        return False


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=5), max_size=30))
def test_whatever_happens_to_requests_each_batch_arrives_once_and_in_order(
    rounds: list[list[str]],
) -> None:
    world = World()
    for outcomes in [*rounds, *[["ok"] * 5] * 60]:
        world.round(outcomes)
    assert not world.waiting
    expected = [name for name in range(20) if name not in world.refused]
    # A response may arrive late although the broker has the batch, so compare the log's order.
    assert world.broker.log == sorted(world.acknowledged) == expected
