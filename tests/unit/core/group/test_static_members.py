"""Tests of static members (KIP-345), which rejoin by instance ID without a rebalance."""

from __future__ import annotations

from tests.unit.core.group.scenario import SESSION_MS, Call, Scenario, subscription

from ottla.base.errors import ErrorCode
from ottla.core.group.classic import GroupState


def static_group(scenario: Scenario, *instances: str) -> list[Call]:
    calls = [scenario.join(instance=each, id_required=True) for each in instances]
    scenario.pass_ms(3_000 * (len(calls) + 1))
    given = {call.member_id: call.member_id.encode() for call in calls}
    for call, instance in [*zip(calls, instances, strict=True)][::-1]:
        synced = scenario.sync(call, given, instance=instance)
    assert synced.assignment == calls[0].member_id.encode()
    assert scenario.state is GroupState.STABLE
    return calls


def test_a_static_member_needs_no_id_first() -> None:
    scenario = Scenario()
    call = scenario.join(instance="i")
    scenario.pass_ms(3_000)
    assert call.generation == 1
    assert call.member_id.startswith("i-")


def test_a_static_member_that_comes_back_causes_no_rebalance() -> None:
    scenario = Scenario()
    leader, other = static_group(scenario, "a", "b")
    back = scenario.join(instance="b")
    assert back.generation == 1
    assert back.member_id != other.member_id
    assert back.answer["leader"] == leader.member_id
    assert back.answer["members"] == []
    assert scenario.state is GroupState.STABLE
    assert scenario.sync(back, instance="b").assignment == other.member_id.encode()
    assert scenario.heartbeat(leader.member_id, 1, instance="a") is ErrorCode.NONE


def test_a_member_with_the_old_id_is_fenced() -> None:
    scenario = Scenario()
    _, old = static_group(scenario, "a", "b")
    scenario.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert scenario.heartbeat(old.member_id, 1, instance="b") is fenced
    assert scenario.sync(old, instance="b").code is fenced
    assert scenario.join(old.member_id, instance="b").code is fenced
    assert scenario.leave((old.member_id, "b")) == [fenced]
    committed = scenario.commit_codes(
        {("t", 0): 1}, member_id=old.member_id, instance="b", generation=1
    )
    assert committed == [fenced]


def test_requests_that_the_old_id_has_waiting_are_fenced() -> None:
    scenario = Scenario()
    first = scenario.join(instance="a")
    second = scenario.join(instance="a")
    assert first.code is ErrorCode.FENCED_INSTANCE_ID
    scenario.pass_ms(3_000)
    assert second.generation == 1
    other = scenario.join(instance="b")
    again = scenario.join(second.member_id, instance="a")
    assert (other.generation, again.generation) == (2, 2)
    waiting = scenario.sync(other, instance="b")
    scenario.join(instance="b")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_returns_skips_the_assignment() -> None:
    scenario = Scenario()
    leader, _ = static_group(scenario, "a", "b")
    back = scenario.join(instance="a")
    assert back.answer["skip_assignment"] is True
    assert back.answer["leader"] == back.member_id
    assert len(back.answer["members"]) == 2
    assert scenario.sync(back, instance="a").assignment == leader.member_id.encode()


def test_an_older_static_leader_does_not_learn_that_it_leads() -> None:
    scenario = Scenario()
    leader, _ = static_group(scenario, "a", "b")
    back = scenario.join(instance="a", can_skip=False)
    assert back.answer["leader"] == leader.member_id != back.member_id
    assert back.answer["members"] == []
    assert scenario.group.leader_id == back.member_id


def test_a_static_member_that_changes_the_protocol_causes_a_rebalance() -> None:
    scenario = Scenario()
    both = (("range", subscription("t")), ("sticky", subscription("t")))
    calls = [scenario.join(instance=each, protocols=both) for each in "ab"]
    scenario.pass_ms(9_000)
    scenario.sync(calls[0], instance="a")
    scenario.sync(calls[1], instance="b")
    back = scenario.join(instance="b", protocols=both[1:])
    assert not back.is_done
    assert scenario.state is GroupState.PREPARING_REBALANCE
    again = scenario.join(calls[0].member_id, instance="a", protocols=both)
    assert again.answer["protocol_name"] == back.answer["protocol_name"] == "sticky"


def test_coming_back_while_assignments_are_awaited_starts_over() -> None:
    scenario = Scenario()
    leader, other = scenario.join(instance="a"), scenario.join(instance="b")
    scenario.pass_ms(9_000)
    back = scenario.join(instance="b")
    assert not back.is_done
    assert scenario.state is GroupState.PREPARING_REBALANCE
    again = scenario.join(leader.member_id, instance="a")
    assert again.generation == back.generation == 2
    assert other.member_id not in scenario.group.members


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    scenario = Scenario()
    leader, away = static_group(scenario, "a", "b")
    new = scenario.join_fully()
    scenario.heartbeat(leader.member_id, 1, instance="a")
    scenario.join(leader.member_id, instance="a")
    assert not new.is_done
    scenario.pass_ms(SESSION_MS)
    assert new.generation == 2
    assert away.member_id not in scenario.group.members


def test_static_members_who_miss_a_rebalance_stay_in_the_group() -> None:
    scenario = Scenario()
    calls = [scenario.join(instance=each, session_ms=500_000) for each in "ab"]
    scenario.pass_ms(9_000)
    scenario.sync(calls[0], instance="a")
    scenario.sync(calls[1], instance="b")
    changed = (("range", subscription("u")),)
    again = scenario.join(calls[1].member_id, instance="b", protocols=changed, session_ms=500_000)
    scenario.pass_ms(60_000)
    assert again.generation == 2
    assert again.answer["leader"] == calls[1].member_id
    assert [each["group_instance_id"] for each in again.answer["members"]] == ["a", "b"]


def test_a_rebalance_that_no_member_joins_keeps_waiting() -> None:
    scenario = Scenario()
    leader = scenario.join(instance="a", session_ms=500_000)
    scenario.pass_ms(3_000)
    scenario.sync(leader, instance="a")
    gone = scenario.join_fully()
    (new,) = set(scenario.group.members) - {leader.member_id}
    scenario.leave(new)
    scenario.pass_ms(120_000)
    assert gone.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.state is GroupState.PREPARING_REBALANCE
    assert scenario.join(leader.member_id, instance="a").generation == 2


def test_an_administrator_removes_static_members_by_instance() -> None:
    scenario = Scenario()
    static_group(scenario, "a", "b")
    assert scenario.leave(("", "b"), ("", "c")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(scenario.group.static_members) == ["a"]
    assert scenario.state is GroupState.PREPARING_REBALANCE


def test_an_unused_instance_id_is_unknown() -> None:
    scenario = Scenario()
    (member,) = static_group(scenario, "a")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert scenario.heartbeat(member.member_id, 1, instance="z") is unknown
    assert scenario.join(member.member_id, instance="z").code is unknown


def test_an_id_given_to_a_dynamic_member_is_no_static_members() -> None:
    scenario = Scenario()
    pending = scenario.join()
    assert scenario.join(pending.member_id, instance="a").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_replacement_that_cannot_be_written_is_undone() -> None:
    scenario = Scenario()
    _, old = static_group(scenario, "a", "b")
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    back = scenario.join(instance="b", protocols=(("range", subscription("u")),))
    assert back.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.heartbeat(old.member_id, 1, instance="b") is ErrorCode.NONE
    assert scenario.group.members[old.member_id].protocols == (("range", subscription("t")),)
    assert scenario.state is GroupState.STABLE


def test_a_replaced_member_survives_a_restart() -> None:
    scenario = Scenario()
    _, old = static_group(scenario, "a", "b")
    back = scenario.join(instance="b")
    restarted = scenario.restarted()
    assert restarted.heartbeat(back.member_id, 1, instance="b") is ErrorCode.NONE
    assert restarted.sync(back, instance="b").assignment == old.member_id.encode()
    fenced = restarted.heartbeat(old.member_id, 1, instance="b")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
