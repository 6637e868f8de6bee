"""Tokens for changes of partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.quota.token_bucket import TokenBucket


def test_a_bucket_begins_with_the_tokens_of_all_windows() -> None:
    bucket = TokenBucket(2.0, 11, 1.0)
    bucket.take(22, 100.0)
    assert bucket.throttle_s(100.0) == 0
    bucket.take(10, 100.0)
    assert bucket.throttle_s(100.0) == 5.0
    assert bucket.throttle_s(103.0) == 2.0
    assert bucket.throttle_s(105.0) == 0
    assert not bucket.is_idle(115.9)
    assert bucket.is_idle(116.0)


def test_a_request_may_take_more_than_the_bucket_has() -> None:
    bucket = TokenBucket(1.0, 11, 1.0)
    bucket.take(1000, 5.0)
    assert bucket.throttle_s(5.0) == 989.0


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 50)), max_size=50))
def test_a_client_that_waits_takes_the_burst_and_the_rate(
    changes: list[tuple[float, int]],
) -> None:
    bucket, begin, now, taken = TokenBucket(3.0, 11, 1.0), 7.0, 7.0, 0
    for pause_s, count in changes:
        now += pause_s
        now += bucket.throttle_s(now) + 1e-9
        assert taken <= 33 + 3.0 * (now - begin) + 1e-6
        bucket.take(count, now)
        taken += count
