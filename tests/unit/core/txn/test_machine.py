"""Corners of a transactional id's life that the model test found."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import Producer
from ottla.core.txn import machine
from ottla.core.txn.events import EndRequested, InitRequested
from ottla.core.txn.records import Transaction, TransactionState

LAST_GIVEN = machine.LAST_EPOCH - 1


def test_a_producer_with_a_new_id_that_begins_before_its_markers_are_written_asks_again() -> None:
    """Its epochs were used up, so that the end of its transaction gave it another id."""
    known = Transaction(101, LAST_GIVEN, 1_000, TransactionState.EMPTY, frozenset(), 0)
    end = EndRequested(None, "id", Producer(101, LAST_GIVEN), False, 2, new_producer_id=102)
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
