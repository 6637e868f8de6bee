"""Tests of live groups that migrate between the classic and the consumer protocol."""

from __future__ import annotations

import struct

import pytest
from tests.unit.core.group.consumer_scenario import ConsumerScenario, Topics
from tests.unit.core.group.scenario import GROUP, Call, subscription

from ottla.base.errors import ErrorCode
from ottla.core.group import events
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.consumer_group import ConsumerGroup
from ottla.core.group.embedded_protocol import read_assignment, write_assignment
from ottla.core.group.settings import GroupSettings

COOPERATIVE = "cooperative-sticky"


def owning(partitions: set[int]) -> events.Protocols:
    """Return the protocol metadata of a cooperative member that owns these partitions."""
    owned = write_assignment(1, {"t": partitions} if partitions else {})[2:-4]
    return ((COOPERATIVE, b"\0\1" + subscription("t")[2:] + owned),)


def settings(**changes: object) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=0,
        consumer_assignment_interval_ms=0,
        **changes,  # type: ignore[arg-type]
    )


def classic_pair(scenario: ConsumerScenario) -> list[Call]:
    """Create a stable classic group of two whose assignment is in the consumer format."""
    first = scenario.join_fully()
    scenario.pass_ms(0)
    scenario.sync(first, {first.member_id: b""})
    second = scenario.join_fully()
    again = scenario.join(first.member_id)
    given = {
        first.member_id: write_assignment(1, {"t": {0, 1, 2}}),
        second.member_id: write_assignment(1, {"t": {3, 4, 5}}),
    }
    for call in (second, again):
        assert call.code is ErrorCode.NONE
    waiting = scenario.sync(second)
    assert scenario.sync(again, given).code is ErrorCode.NONE
    assert waiting.code is ErrorCode.NONE
    return [again, second]


def rejoin(scenario: ConsumerScenario, member_id: str) -> tuple[Call, dict[str, set[int]]]:
    """Join and sync as an eager member of the classic protocol; return the call and assignment."""
    joined = scenario.join(member_id)
    synced = scenario.sync(joined)
    given = read_assignment(synced.assignment).partitions
    return joined, {topic: set(partitions) for topic, partitions in given.items()}


def test_a_classic_group_becomes_a_consumer_group_when_such_a_member_joins() -> None:
    scenario = ConsumerScenario()
    first, second = classic_pair(scenario)
    generation = scenario.group.generation
    new = scenario.member("new")
    group = scenario.consumers
    assert list(group.members) == [first.member_id, second.member_id, "new"]
    assert group.epoch == generation + 1
    assert new.partitions == {}
    for call in (first, second):
        code = scenario.heartbeat(call.member_id, call.generation)
        assert code is ErrorCode.REBALANCE_IN_PROGRESS
    shares = [rejoin(scenario, call.member_id)[1]["t"] for call in (first, second)]
    assert shares == [{0, 1}, {3, 4}], "they keep what they may keep"
    new.beat()
    assert new.partitions == {"t": {2, 5}}
    assert group.state.value == "Stable"
    assert scenario.restarted().consumers.members == group.members


def test_classic_members_live_on_in_a_consumer_group() -> None:
    scenario = ConsumerScenario()
    first, second = classic_pair(scenario)
    new = scenario.member("new")
    joined = {call.member_id: rejoin(scenario, call.member_id)[0] for call in (first, second)}
    for _ in range(10):
        scenario.pass_ms(5_000)
        new.beat()
        for member_id, call in joined.items():
            assert scenario.heartbeat(member_id, call.generation) is ErrorCode.NONE
    one = joined[first.member_id]
    known = {"member_id": one.member_id, "generation": one.generation}
    assert scenario.commit_codes({("t", 0): 1}, **known) == [ErrorCode.NONE]
    known["generation"] -= 1
    assert scenario.commit_codes({("t", 0): 1}, **known) == [ErrorCode.ILLEGAL_GENERATION]
    described = {each["member_id"]: each["member_type"] for each in scenario.described()["members"]}
    assert described == {first.member_id: 0, second.member_id: 0, "new": 1}


def test_a_classic_member_that_is_silent_is_removed_from_a_consumer_group() -> None:
    scenario = ConsumerScenario()
    first, _ = classic_pair(scenario)
    new = scenario.member("new")
    for _ in range(3):
        scenario.pass_ms(5_000)
        new.beat()
    assert list(scenario.consumers.members) == ["new"]
    assert scenario.heartbeat(first.member_id, first.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_may_join_a_consumer_group() -> None:
    scenario = ConsumerScenario()
    new = scenario.member("new")
    asked = scenario.join()
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    joined, share = rejoin(scenario, asked.member_id)
    assert joined.answer["leader"] == ""
    assert share == {}
    assert scenario.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
    new.beat()
    new.beat()
    code = scenario.heartbeat(joined.member_id, joined.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS, "what it waits for is free"
    assert rejoin(scenario, joined.member_id)[1]["t"] | new.partitions["t"] == set(range(6))


def test_a_cooperative_classic_member_gives_up_only_what_it_must() -> None:
    scenario = ConsumerScenario()
    new = scenario.member("new")
    new.leave()
    member = scenario.join_fully(protocols=owning(set()))
    scenario.pass_ms(0)
    everything = write_assignment(1, {"t": set(range(6))})
    assert scenario.sync(member, {member.member_id: everything}).code is ErrorCode.NONE
    new = scenario.member("new")
    reported = scenario.join(member.member_id, protocols=owning(set(range(6))))
    kept = set(read_assignment(scenario.sync(reported).assignment).partitions["t"])
    assert len(kept) == 3
    assert reported.generation == member.generation, "until it has given them up"
    new.beat()
    assert new.partitions == {}
    code = scenario.heartbeat(member.member_id, reported.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    done = scenario.join(member.member_id, protocols=owning(kept))
    assert done.generation > reported.generation
    new.beat()
    assert new.partitions["t"] == set(range(6)) - kept


def test_members_that_wait_for_a_rebalance_must_join_the_upgraded_group() -> None:
    scenario = ConsumerScenario()
    first, second = classic_pair(scenario)
    waiting = scenario.join(second.member_id, protocols=(("range", subscription("t", "u")),))
    assert not waiting.is_done
    scenario.member("new")
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(scenario, first.member_id)[0].code is ErrorCode.NONE


def test_a_group_that_has_no_assignment_yet_can_be_upgraded() -> None:
    scenario = ConsumerScenario(settings=GroupSettings(consumer_assignment_interval_ms=0))
    waiting = scenario.join_fully()
    new = scenario.member("new")
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    _, share = rejoin(scenario, waiting.member_id)
    new.beat()
    assert share["t"] | new.partitions["t"] == set(range(6))


@pytest.mark.parametrize("leaves_by", ["leaving", "silence"])
def test_a_group_becomes_classic_when_its_last_consumer_member_goes(leaves_by: str) -> None:
    scenario = ConsumerScenario()
    first, second = classic_pair(scenario)
    new = scenario.member("new")
    joined = [rejoin(scenario, call.member_id)[0] for call in (first, second)]
    new.beat()
    if leaves_by == "leaving":
        new.leave()
    else:
        for _ in range(9):
            scenario.pass_ms(5_000)
            for call in joined:
                scenario.heartbeat(call.member_id, call.generation)
    scenario.pass_ms(0)
    assert scenario.state is GroupState.PREPARING_REBALANCE
    assert list(scenario.group.members) == [first.member_id, second.member_id]
    loaded = scenario.restarted()
    assert isinstance(loaded.shard.groups[GROUP], ClassicGroup)
    calls = [scenario.join(call.member_id) for call in joined]
    leader = next(call for call in calls if call.answer["members"])
    given = {each.member_id: b"x" for each in calls}
    syncs = [scenario.sync(call) for call in calls if call is not leader]
    assert scenario.sync(leader, given).assignment == b"x"
    assert [call.assignment for call in syncs] == [b"x"]
    assert scenario.state is GroupState.STABLE


def test_an_empty_group_may_be_used_with_the_other_protocol() -> None:
    scenario = ConsumerScenario()
    scenario.commit({("t", 0): 5})
    scenario.member("m1").leave()
    joined = scenario.join_fully()
    scenario.pass_ms(0)
    assert scenario.sync(joined, {joined.member_id: b"x"}).assignment == b"x"
    assert scenario.restarted().state is GroupState.STABLE
    scenario.leave(joined.member_id)
    assert scenario.state is GroupState.EMPTY
    member = scenario.member("m2")
    assert member.partitions == {"t": set(range(6))}
    for each in (scenario, scenario.restarted()):
        assert isinstance(each.shard.groups[GROUP], ConsumerGroup)
        assert each.fetch() == {("t", 0): 5}


def test_a_static_member_changes_to_the_consumer_protocol() -> None:
    scenario = ConsumerScenario()
    joined = scenario.join(instance="a")
    scenario.pass_ms(0)
    everything = write_assignment(1, {"t": set(range(6))})
    scenario.sync(joined, {joined.member_id: everything}, instance="a")
    new = scenario.member("new", instance_id="a")
    assert new.partitions == {"t": set(range(6))}
    assert list(scenario.consumers.members) == ["new"]
    code = scenario.heartbeat(joined.member_id, joined.generation, instance="a")
    assert code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_changes_back_to_the_classic_protocol() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1", instance_id="a")
    joined = scenario.join(instance="a")
    assert joined.code is ErrorCode.NONE
    assert scenario.state is GroupState.STABLE, "no rebalance"
    given = read_assignment(scenario.sync(joined, instance="a").assignment)
    assert given.partitions == {"t": frozenset(range(6))}
    assert member.beat().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert scenario.restarted().state is GroupState.STABLE


def test_without_leave_to_downgrade_the_group_stays_a_consumer_group() -> None:
    scenario = ConsumerScenario(settings=settings(can_downgrade=False))
    first, _ = classic_pair(scenario)
    new = scenario.member("new")
    new.leave()
    assert len(scenario.consumers.members) == 2
    code = scenario.heartbeat(first.member_id, first.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"can_upgrade": False}, "online upgrade is disabled"),
        ({"consumer_max_size": 1}, "exceeds the consumer group maximum size"),
    ],
)
def test_an_upgrade_that_may_not_be_is_refused(changes: dict[str, object], message: str) -> None:
    scenario = ConsumerScenario(settings=settings(**changes))
    classic_pair(scenario)
    refused = scenario.enter("new")
    assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert message in refused.answer["error_message"]
    assert scenario.state is GroupState.STABLE


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (b"\0", "malformed"),
        (struct.pack(">hii", 1, 0, 1) + b"u", "custom assignor"),
    ],
)
def test_a_group_that_cannot_be_understood_is_not_upgraded(assignment: bytes, message: str) -> None:
    scenario = ConsumerScenario()
    joined = scenario.join_fully()
    scenario.pass_ms(0)
    scenario.sync(joined, {joined.member_id: assignment})
    refused = scenario.enter("new")
    assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert message in refused.answer["error_message"]
    assert scenario.state is GroupState.STABLE


def test_groups_of_others_than_consumers_are_not_upgraded() -> None:
    scenario = ConsumerScenario()
    scenario.stable_group(protocol_type="connect")
    refused = scenario.enter("new")
    assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "embedded protocol" in refused.answer["error_message"]


def test_what_a_classic_leader_assigned_twice_has_one_owner_after_the_upgrade() -> None:
    scenario = ConsumerScenario(Topics(t=2))
    first = scenario.join_fully()
    scenario.pass_ms(0)
    scenario.sync(first, {})
    second = scenario.join_fully()
    leader = scenario.join(first.member_id)
    both = write_assignment(1, {"t": {0, 1}})
    scenario.sync(second)
    scenario.sync(leader, {first.member_id: both, second.member_id: both})
    scenario.member("new")
    owned = [each.assigned for each in scenario.consumers.members.values()]
    assert [len(each) for each in owned] == [1, 0, 0]


def test_an_upgrade_that_cannot_be_written_has_not_happened() -> None:
    scenario = ConsumerScenario()
    classic_pair(scenario)
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.enter("new").error is ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.state is GroupState.STABLE


def test_a_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    scenario = ConsumerScenario()
    first, second = classic_pair(scenario)
    new = scenario.member("new")
    for _ in range(13):
        scenario.pass_ms(5_000)
        new.beat()
        for call in (first, second):
            scenario.heartbeat(call.member_id, call.generation)
    assert list(scenario.consumers.members) == ["new"]


def test_a_classic_member_that_joins_and_never_syncs_is_removed() -> None:
    scenario = ConsumerScenario()
    new = scenario.member("new")
    joined = scenario.join_fully(rebalance_ms=10_000)
    for _ in range(3):
        scenario.pass_ms(4_000)
        new.beat()
        scenario.heartbeat(joined.member_id, joined.generation)
    assert list(scenario.consumers.members) == ["new"]
