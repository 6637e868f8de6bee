"""Tests of JoinGroup: which members are accepted, and the rebalance that follows."""

from __future__ import annotations

import pytest
from tests.unit.core.group.scenario import (
    GROUP,
    NO_DELAY,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Scenario,
    subscription,
)

from ottla.base.errors import ErrorCode
from ottla.core.group.classic import GroupState
from ottla.core.group.settings import GroupSettings


def test_a_new_member_is_given_an_id_first() -> None:
    scenario = Scenario()
    call = scenario.join()
    assert call.code is ErrorCode.MEMBER_ID_REQUIRED
    assert call.member_id.startswith("client-")
    assert scenario.state is GroupState.EMPTY
    assert not scenario.join(call.member_id).is_done
    assert scenario.state is GroupState.PREPARING_REBALANCE


def test_an_old_client_comes_in_without_an_id() -> None:
    scenario = Scenario()
    call = scenario.join(id_required=False)
    assert not call.is_done
    scenario.pass_ms(3_000)
    assert call.generation == 1
    assert call.answer["leader"] == call.member_id


def test_an_id_that_is_not_used_is_forgotten_and_so_is_its_group() -> None:
    scenario = Scenario()
    scenario.join()
    scenario.pass_ms(SESSION_MS)
    assert scenario.state is GroupState.DEAD
    assert not scenario.timers
    assert not scenario.log


def test_the_first_rebalance_waits_for_more_members() -> None:
    scenario = Scenario()
    first = scenario.join_fully()
    scenario.pass_ms(2_999)
    assert not first.is_done
    second = scenario.join_fully()
    scenario.pass_ms(1)
    assert not first.is_done, "the second member prolonged the wait"
    scenario.pass_ms(3_000)
    assert first.generation == second.generation == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    scenario = Scenario()
    calls = [scenario.join_fully(rebalance_ms=7_000)]
    for _ in range(4):
        scenario.pass_ms(2_000)
        calls.append(scenario.join_fully(rebalance_ms=7_000))
    assert [call.is_done for call in calls] == [True] * 4 + [False], "ended after 7 s"


def test_without_a_delay_the_first_rebalance_ends_at_once() -> None:
    scenario = Scenario(NO_DELAY)
    call = scenario.join_fully()
    scenario.pass_ms(0)
    assert call.generation == 1


def test_only_the_leader_gets_the_list_of_members() -> None:
    scenario = Scenario()
    leader, other = scenario.join_fully(), scenario.join_fully(instance=None)
    scenario.pass_ms(6_000)
    assert leader.answer["leader"] == other.answer["leader"] == leader.member_id
    assert other.answer["members"] == []
    assert [(each["member_id"], each["metadata"]) for each in leader.answer["members"]] == [
        (leader.member_id, RANGE[0][1]),
        (other.member_id, RANGE[0][1]),
    ]
    assert leader.answer["protocol_name"] == "range"
    assert leader.answer["protocol_type"] == "consumer"


def test_each_member_votes_for_the_first_protocol_that_all_share() -> None:
    scenario = Scenario()
    a, b, c = subscription("a"), subscription("b"), subscription("c")
    calls = [
        scenario.join_fully(protocols=protocols)
        for protocols in (
            (("only-mine", a), ("range", b), ("sticky", c)),
            (("sticky", a), ("range", b)),
            (("sticky", a), ("range", b)),
        )
    ]
    scenario.pass_ms(9_000)
    assert {call.answer["protocol_name"] for call in calls} == {"sticky"}
    assert scenario.group.subscribed_topics == {"a", "c"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("consumer", (("roundrobin", b""),)),
        ("connect", RANGE),
        ("", RANGE),
        ("consumer", ()),
    ],
)
def test_who_shares_no_protocol_stays_out(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    scenario = Scenario()
    scenario.stable_group()
    call = scenario.join(protocol_type=protocol_type, protocols=protocols)
    assert call.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scenario.state is GroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_group_needs_a_protocol(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    scenario = Scenario()
    call = scenario.join(protocol_type=protocol_type, protocols=protocols)
    assert call.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scenario.state is GroupState.DEAD


def test_a_member_id_that_was_not_assigned_is_unknown() -> None:
    scenario = Scenario()
    call = scenario.join("made-up")
    assert (call.code, call.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made-up")
    scenario.stable_group()
    assert scenario.join("made-up").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_a_group_that_is_empty_now_is_unknown() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.leave(member.member_id)
    assert scenario.join(member.member_id).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_makes_a_stable_group_rebalance() -> None:
    scenario = Scenario()
    old = scenario.stable_group(2)
    new = scenario.join_fully()
    assert scenario.state is GroupState.PREPARING_REBALANCE
    again = [scenario.join(call.member_id) for call in old]
    assert scenario.state is GroupState.COMPLETING_REBALANCE, "all are there: nobody waits"
    assert {call.generation for call in (*again, new)} == {2}
    assert new.answer["leader"] == old[0].member_id, "the leader stays"


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    scenario = Scenario()
    (old,) = scenario.stable_group()
    scenario.join_fully()
    pending = scenario.join()
    again = scenario.join(old.member_id)
    assert not again.is_done
    scenario.join(pending.member_id)
    assert again.generation == 2
    assert len(again.answer["members"]) == 3


def test_the_leader_joining_again_makes_the_group_rebalance() -> None:
    scenario = Scenario()
    leader, _ = scenario.stable_group(2)
    assert not scenario.join(leader.member_id).is_done
    assert scenario.state is GroupState.PREPARING_REBALANCE


def test_a_follower_joining_again_unchanged_is_answered_at_once() -> None:
    scenario = Scenario()
    _, follower = scenario.stable_group(2)
    again = scenario.join(follower.member_id)
    assert again.generation == 1
    assert again.answer["members"] == []
    assert scenario.state is GroupState.STABLE
    assert scenario.sync(again).assignment == follower.member_id.encode()


def test_a_follower_joining_with_other_metadata_makes_the_group_rebalance() -> None:
    scenario = Scenario()
    _, follower = scenario.stable_group(2)
    changed = (("range", subscription("t", "u")),)
    assert not scenario.join(follower.member_id, protocols=changed).is_done
    assert scenario.state is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_is_given_again_while_assignments_are_awaited() -> None:
    scenario = Scenario()
    leader = scenario.join_fully()
    scenario.pass_ms(3_000)
    again = scenario.join(leader.member_id)
    assert again.answer == leader.answer
    assert scenario.state is GroupState.COMPLETING_REBALANCE


def test_changed_metadata_while_assignments_are_awaited_starts_over() -> None:
    scenario = Scenario()
    leader, other = scenario.join_fully(), scenario.join_fully()
    scenario.pass_ms(6_000)
    waiting = scenario.sync(other)
    scenario.join(leader.member_id, protocols=(("range", subscription("u")),))
    assert scenario.state is GroupState.PREPARING_REBALANCE
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_takes_the_place_of_the_first() -> None:
    scenario = Scenario()
    first = scenario.join_fully()
    member_id = next(iter(scenario.group.members))
    second = scenario.join(member_id)
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    scenario.pass_ms(3_000)
    assert second.generation == 1
    assert scenario.group.awaiting_joins == 0


def test_who_does_not_join_in_time_is_out() -> None:
    scenario = Scenario()
    leader, follower = scenario.stable_group(2)
    new = scenario.join_fully()
    for _ in range(REBALANCE_MS // 5_000):
        scenario.pass_ms(5_000)
        scenario.heartbeat(leader.member_id, 1)
        scenario.heartbeat(follower.member_id, 1)
    assert new.generation == 2
    assert new.answer["leader"] == new.member_id
    assert list(scenario.group.members) == [new.member_id]
    assert scenario.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leadership_passes_to_one_who_has_joined() -> None:
    scenario = Scenario()
    leader = scenario.join_fully(session_ms=300_000)
    follower = scenario.join_fully(session_ms=300_000)
    scenario.pass_ms(6_000)
    scenario.sync(follower)
    scenario.sync(leader)
    changed = scenario.join(follower.member_id, protocols=(("range", subscription("z")),))
    scenario.pass_ms(REBALANCE_MS)
    assert changed.answer["leader"] == follower.member_id


def test_a_new_member_whose_client_has_gone_is_dropped_in_the_end() -> None:
    scenario = Scenario()
    (old,) = scenario.stable_group(session_ms=1_000_000, rebalance_ms=1_000_000)
    ghost = scenario.join_fully(rebalance_ms=1_000_000)
    scenario.pass_ms(5 * 60_000)
    assert ghost.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(scenario.group.members) == [old.member_id]


def test_a_full_group_takes_no_more_members() -> None:
    scenario = Scenario(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    leader, follower = scenario.stable_group(2)
    assert scenario.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scenario.join(follower.member_id).generation == 1, "a member may join again"
    assert not scenario.join(leader.member_id).is_done


def test_a_group_over_its_size_keeps_those_who_join_first() -> None:
    scenario = Scenario(GroupSettings(initial_rebalance_delay_ms=0))
    members = scenario.stable_group(3)
    smaller = scenario.restarted(GroupSettings(max_size=2))
    assert smaller.state is GroupState.PREPARING_REBALANCE
    first, second = (smaller.join(member.member_id) for member in members[:2])
    third = smaller.join(members[2].member_id)
    assert (third.code, third.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert first.generation == second.generation == 2


def test_ids_given_out_are_limited() -> None:
    scenario = Scenario(GroupSettings(max_pending_joins=2))
    codes = [scenario.join().code for _ in range(3)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_groups_do_not_know_each_other() -> None:
    scenario = Scenario()
    scenario.stable_group()
    other = scenario.join_fully(group="other")
    scenario.pass_ms(3_000)
    assert other.generation == 1
    assert scenario.state is GroupState.STABLE
    assert set(scenario.shard.groups) == {GROUP, "other"}
