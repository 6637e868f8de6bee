"""Tests of a coordinator's state after it has loaded its log, and of describing its groups."""

from __future__ import annotations

from typing import Any

from tests.unit.core.group.scenario import GROUP, SESSION_MS, Call, Scenario, subscription

from ottla.base.errors import ErrorCode
from ottla.core.group import events
from ottla.core.group.classic import GroupState


def describe(scenario: Scenario, group: str = GROUP) -> Any:
    call: Call = scenario.submit(events.DescribeRequested(Call(), group))
    return call.answer


def listed(scenario: Scenario, states: str = "", types: str = "") -> dict[str, str]:
    event = events.ListRequested(Call(), frozenset(states.split()), frozenset(types.split()))
    call: Call = scenario.submit(event)
    return {each["group_id"]: each["group_state"] for each in call.answer["groups"]}


def test_a_stable_group_continues_after_a_restart() -> None:
    scenario = Scenario()
    members = scenario.stable_group(2)
    restarted = scenario.restarted()
    assert restarted.state is GroupState.STABLE
    for member in members:
        assert restarted.heartbeat(member.member_id, 1) is ErrorCode.NONE
        assert restarted.sync(member).assignment == member.member_id.encode()
    assert restarted.group.leader_id == members[0].member_id
    assert restarted.group.subscribed_topics == {"t"}


def test_members_have_a_session_after_a_restart() -> None:
    scenario = Scenario()
    alive, gone = scenario.stable_group(2)
    restarted = scenario.restarted()
    restarted.pass_ms(SESSION_MS - 1)
    restarted.heartbeat(alive.member_id, 1)
    restarted.pass_ms(1)
    assert list(restarted.group.members) == [alive.member_id]
    assert gone.member_id not in restarted.group.members


def test_a_rebalance_that_was_under_way_is_forgotten() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.join_fully()
    scenario.join(member.member_id)
    assert scenario.group.generation == 2
    restarted = scenario.restarted()
    assert (restarted.state, restarted.group.generation) == (GroupState.STABLE, 1)
    assert restarted.heartbeat(member.member_id, 2) is ErrorCode.ILLEGAL_GENERATION


def test_an_empty_group_keeps_its_generation_and_offsets() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    scenario.leave(member.member_id)
    restarted = scenario.restarted()
    assert (restarted.state, restarted.group.generation) == (GroupState.EMPTY, 2)
    assert restarted.fetch() == {("t", 0): 5}
    again = restarted.join_fully()
    restarted.pass_ms(3_000)
    assert again.generation == 3


def test_what_was_applied_is_what_is_loaded() -> None:
    scenario = Scenario()
    scenario.stable_group(3)
    scenario.commit({("t", 0): 5}, group="simple")
    restarted = scenario.restarted()
    for group in (GROUP, "simple"):
        assert describe(restarted, group) == describe(scenario, group)
    assert listed(restarted) == listed(scenario)


def test_an_unloaded_coordinator_answers_waiting_requests() -> None:
    scenario = Scenario()
    leader, other = scenario.join_fully(), scenario.join_fully()
    scenario.pass_ms(6_000)
    syncing = scenario.sync(other)
    joining = scenario.join_fully(group="another")
    assert leader.is_done
    assert set(scenario.shard.unload()) == {syncing, joining}
    assert not scenario.shard.groups


def test_a_stable_group_is_described_with_its_members() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    assert describe(scenario) == {
        "group_id": GROUP,
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": None,
                "client_id": "client",
                "client_host": "/host",
                "member_metadata": subscription("t"),
                "member_assignment": member.member_id.encode(),
            }
        ],
    }


def test_a_group_that_rebalances_is_described_without_a_protocol() -> None:
    scenario = Scenario()
    scenario.stable_group()
    scenario.join_fully()
    described = describe(scenario)
    assert (described["group_state"], described["protocol_data"]) == ("PreparingRebalance", "")
    assert [each["member_metadata"] for each in described["members"]] == [b"", b""]


def test_a_group_that_is_not_there_is_dead() -> None:
    described = describe(Scenario())
    assert (described["group_id"], described["group_state"]) == (GROUP, "Dead")


def test_groups_are_listed_by_state_and_type() -> None:
    scenario = Scenario()
    scenario.stable_group()
    scenario.commit({("t", 0): 5}, group="simple")
    scenario.join_fully(group="new")
    everything = {GROUP: "Stable", "simple": "Empty", "new": "PreparingRebalance"}
    assert listed(scenario) == everything
    assert listed(scenario, "stable") == {GROUP: "Stable"}
    assert listed(scenario, "empty preparingrebalance").keys() == {"simple", "new"}
    assert listed(scenario, "dead") == {}
    assert listed(scenario, types="classic") == everything
    assert listed(scenario, types="consumer share") == {}
