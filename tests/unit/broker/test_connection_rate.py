"""Tests of the connection creation rate limit."""

from __future__ import annotations

import pytest

from ottla.broker.connection_rate import RECHECK_S, UNLIMITED, ConnectionRate


def taken(rate: ConnectionRate, per_second: int, now: float) -> int:
    """Return the number of connections that the limit accepts at this moment."""
    count = 0
    while rate.try_acquire(per_second, now):
        count += 1
    return count


def test_a_second_of_connections_passes_at_once_and_then_the_rate_is_kept() -> None:
    rate = ConnectionRate()
    assert taken(rate, 10, 100.0) == 10
    assert rate.wait_s(10) == pytest.approx(0.1)
    assert taken(rate, 10, 100.25) == 2
    assert taken(rate, 10, 100.5) == 3
    assert taken(rate, 10, 1_000.0) == 10


def test_without_a_limit_nothing_waits() -> None:
    rate = ConnectionRate()
    assert all(rate.try_acquire(UNLIMITED, 0.0) for _ in range(1_000))


def test_a_rate_of_zero_accepts_no_connection_until_it_is_changed() -> None:
    rate = ConnectionRate()
    assert taken(rate, 0, 5.0) == 0
    assert rate.wait_s(0) == RECHECK_S
    assert taken(rate, 1, 6.0) == 1


def test_a_low_rate_is_looked_at_again_every_second() -> None:
    rate = ConnectionRate()
    assert taken(rate, 1, 0.0) == 1
    assert rate.wait_s(1) == RECHECK_S
