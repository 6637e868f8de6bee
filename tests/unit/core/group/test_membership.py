"""Tests of SyncGroup, Heartbeat, LeaveGroup, and of members whose session expires."""

from __future__ import annotations

from tests.unit.core.group.scenario import REBALANCE_MS, SESSION_MS, Call, Scenario

from ottla.base.errors import ErrorCode
from ottla.core.group.classic import GroupState
from ottla.core.group.records import GroupRecord


def completing_group(scenario: Scenario, size: int) -> list[Call]:
    calls = [scenario.join_fully() for _ in range(size)]
    scenario.pass_ms(3_000 if size == 1 else 6_000)
    assert scenario.state is GroupState.COMPLETING_REBALANCE
    return calls


def last_record(scenario: Scenario) -> GroupRecord:
    record = scenario.shard.decode(*scenario.log[-1][:2])
    assert isinstance(record, GroupRecord)
    return record


# ------------------------------------------------------------------------------------------ sync


def test_members_wait_for_the_leaders_assignment() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other)
    assert not waiting.is_done
    mine = scenario.sync(leader, {leader.member_id: b"1", other.member_id: b"2"})
    assert (mine.assignment, waiting.assignment) == (b"1", b"2")
    assert mine.answer["protocol_name"] == "range"
    assert scenario.state is GroupState.STABLE


def test_who_syncs_after_the_leader_gets_the_assignment_at_once() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    scenario.sync(leader, {other.member_id: b"2"})
    assert scenario.sync(other).assignment == b"2"


def test_only_the_leaders_assignment_counts() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other, {other.member_id: b"everything"})
    scenario.sync(leader, {leader.member_id: b"1"})
    assert waiting.assignment == b"", "the leader left this member out"
    assert scenario.group.members[leader.member_id].assignment == b"1"


def test_the_assignment_is_in_the_log() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    assert not scenario.log
    scenario.sync(leader, {leader.member_id: b"1", other.member_id: b"2"})
    value = last_record(scenario).value
    assert value is not None
    assert (value.generation, value.protocol_type, value.protocol_name) == (1, "consumer", "range")
    assert value.leader_id == leader.member_id
    assert [(each.member_id, each.assignment) for each in value.members] == [
        (leader.member_id, b"1"),
        (other.member_id, b"2"),
    ]


def test_a_sync_is_checked() -> None:
    scenario = Scenario()
    (leader,) = scenario.stable_group()
    stranger, late = Call(), Call()
    stranger.answer = {**leader.answer, "member_id": "stranger"}
    late.answer = {**leader.answer, "generation_id": 7}
    assert scenario.sync(stranger).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.sync(late).code is ErrorCode.ILLEGAL_GENERATION
    assert scenario.sync(leader, group="other").code is ErrorCode.UNKNOWN_MEMBER_ID
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scenario.sync(leader, protocol=("connect", None)).code is inconsistent
    assert scenario.sync(leader, protocol=("consumer", "sticky")).code is inconsistent
    assert scenario.sync(leader, protocol=("consumer", "range")).code is ErrorCode.NONE
    scenario.join_fully()
    assert scenario.sync(leader).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_sync_takes_the_place_of_the_first() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    first, second = scenario.sync(other), scenario.sync(other)
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    scenario.sync(leader, {other.member_id: b"2"})
    assert second.assignment == b"2"


def test_an_assignment_that_cannot_be_written_makes_the_group_start_over() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other)
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    mine = scenario.sync(leader, {leader.member_id: b"1"})
    assert mine.error is waiting.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.state is GroupState.PREPARING_REBALANCE
    scenario.log_fails = None
    again = [scenario.join(call.member_id) for call in (leader, other)]
    assert [call.generation for call in again] == [2, 2]
    assert scenario.sync(again[0], {leader.member_id: b"2"}).assignment == b"2"


def test_who_does_not_sync_in_time_is_out() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    scenario.sync(leader, {leader.member_id: b"1", other.member_id: b"2"})
    for _ in range(REBALANCE_MS // 5_000):
        scenario.pass_ms(5_000)
        scenario.heartbeat(leader.member_id, 1)
        scenario.heartbeat(other.member_id, 1)
    assert list(scenario.group.members) == [leader.member_id]
    assert scenario.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_does_not_sync_loses_the_group() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other)
    for _ in range(REBALANCE_MS // 5_000):
        scenario.pass_ms(5_000)
        scenario.heartbeat(leader.member_id, 1)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    again = scenario.join(other.member_id)
    assert again.answer["leader"] == other.member_id
    assert again.generation == 2


# ------------------------------------------------------------------------------------ heartbeats


def test_heartbeats_keep_a_member_alive() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    for _ in range(20):
        scenario.pass_ms(SESSION_MS - 1)
        assert scenario.heartbeat(member.member_id, 1) is ErrorCode.NONE
    assert scenario.state is GroupState.STABLE


def test_heartbeats_report_a_rebalance() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.join_fully()
    assert scenario.heartbeat(member.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_are_fine_while_assignments_are_awaited() -> None:
    scenario = Scenario()
    (leader,) = completing_group(scenario, 1)
    assert scenario.heartbeat(leader.member_id, 1) is ErrorCode.NONE


def test_a_heartbeat_is_checked() -> None:
    scenario = Scenario()
    assert scenario.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = scenario.stable_group()
    assert scenario.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.heartbeat(member.member_id, 0) is ErrorCode.ILLEGAL_GENERATION
    assert scenario.heartbeat(member.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    scenario.leave(member.member_id)
    assert scenario.heartbeat(member.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_lost_after_its_session_timeout() -> None:
    scenario = Scenario()
    leader, silent = scenario.stable_group(2)
    scenario.pass_ms(SESSION_MS - 1)
    scenario.heartbeat(leader.member_id, 1)
    assert len(scenario.group.members) == 2
    scenario.pass_ms(1)
    assert list(scenario.group.members) == [leader.member_id]
    assert scenario.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = scenario.join(leader.member_id)
    assert again.generation == 2, "nobody else is waited for"
    assert scenario.heartbeat(silent.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_lost_leaves_an_empty_group() -> None:
    scenario = Scenario()
    scenario.stable_group()
    scenario.pass_ms(SESSION_MS)
    assert scenario.state is GroupState.EMPTY
    assert scenario.group.generation == 2
    assert not scenario.timers
    value = last_record(scenario).value
    assert value is not None
    assert (value.generation, value.members, value.protocol_type) == (2, (), "consumer")


def test_a_member_that_waits_for_a_rebalance_needs_no_heartbeat() -> None:
    scenario = Scenario()
    leader, slow = scenario.stable_group(2, rebalance_ms=300_000)
    waiting = scenario.join(leader.member_id, rebalance_ms=300_000)
    for _ in range(10):
        scenario.pass_ms(SESSION_MS - 1)
        scenario.heartbeat(slow.member_id, 1)
    assert not waiting.is_done
    assert leader.member_id in scenario.group.members


def test_a_member_that_waits_for_its_assignment_needs_no_heartbeat() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other)
    for _ in range(4):
        scenario.pass_ms(SESSION_MS - 1)
        scenario.heartbeat(leader.member_id, 1)
    assert other.member_id in scenario.group.members
    scenario.sync(leader, {other.member_id: b"2"})
    assert waiting.assignment == b"2"
    scenario.pass_ms(SESSION_MS)
    assert other.member_id not in scenario.group.members, "its session began with the assignment"


def test_a_member_lost_in_a_rebalance_is_not_waited_for() -> None:
    scenario = Scenario()
    leader, _ = scenario.stable_group(2)
    scenario.heartbeat(leader.member_id, 1)
    waiting = scenario.join(leader.member_id)
    scenario.pass_ms(SESSION_MS)
    assert waiting.generation == 2


def test_an_empty_group_that_cannot_be_written_is_empty_all_the_same() -> None:
    scenario = Scenario()
    scenario.stable_group()
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    scenario.pass_ms(SESSION_MS)
    assert scenario.state is GroupState.EMPTY
    assert scenario.group.generation == 2


# --------------------------------------------------------------------------------------- leaving


def test_a_member_that_leaves_is_not_waited_for() -> None:
    scenario = Scenario()
    leader, other = scenario.stable_group(2)
    assert scenario.leave(leader.member_id) == [ErrorCode.NONE]
    assert scenario.state is GroupState.PREPARING_REBALANCE
    again = scenario.join(other.member_id)
    assert again.generation == 2
    assert again.answer["leader"] == other.member_id


def test_the_last_to_leave_empties_the_group() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.leave(member.member_id)
    assert scenario.state is GroupState.EMPTY
    assert not scenario.timers


def test_leaving_is_checked_member_by_member() -> None:
    scenario = Scenario()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.leave("a", "b") == [unknown, unknown]
    member, other = scenario.stable_group(2)
    assert scenario.leave("a", member.member_id, ("", None), ("", "nobody")) == [
        unknown,
        ErrorCode.NONE,
        unknown,
        unknown,
    ]
    assert list(scenario.group.members) == [other.member_id]


def test_a_waiting_member_that_leaves_gets_unknown_member_id() -> None:
    scenario = Scenario()
    leader, other = completing_group(scenario, 2)
    waiting = scenario.sync(other)
    scenario.leave(other.member_id)
    assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID
    joining = scenario.join(leader.member_id)
    assert joining.generation == 2
    parked = scenario.join_fully()
    (new,) = set(scenario.group.members) - {leader.member_id}
    scenario.leave(new)
    assert parked.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unused_id_may_be_given_back() -> None:
    scenario = Scenario()
    scenario.stable_group()
    pending = scenario.join()
    assert scenario.leave(pending.member_id) == [ErrorCode.NONE]
    assert scenario.state is GroupState.STABLE
    assert scenario.join(pending.member_id).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_during_the_initial_delay_does_not_end_it() -> None:
    scenario = Scenario()
    first = scenario.join_fully()
    scenario.join_fully()
    gone = list(scenario.group.members)[1]
    scenario.leave(gone)
    assert not first.is_done
    scenario.pass_ms(6_000)
    assert first.generation == 1


def test_a_group_can_be_joined_again_after_it_was_empty() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.leave(member.member_id)
    again = scenario.join_fully()
    scenario.pass_ms(3_000)
    assert again.generation == 3
    assert scenario.group.leader_id == again.member_id
