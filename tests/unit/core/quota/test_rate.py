"""The rate of a client: compared with a naive model, and its accuracy for greedy clients."""

from __future__ import annotations

import heapq
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.quota.rate import Rate

WINDOWS, SIZE_S = 11, 1.0
SPAN_S = 10.0
CREDIT_S = 0.25


class NaiveRate:
    """The same rule, from the list of everything that was ever recorded."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.uses: list[tuple[float, float]] = []
        self.paid_at = float("-inf")
        self.finish = float("-inf")

    def record(self, amount: float, now: float) -> float:
        self.uses.append((now, amount))
        self.finish = max(self.finish, now - CREDIT_S) + amount / self.limit
        if self.used(now) <= self.limit * SPAN_S * (1 + 1e-9):
            return 0.0
        self.paid_at = self.finish
        self.uses = []
        return max(0.0, self.paid_at - now)

    def used(self, now: float) -> float:
        total = 0.0
        for at, amount in self.uses:
            age = floor(now / SIZE_S) - floor(at / SIZE_S)
            if age < WINDOWS - 1:
                total += amount
            elif age == WINDOWS - 1:
                total += amount * (1 - (now / SIZE_S - floor(now / SIZE_S)))
        return total + self.limit * max(0.0, SPAN_S - (now - self.paid_at))


steps = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0.001, 0.5), st.floats(0.5, 30.0)),
        st.one_of(st.integers(1, 100), st.integers(100, 40_000)),
    ),
    max_size=80,
)


@given(steps, st.sampled_from([1.0, 100.0, 1000.0]))
def test_a_rate_decides_like_the_naive_model(uses: list[tuple[float, int]], limit: float) -> None:
    rate, model, now = Rate(limit, WINDOWS, SIZE_S), NaiveRate(limit), 1234.5
    for pause_s, amount in uses:
        now += pause_s
        assert rate.record(amount, now) == pytest.approx(model.record(amount, now), abs=1e-6)
        assert rate.throttle_s(now) == pytest.approx(max(0.0, model.paid_at - now), abs=1e-6)
        available = max(0.0, limit * SPAN_S - model.used(now))
        assert rate.available(now) == pytest.approx(available, abs=limit * 1e-6)


@given(steps)
def test_no_span_exceeds_the_limit_by_more_than_one_request_and_the_earned_burst(
    uses: list[tuple[float, int]],
) -> None:
    """A client that waits for each throttle time uses at most limit × (time + span) and the
    request that exceeded the limit."""
    rate, now, total = Rate(1000.0, WINDOWS, SIZE_S), 50.0, 0
    for pause_s, amount in uses:
        now += pause_s
        assert total <= 1000.0 * (now - 50.0 + SPAN_S + CREDIT_S) * (1 + 1e-6) + 40_000
        total += amount
        now += rate.record(amount, now)


def greedy_use(
    rate: Rate, sizes: list[float], seconds: float, *, begin: float = 100.3
) -> list[list[tuple[float, float]]]:
    """Return what each of several connections uses that only wait for their throttle times."""
    used: list[list[tuple[float, float]]] = [[] for _ in sizes]
    due = [(begin, index) for index in range(len(sizes))]
    link_free_at = begin
    while due[0][0] < begin + seconds:
        at, index = heapq.heappop(due)
        link_free_at = at = max(at, link_free_at) + sizes[index] / (rate.limit * 200)
        throttle_s = rate.record(sizes[index], at)
        used[index].append((at - begin, sizes[index]))
        heapq.heappush(due, (at + throttle_s + 0.0001, index))
    return used


def between(uses: list[tuple[float, float]], begin: float, end: float) -> float:
    return sum(amount for at, amount in uses if begin <= at < end)


@pytest.mark.parametrize("size", [0.0005, 0.001, 0.016, 0.1, 0.4])
def test_a_greedy_client_stays_within_five_percent_of_the_limit_over_ten_seconds(
    size: float,
) -> None:
    limit = 1_000_000.0
    (uses,) = greedy_use(Rate(limit, WINDOWS, SIZE_S), [size * limit], 60.0)
    for quarter in range(4 * 50):
        begin = quarter / 4
        mean = between(uses, begin, begin + 10) / 10
        assert mean <= 1.05 * limit, begin
        if not 0 < begin < 10.25:  # after the burst, the client waits for ten seconds
            assert mean >= 0.95 * limit, begin


@pytest.mark.parametrize("size", [1.0, 3.0, 9.9, 15.0, 40.0])
def test_requests_larger_than_a_window_keep_the_mean(size: float) -> None:
    limit = 1_000_000.0
    (uses,) = greedy_use(Rate(limit, WINDOWS, SIZE_S), [size * limit], 1000.0)
    last = uses[-1][0]
    # From the first request, and from any later one, until the last one is due.
    for begin in (0.0, uses[1][0], uses[2][0] if len(uses) > 2 else 0.0):
        mean = between(uses, begin, last) / (last - begin)
        assert mean <= 1.05 * limit
    assert between(uses, 0.0, last) >= 0.95 * limit * last


def test_a_client_waits_once_for_its_burst_and_is_then_served_evenly() -> None:
    (uses,) = greedy_use(Rate(1000.0, WINDOWS, SIZE_S), [100.0], 30.0)
    assert between(uses, 0, 1) == pytest.approx(10_000, abs=101)
    assert between(uses, 1, 9.7) == 0
    for second in range(11, 29):
        assert between(uses, second, second + 1) == pytest.approx(1000, abs=101)


@pytest.mark.parametrize("count", [2, 4, 16])
def test_connections_of_one_client_get_equal_shares(count: int) -> None:
    uses = greedy_use(Rate(1_000_000.0, WINDOWS, SIZE_S), [16_384.0] * count, 30.0)
    shares = [between(each, 10, 30) for each in uses]
    assert min(shares) >= 0.95 * max(shares)


def test_a_pause_earns_a_burst_again() -> None:
    rate = Rate(1000.0, WINDOWS, SIZE_S)
    assert rate.record(20_000, 5.0) == 20.0 - CREDIT_S
    assert rate.record(1, 24.75) > 0
    assert rate.record(3_900, 29.5) == 0  # four and a half seconds that were not used
    assert rate.record(5_000, 60.0) == 0
    assert rate.record(5_000, 60.0) == 0
    assert rate.record(1, 60.0) > 0


def test_use_below_the_limit_is_never_throttled() -> None:
    rate = Rate(1000.0, WINDOWS, SIZE_S)
    assert not any(rate.record(5_000, 10.0 + 5.5 * turn) for turn in range(100))


def test_a_limited_throttle_time_is_asked_for_again_until_the_debt_is_paid() -> None:
    rate = Rate(1.0, WINDOWS, SIZE_S, max_throttle_s=1.0)
    assert rate.record(1000, 5.0) == 1.0
    assert rate.throttle_s(10.0) == 1.0
    assert rate.throttle_s(14.5) == 0.5  # the debt is limited to the span
    assert rate.throttle_s(15.0) == 0.0


def test_one_window_is_a_span_of_its_own() -> None:
    rate = Rate(100.0, 1, 2.0)
    assert rate.span_s == 2.0
    assert rate.record(200, 10.0) == 0
    assert rate.record(100, 10.0) == pytest.approx(3.0 - 2.0 / 40)


def test_a_rate_is_idle_when_it_would_decide_like_a_new_one() -> None:
    rate = Rate(100.0, WINDOWS, SIZE_S)
    assert rate.is_idle(5.0)
    rate.record(2_000, 5.0)
    assert not rate.is_idle(34.7)
    assert rate.is_idle(34.8)
    rate.record(1, 40.0)
    assert not rate.is_idle(50.0)
    assert rate.is_idle(51.0)
