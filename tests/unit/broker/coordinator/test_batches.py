"""Tests of packing coordinator decisions into record batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.broker.coordinator_batches import PlannedAppend, plan_appends
from ottla.core.coordinator import Decision, ProducerIdAndEpoch
from ottla.wire.records.batch import read_header, validate
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import iter_records

NOW_MS = 1_700_000_000_000
Pair = tuple[bytes, bytes | None]


def plan(*decisions: Decision, max_bytes: int = 1_000, compression: int = 0) -> list[PlannedAppend]:
    return plan_appends(decisions, lambda record: record, NOW_MS, max_bytes, compression)


def pairs(append: PlannedAppend) -> list[Pair]:
    header = read_header(append.batch)
    validate(append.batch, 0, header, from_client=True)
    records = list(iter_records(append.batch, header))
    assert {record.timestamp for record in records} == {NOW_MS}
    return [(record.key or b"", record.value) for record in records]


def test_decisions_share_a_batch() -> None:
    first, second = Decision(records=[(b"a", b"1"), (b"b", None)]), Decision(records=[(b"c", b"")])
    (append,) = plan(first, second)
    assert pairs(append) == append.records == [(b"a", b"1"), (b"b", None), (b"c", b"")]
    assert append.completes == [first, second]


def test_a_batch_is_no_larger_than_allowed() -> None:
    decisions = [Decision(records=[(b"k", bytes(300))]) for _ in range(7)]
    appends = plan(*decisions)
    assert [len(append.completes) for append in appends] == [2, 2, 2, 1]
    assert all(len(append.batch) <= 1_000 for append in appends)


def test_an_atomic_decision_is_not_divided() -> None:
    small, whole = (
        Decision(records=[(b"k", bytes(300))]),
        Decision(records=[(b"k", bytes(400))] * 2),
    )
    appends = plan(small, whole, small)
    assert [len(append.records) for append in appends] == [1, 2, 1]


def test_a_decision_that_is_not_atomic_may_be_divided() -> None:
    large = Decision(records=[(b"k%d" % n, bytes(100)) for n in range(30)], is_atomic=False)
    appends = plan(large)
    assert [pair for append in appends for pair in pairs(append)] == large.records
    assert [append.completes for append in appends] == [[]] * (len(appends) - 1) + [[large]]


@pytest.mark.parametrize("is_atomic", [True, False])
def test_what_cannot_fit_fails_alone(is_atomic: bool) -> None:
    fine, large = (
        Decision(records=[(b"k", b"")]),
        Decision(records=[(b"k", bytes(1_000))], is_atomic=is_atomic),
    )
    before, failed, after = plan(fine, large, fine)
    assert failed.completes == [large]
    assert failed.error is not None
    assert failed.error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert before.error is after.error is None


records = st.lists(
    st.tuples(st.binary(max_size=90), st.none() | st.binary(max_size=200)), min_size=1
)


@given(records, st.sampled_from([0, 1, 4]))
def test_batches_are_those_that_the_builder_makes(given: list[Any], compression: int) -> None:
    (append,) = plan(Decision(records=given), max_bytes=1 << 20, compression=compression)
    fields = [(key, value, (), NOW_MS) for key, value in given]
    assert pairs(append) == given
    if not compression:
        assert append.batch == build_batch(fields)


def test_a_batch_belongs_to_one_transaction_or_to_none() -> None:
    plain = Decision(records=[(b"k", b"")])
    first = Decision(records=[(b"k", b"")], producer=ProducerIdAndEpoch(7, 2))
    second = Decision(records=[(b"k", b"")], producer=ProducerIdAndEpoch(8, 0))
    appends = plan(plain, first, first, second, plain, plain)
    assert [len(append.records) for append in appends] == [1, 2, 1, 2]
    headers = [read_header(append.batch) for append in appends]
    assert [each.is_transactional for each in headers] == [False, True, True, False]
    producers = [(each.producer_id, each.producer_epoch, each.base_sequence) for each in headers]
    assert producers == [(-1, -1, -1), (7, 2, -1), (8, 0, -1), (-1, -1, -1)]
    assert [append.producer.id for append in appends] == [-1, 7, 8, -1]


def test_batches_of_a_transaction_are_no_larger_than_allowed() -> None:
    large = Decision(
        records=[(b"k", bytes(300))] * 5, is_atomic=False, producer=ProducerIdAndEpoch(7, 2)
    )
    appends = plan(large)
    assert [read_header(append.batch).producer_id for append in appends] == [7] * len(appends)
    assert len(appends) == 3
