"""Tests of throttled replication: which replicas are throttled, and their quota."""

from __future__ import annotations

import pytest

from ottla.core.replication.throttle import Quota, is_listed


@pytest.mark.parametrize(
    ("listed", "expected"),
    [((), False), (("*",), True), (("0:1", "0:2"), True), (("0:1", "1:2"), False)],
)
def test_a_replica_is_throttled_if_it_is_listed(listed: tuple[str, ...], expected: bool) -> None:
    assert is_listed(listed, 0, 2) is expected


def test_a_seconds_worth_may_be_used_at_once_and_then_the_rate_decides() -> None:
    allowance, now, sent = Quota(), 100.0, 0
    while now < 110.0:
        if not allowance.is_exhausted(1_000, now):
            allowance.record(300)
            sent += 300
        now += 0.01
    assert 1_000 * 10 <= sent <= 1_000 * 11 + 300


def test_a_batch_larger_than_a_seconds_worth_gets_through_and_is_paid_for() -> None:
    allowance = Quota()
    assert not allowance.is_exhausted(1_000, 0.0)
    allowance.record(5_000)
    assert allowance.is_exhausted(1_000, 3.9)
    assert not allowance.is_exhausted(1_000, 4.1)


def test_nothing_is_saved_up_beyond_a_second() -> None:
    allowance = Quota()
    allowance.is_exhausted(1_000, 0.0)
    assert not allowance.is_exhausted(1_000, 60.0)
    allowance.record(1_000)
    assert allowance.is_exhausted(1_000, 60.0)


def test_a_rate_of_nothing_lets_nothing_through() -> None:
    assert Quota().is_exhausted(0, 5.0)


def test_a_new_rate_keeps_the_debt() -> None:
    allowance = Quota()
    assert not allowance.is_exhausted(1_000, 0.0)
    allowance.record(3_000)
    assert allowance.is_exhausted(10_000, 0.1)
    assert not allowance.is_exhausted(10_000, 0.4)
