"""Tests of edge cases of transactional IDs, found by the model test or by other clients."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.txn import machine
from ottla.core.txn.events import AddPartitionsRequested, EndRequested, InitRequested
from ottla.core.txn.records import Transaction, TransactionState

LAST_GIVEN = machine.LAST_EPOCH - 1


def test_a_producer_with_a_new_id_that_begins_before_its_markers_are_written_asks_again() -> None:
    """The producer's epochs are exhausted, so ending its transaction assigns a new producer ID."""
    known = Transaction(101, LAST_GIVEN, 1_000, TransactionState.EMPTY, frozenset(), 0)
    end = EndRequested(
        None, "id", ProducerIdAndEpoch(101, LAST_GIVEN), False, 2, new_producer_id=102
    )
    prepared = machine.end(known, end, 1)
    assert prepared is not None
    new = machine.producer_after(prepared)
    assert new == (102, 0)

    begin = InitRequested(None, "id", 1_000, new)
    with pytest.raises(KafkaError) as refused:
        machine.begin_producer(prepared, begin, 2)
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    begun = machine.begin_producer(machine.complete(prepared, 3), begin, 4)
    assert (begun.producer_id, begun.producer_epoch) == (102, 1)


PARTITION = TopicPartition("t", 0)


def decided(epoch: int, new_producer_id: int = -1) -> Transaction:
    """Return a transaction of producer 101 that commits but has no markers written yet."""
    ongoing = Transaction(
        101, epoch, 1_000, TransactionState.ONGOING, frozenset({PARTITION}), 0, client_version=2
    )
    end = EndRequested(None, "id", ProducerIdAndEpoch(101, epoch), True, 2, new_producer_id)
    prepared = machine.end(ongoing, end, 1)
    assert prepared is not None
    return prepared


@pytest.mark.parametrize(
    ("epoch", "new_id", "after"),
    [(5, -1, ProducerIdAndEpoch(101, 6)), (LAST_GIVEN, 102, ProducerIdAndEpoch(102, 0))],
    ids=["next epoch", "next producer id"],
)
@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_that_continues_before_its_markers_are_written_must_retry(
    epoch: int, new_id: int, after: ProducerIdAndEpoch, commit: bool
) -> None:
    prepared = decided(epoch, new_id)
    assert machine.producer_after(prepared) == after
    for who in (after, ProducerIdAndEpoch(101, epoch)):
        with pytest.raises(KafkaError) as refused:
            machine.end(prepared, EndRequested(None, "id", who, commit, 2, 103), 2)
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        add = AddPartitionsRequested(None, "id", who, frozenset({PARTITION}), 2)
        with pytest.raises(KafkaError) as refused:
            machine.add_partitions(prepared, add, 2)
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(KafkaError) as refused:
            machine.verify_partition(prepared, who, PARTITION)
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS

    complete = machine.complete(prepared, 3)
    retry = EndRequested(None, "id", ProducerIdAndEpoch(101, epoch), True, 2)
    assert machine.end(complete, retry, 4) is None, "the same end again is granted"
    aborted = machine.end(complete, EndRequested(None, "id", after, False, 2, 103), 4)
    assert aborted is not None
    assert aborted.state is TransactionState.PREPARE_ABORT


def test_a_transaction_that_times_out_in_the_last_epoch_gives_its_producer_a_new_id() -> None:
    """The epoch that fences the old producer must never be assigned to a producer."""
    ongoing = Transaction(101, LAST_GIVEN, 1_000, TransactionState.ONGOING, frozenset(), 0)
    complete = machine.complete(machine.abort_with_fence(ongoing, 102, 1), 2)
    assert (complete.producer_id, complete.producer_epoch) == (102, 0)
    before = ProducerIdAndEpoch(101, LAST_GIVEN)
    assert machine.end(complete, EndRequested(None, "id", before, False, 2), 3) is None
    begun = machine.begin_producer(complete, InitRequested(None, "id", 1_000, before), 3)
    assert (begun.producer_id, begun.producer_epoch) == (102, 0)
    with pytest.raises(KafkaError) as refused:
        machine.end(complete, EndRequested(None, "id", before, True, 2), 3)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
