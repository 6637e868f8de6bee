"""Tests of a leader's view of its replicas: high watermark, ISR expansion and shrinking."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from ottla.base.cluster import PartitionState
from ottla.core.replication.leadership import NEVER, Leadership

MAX_LAG_S = 10.0


def state(isr: dict[int, int], epoch: int = 0, leader_epoch: int = 5) -> PartitionState:
    return PartitionState(
        1, leader_epoch, tuple(isr), (1, 2, 3), (), (), epoch, tuple(isr.values())
    )


def leading(isr: dict[int, int], *, start: int = 100, high_watermark: int = 100) -> Leadership:
    return Leadership(
        1, isr[1], state(isr), epoch_start_offset=start, high_watermark=high_watermark, now=0.0
    )


def test_the_watermark_is_the_least_end_in_the_isr() -> None:
    leadership = leading({1: 0, 2: 0, 3: 0})
    assert not leadership.advance(130), "nobody has fetched yet"
    assert leadership.fetched(2, 0, 120, 130, 1.0)
    assert not leadership.advance(130)
    assert leadership.fetched(3, 0, 110, 130, 1.0)
    assert leadership.advance(130)
    assert leadership.high_watermark == 110


def test_a_pending_shrink_does_not_move_the_watermark() -> None:
    leadership = leading({1: 0, 2: 0, 3: 0})
    leadership.fetched(2, 0, 130, 130, 1.0)
    leadership.fetched(3, 0, 110, 130, 1.0)
    leadership.advance(130)
    leadership.propose({1: 0, 2: 0})
    assert not leadership.advance(130)
    leadership.apply_state(state({1: 0, 2: 0}, epoch=1), 2.0)
    assert leadership.advance(130)
    assert leadership.high_watermark == 130


def test_a_pending_member_holds_the_watermark_back_already() -> None:
    leadership = leading({1: 0, 2: 0})
    leadership.fetched(2, 0, 130, 130, 1.0)
    leadership.advance(130)
    leadership.fetched(3, 7, 130, 130, 1.0)
    joined = leadership.expanded_isr(3)
    assert joined == {1: 0, 2: 0, 3: 7}
    proposal = leadership.propose(joined)
    leadership.fetched(2, 0, 150, 150, 2.0)
    assert not leadership.advance(150)
    leadership.rejected(proposal)
    assert leadership.advance(150)


def test_a_refusal_that_comes_late_leaves_the_next_proposal_pending() -> None:
    leadership = leading({1: 0, 2: 0})
    for follower in (2, 3):
        leadership.fetched(follower, 0, 130, 130, 1.0)
    late = leadership.propose({1: 0})
    leadership.apply_state(state({1: 0, 2: 0}, epoch=1), 2.0)
    joined = leadership.expanded_isr(3)
    assert joined is not None
    leadership.propose(joined)
    leadership.rejected(late)
    leadership.fetched(2, 0, 150, 150, 3.0)
    assert leadership.advance(150)
    assert leadership.high_watermark == 130, "3 may be a member by now"


def test_a_proposal_is_for_the_state_it_was_made_of() -> None:
    leadership = leading({1: 0, 2: 0})
    leadership.fetched(3, 7, 130, 130, 1.0)
    joined = leadership.expanded_isr(3)
    assert joined is not None
    proposal = leadership.propose(joined)
    leadership.apply_state(state({1: 0}, epoch=1), 2.0)
    assert proposal.partition_epoch == 0
    assert proposal.joining == {3: 7}


def test_acks_are_granted_by_the_committed_isr_alone() -> None:
    leadership = leading({1: 0})
    leadership.fetched(2, 0, 100, 100, 1.0)
    leadership.propose({1: 0, 2: 0})
    assert not leadership.has_min_isr(2)
    leadership.apply_state(state({1: 0, 2: 0}, epoch=1), 1.0)
    assert leadership.has_min_isr(2)


def test_a_follower_joins_only_with_the_watermark_and_the_start_of_the_epoch() -> None:
    leadership = leading({1: 0}, start=120, high_watermark=100)
    leadership.advance(110)
    for offset, joins in ((109, False), (119, False), (120, True)):
        leadership.fetched(2, 0, offset, 130, 1.0)
        assert (leadership.expanded_isr(2) is not None) is joins


def test_an_older_incarnation_is_a_ghost_and_a_newer_one_proves_itself_anew() -> None:
    leadership = leading({1: 0, 2: 4})
    leadership.fetched(2, 4, 130, 130, 1.0)
    leadership.advance(130)
    assert not leadership.fetched(2, 3, 500, 130, 1.0)
    assert leadership.fetched(2, 5, 90, 130, 2.0)
    assert not leadership.advance(140), "the member that the store knows is gone"
    assert leadership.shrunk_isr(2.0, MAX_LAG_S) == {1: 0}


def test_followers_prove_by_their_second_fetch_that_they_followed_at_the_first() -> None:
    leadership = leading({1: 0, 2: 0, 3: 0})
    for now, expected in ((1.0, NEVER), (2.0, 1.0), (3.0, 2.0)):
        leadership.fetched(2, 0, 100, 100, now)
        leadership.fetched(3, 0, 100, 100, now)
        assert leadership.followed_since() == expected
    leadership.fetched(3, 1, 100, 100, 4.0)
    assert leadership.followed_since() == NEVER, "the member that the store knows is gone"
    assert leading({1: 0}).followed_since() == NEVER, "there is nobody to tell"


def test_a_replica_that_may_have_joined_the_isr_must_follow_too() -> None:
    """A proposed ISR member may already be the leader, as in the simulation with seed 9083."""
    leadership = leading({1: 0})
    leadership.propose({1: 0, 2: 0})
    assert leadership.followed_since() == NEVER
    for now in (1.0, 2.0):
        leadership.fetched(2, 0, 100, 100, now)
    assert leadership.followed_since() == 1.0


def test_strangers_are_no_followers() -> None:
    leadership = leading({1: 0})
    assert not leadership.fetched(9, 0, 100, 100, 1.0)
    assert not leadership.fetched(1, 0, 100, 100, 1.0)


def test_who_has_not_been_caught_up_for_too_long_is_thrown_out() -> None:
    leadership = leading({1: 0, 2: 0, 3: 0})
    leadership.fetched(2, 0, 130, 130, 9.0)
    assert leadership.shrunk_isr(10.0, MAX_LAG_S) is None
    assert leadership.shrunk_isr(10.5, MAX_LAG_S) == {1: 0, 2: 0}


def test_a_steady_writer_throws_no_good_follower_out() -> None:
    leadership = leading({1: 0, 2: 0})
    end = 100
    for second in range(60):
        leadership.fetched(2, 0, end, end + 50, float(second))
        end += 50
        assert leadership.shrunk_isr(float(second), 2.0) is None


def test_states_of_other_epochs_and_older_ones_are_ignored() -> None:
    leadership = leading({1: 0, 2: 0})
    leadership.apply_state(state({1: 0}, epoch=9, leader_epoch=6), 1.0)
    assert set(leadership.isr) == {1, 2}
    leadership.apply_state(state({1: 0}, epoch=3), 1.0)
    leadership.apply_state(state({1: 0, 2: 0}, epoch=2), 1.0)
    assert set(leadership.isr) == {1}


def test_only_a_member_that_others_could_replace_is_alone() -> None:
    leadership = leading({1: 0})
    assert leadership.is_sole_isr_member
    leadership.fetched(2, 0, 100, 100, 1.0)
    leadership.propose({1: 0, 2: 0})
    assert not leadership.is_sole_isr_member
    only_replica = state({1: 0})._replace(replicas=(1,))
    sole = Leadership(1, 0, only_replica, epoch_start_offset=0, high_watermark=0, now=0.0)
    assert not sole.is_sole_isr_member


@given(
    st.lists(
        st.tuples(st.sampled_from([2, 3]), st.integers(90, 200), st.integers(0, 60)), max_size=40
    )
)
def test_the_watermark_never_goes_back_nor_beyond_a_member(
    fetches: list[tuple[int, int, int]],
) -> None:
    leadership = leading({1: 0, 2: 0, 3: 0})
    end, ends = 100, {2: -1, 3: -1}
    for follower, offset, appended in fetches:
        end += appended
        before = leadership.high_watermark
        ends[follower] = max(ends[follower], min(offset, end))
        leadership.fetched(follower, 0, ends[follower], end, 0.0)
        leadership.advance(end)
        assert before <= leadership.high_watermark
        assert leadership.high_watermark <= max(100, min(end, *ends.values()))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([2, 3]),
            st.sampled_from([0, 0, 0, 1]),
            st.sampled_from(["at the end", "at the end", "behind"]),
            st.sampled_from([0, 0, 0, 5]),
            st.sampled_from([None, None, None, None, (1, 2), (1, 2, 3)]),
        ),
        max_size=40,
    )
)
def test_a_fetch_without_changes_has_the_effect_of_any_other(
    fetches: list[tuple[int, int, str, int, tuple[int, ...] | None]],
) -> None:
    plain, quick = (leading({1: 0, 2: 0, 3: 0}) for _ in range(2))
    end, was_quick = 100, False
    for number, (follower, incarnation, where, appended, isr) in enumerate(fetches):
        now = float(number)
        end += appended
        if isr is not None:
            for each in (plain, quick):
                each.apply_state(state(dict.fromkeys(isr, 0), epoch=number), now)
                each.advance(end)
        offset = end if where == "at the end" else end - 3
        is_ours = plain.fetched(follower, incarnation, offset, end, now)
        if offset == end and quick.fetched_again(follower, incarnation, end, now):
            was_quick = True
            assert is_ours
            assert not plain.advance(end), "nothing follows from it"
            assert plain.expanded_isr(follower) is None
        else:
            assert quick.fetched(follower, incarnation, offset, end, now) == is_ours
            assert plain.advance(end) == quick.advance(end)
        assert [plain.progress(each) for each in (2, 3)] == [
            quick.progress(each) for each in (2, 3)
        ]
        assert plain.followed_since() == quick.followed_since()
        assert plain.shrunk_isr(now, 2.0) == quick.shrunk_isr(now, 2.0)
    event("some were quick" if was_quick else "none was quick")


def test_a_fetch_is_without_changes_only_if_the_replica_was_at_the_end_before() -> None:
    leadership = leading({1: 0, 2: 0})
    assert not leadership.fetched_again(2, 0, 100, 1.0), "it was never heard of"
    leadership.fetched(2, 0, 100, 100, 1.0)
    leadership.fetched(3, 4, 100, 100, 1.0)
    assert leadership.fetched_again(2, 0, 100, 2.0)
    assert not leadership.fetched_again(2, 0, 120, 2.0), "it has more than before"
    assert not leadership.fetched_again(2, 1, 100, 2.0), "it is another"
    assert not leadership.fetched_again(3, 4, 100, 2.0), "it may join"
    assert not leadership.fetched_again(9, 0, 100, 2.0)
    assert leadership.shrunk_isr(12.0, MAX_LAG_S) is None
    assert leadership.shrunk_isr(12.5, MAX_LAG_S) == {1: 0}
