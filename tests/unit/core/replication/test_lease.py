"""Tests that no broker is replaced while it still considers its lease valid."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.replication.lease import GRACE, Lease, LeaseWatch


def test_a_lease_counts_from_when_its_renewal_was_sent() -> None:
    lease = Lease(2.0)
    assert not lease.is_held(0.0)
    lease.renewed(sent_at=10.0)
    assert lease.is_held(11.9)
    assert not lease.is_held(12.0)
    lease.renewed(sent_at=9.0)
    assert lease.is_held(11.9), "an answer that came late takes nothing away"


def test_an_observer_waits_longer_than_the_holder() -> None:
    watch = LeaseWatch(2.0)
    watch.observed(1, 10.0, version=3)
    assert watch.next_expiry(10.0) == 10.0 + 2.0 * GRACE
    assert watch.expired(12.4) == {}
    assert watch.expired(12.6) == {1: 3}
    watch.observed(1, 12.6, version=3)
    assert watch.expired(12.7) == {1: 3}, "the same version is no renewal"
    watch.observed(1, 12.7, version=4)
    assert watch.expired(12.8) == {}


def test_a_lease_that_was_given_back_is_over_at_once() -> None:
    watch = LeaseWatch(2.0)
    watch.observed(1, 10.0, version=3)
    watch.released(1, version=4)
    assert watch.expired(10.0) == {1: 4}
    watch.restart_expiry(11.0)
    assert watch.expired(11.0) == {1: 4}


def test_who_was_cut_off_counts_anew() -> None:
    watch = LeaseWatch(2.0)
    watch.observed(1, 10.0, version=3)
    watch.restart_expiry(100.0)
    assert watch.expired(102.0) == {}
    assert watch.expired(103.0) == {1: 3}


@given(
    renewals=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=20),
    drift=st.floats(0.91, 1.1),
)
def test_no_lease_is_both_held_and_over(renewals: list[tuple[float, float]], drift: float) -> None:
    """This holds for any delay between renewal and observation, with clocks that drift by 10 %."""
    lease, watch, now = Lease(2.0), LeaseWatch(2.0), 0.0
    for version, (pause, delay) in enumerate(renewals):
        now += pause
        lease.renewed(sent_at=now)
        watch.observed(1, (now + delay) * drift, version)
        for later in (0.5, 1.9, 2.0, 2.4, 2.6):
            at = now + delay + later
            if watch.expired(at * drift):
                assert not lease.is_held(at)
        now += delay
