"""Tests of finding where two logs diverge, and that truncation makes them agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.replication.divergence import EpochEnd, diverges, truncation_offset

Log = list[int]
"""A log, as the leader epoch of each record."""


class History:
    def __init__(self, log: Log) -> None:
        self.log = log

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        older = [each for each in self.log if each <= epoch]
        return (older[-1], len(older)) if older else (-1, -1)


def follow(leader: Log, follower: Log, high_watermark: int) -> Log:
    """Truncate a follower's log until it no longer diverges, then append the leader's records."""
    log = list(follower)
    for _ in range(len(follower) + 2):
        last = log[-1] if log else -1
        end = EpochEnd(*History(leader).end_offset_for(last, len(leader)))
        parted = diverges(len(log), last, end)
        if parted is None:
            return log + leader[len(log) :]
        log = log[: truncation_offset(parted, History(log), len(log), high_watermark)]
    raise AssertionError("it does not end")


def test_logs_that_agree_part_nowhere() -> None:
    assert diverges(5, 2, EpochEnd(2, 5)) is None
    assert diverges(5, 2, EpochEnd(2, 9)) is None
    assert diverges(0, -1, EpochEnd(-1, -1)) is None


def test_they_part_where_the_epoch_ended_earlier_or_is_not_known() -> None:
    assert diverges(5, 2, EpochEnd(2, 3)) == EpochEnd(2, 3)
    assert diverges(5, 2, EpochEnd(1, 7)) == EpochEnd(1, 7)


@given(
    st.lists(st.integers(0, 2), max_size=6),
    st.lists(st.integers(1, 3), max_size=6),
    st.lists(st.integers(1, 3), max_size=6),
)
def test_a_follower_ends_with_the_leaders_log_and_keeps_what_they_share(
    shared: Log, of_leader: Log, of_follower: Log
) -> None:
    shared = sorted(shared)
    base = (shared[-1] if shared else 0) + 1
    # Only one broker appends in an epoch, so records that are not shared differ in their epochs.
    leader = shared + sorted(base + 2 * each for each in of_leader)
    follower = shared + sorted(base + 2 * each + 1 for each in of_follower)
    assert follow(leader, follower, len(shared)) == leader
