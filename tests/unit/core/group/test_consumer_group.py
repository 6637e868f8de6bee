"""Tests of consumer groups: join, assignment, revocation, leave, static members, regex, restart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.unit.core.group.consumer_scenario import (
    AT_ONCE,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerScenario,
    Topics,
)
from tests.unit.core.group.scenario import GROUP, Call

from ottla.base.errors import ErrorCode
from ottla.core.group import events
from ottla.core.group.consumer_group import ConsumerGroupState
from ottla.core.group.consumer_records import MemberState, SubscriptionMetadataRecord
from ottla.core.group.settings import GroupSettings
from ottla.core.group.topics import TopicFilter


def test_the_first_member_gets_everything_at_once() -> None:
    scenario = ConsumerScenario()
    call = scenario.enter("m1")
    assert call.answer["member_id"] == "m1"
    assert call.answer["member_epoch"] == 1
    assert call.answer["heartbeat_interval_ms"] == 5_000
    assert call.answer["assignment"] == {
        "topic_partitions": [
            {"topic_id": scenario.topics.id("t"), "partitions": [0, 1, 2, 3, 4, 5]}
        ]
    }
    assert scenario.consumers.state is ConsumerGroupState.STABLE


def test_a_member_without_an_id_is_given_one() -> None:
    call = ConsumerScenario().enter("")
    assert call.answer["member_id"] == "made-up"


def test_a_partition_moves_only_after_its_owner_has_given_it_up() -> None:
    scenario = ConsumerScenario()
    first = scenario.member("m1")
    second = scenario.member("m2")
    assert second.partitions == {}, "all that it is to have is owned still"
    assert scenario.consumers.members["m2"].state == MemberState.UNRELEASED_PARTITIONS
    second.beat()
    assert second.partitions == {}

    heartbeat = first.beat(owned=None)
    assert first.epoch == 1, "until it has given them up"
    assert first.partitions == {"t": {0, 1, 2}}
    assert "assignment" in heartbeat.answer
    assert scenario.consumers.members["m1"].state == MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.partitions == {}, "it has not said that it gave them up"

    first.beat()
    assert first.epoch == 2
    second.beat()
    assert second.partitions == {"t": {3, 4, 5}}
    assert scenario.consumers.state is ConsumerGroupState.STABLE


def test_what_stays_is_never_taken_away() -> None:
    scenario = ConsumerScenario()
    first = scenario.member("m1")
    seen = [first.partitions["t"]]
    clients = [first]
    for number in range(2, 7):
        clients.append(scenario.member(f"m{number}"))
        for client in clients:
            client.beat()
            seen.append(first.partitions["t"])
        scenario.settle(*clients)
        seen.append(first.partitions["t"])
    assert all(later <= earlier for earlier, later in pairwise(seen))
    assert [client.partitions for client in clients[1:]] != [{}] * 5


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_repeats_nothing() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    size = len(scenario.log)
    answer = member.beat(owned=None).answer
    assert "assignment" not in answer
    assert len(scenario.log) == size


def test_a_full_request_gets_its_assignment_again() -> None:
    member = ConsumerScenario().member("m1")
    again = member.beat(topics=["t"], rebalance_timeout_ms=REBALANCE_MS)
    assert again.answer["assignment"]["topic_partitions"]


def test_an_answer_that_was_lost_may_be_asked_for_again() -> None:
    scenario = ConsumerScenario()
    first, second = scenario.member("m1"), scenario.member("m2")
    first.beat()
    scenario.beat("m1", 1, owned=first.owned)
    assert scenario.consumers.members["m1"].epoch == 2
    again = scenario.beat("m1", 1, owned=first.owned)
    assert (again.code, again.answer["member_epoch"]) == (ErrorCode.NONE, 2)
    more = {scenario.topics.id("t"): frozenset({0, 5})}
    assert scenario.beat("m1", 1, owned=more).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert scenario.beat("m1", 1).code is ErrorCode.FENCED_MEMBER_EPOCH
    second.beat()


def test_a_member_that_was_fenced_joins_again_under_its_id() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    assert scenario.beat("m1", 7).code is ErrorCode.FENCED_MEMBER_EPOCH
    again = scenario.enter("m1")
    assert (again.code, again.answer["member_epoch"]) == (ErrorCode.NONE, member.epoch)
    assert again.answer["assignment"]["topic_partitions"]


# ------------------------------------------------------------------------------------ leaving


def test_who_stays_gets_the_partitions_of_who_leaves() -> None:
    scenario = ConsumerScenario()
    first, second = scenario.member("m1"), scenario.member("m2")
    scenario.settle(first, second)
    assert second.leave().answer == {"member_id": "m2", "member_epoch": -1}
    assert scenario.consumers.state is ConsumerGroupState.ASSIGNING
    first.beat()
    assert first.partitions == {"t": set(range(6))}
    assert second.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_all_have_left_is_empty_and_can_be_deleted() -> None:
    scenario = ConsumerScenario()
    scenario.commit({("t", 0): 5})
    member = scenario.member("m1")
    delete = events.DeleteRequested(Call(), GROUP)
    assert scenario.submit(delete).code is ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert scenario.consumers.state is ConsumerGroupState.EMPTY
    assert scenario.submit(events.DeleteRequested(Call(), GROUP)).code is ErrorCode.NONE
    for each in (scenario, scenario.restarted()):
        assert GROUP not in each.shard.groups
        assert each.fetch() == {}


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    scenario = ConsumerScenario()
    first, second = scenario.member("m1"), scenario.member("m2")
    scenario.settle(first, second)
    for _ in range(9):
        scenario.pass_ms(SESSION_MS // 9)
        first.beat()
    assert set(scenario.consumers.members) == {"m1"}
    first.beat()
    assert first.partitions == {"t": set(range(6))}


def test_a_group_may_have_a_session_of_its_own() -> None:
    scenario = ConsumerScenario()
    scenario.configs[GROUP] = {
        "consumer.session.timeout.ms": 60_000,
        "consumer.heartbeat.interval.ms": 15_000,
    }
    call = scenario.enter("m1")
    assert call.answer["heartbeat_interval_ms"] == 15_000
    scenario.pass_ms(59_999)
    assert "m1" in scenario.consumers.members
    scenario.pass_ms(1)
    assert "m1" not in scenario.consumers.members


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed() -> None:
    scenario = ConsumerScenario()
    first = scenario.member("m1", rebalance_timeout_ms=10_000)
    second = scenario.member("m2")
    first.beat()
    for _ in range(10):
        scenario.pass_ms(1_000)
        scenario.beat("m1", 1)
        second.beat()
    assert set(scenario.consumers.members) == {"m2"}
    second.beat()
    assert second.partitions == {"t": set(range(6))}


def test_the_time_to_give_up_partitions_ends_when_they_are_given_up() -> None:
    scenario = ConsumerScenario()
    first = scenario.member("m1", rebalance_timeout_ms=10_000)
    second = scenario.member("m2")
    scenario.settle(first, second)
    for _ in range(30):
        scenario.pass_ms(1_000)
        scenario.settle(first, second)
    assert set(scenario.consumers.members) == {"m1", "m2"}


# -------------------------------------------------------------------------- assignment interval


def test_assignments_are_made_no_more_often_than_configured() -> None:
    scenario = ConsumerScenario(settings=GroupSettings(consumer_assignment_interval_ms=1_000))
    first = scenario.member("m1")
    others = [scenario.member(f"m{number}") for number in range(2, 5)]
    assert scenario.consumers.assignment_epoch == 1
    assert scenario.consumers.epoch == 4
    assert [each.epoch for each in others] == [1, 1, 1]
    assert scenario.consumers.state is ConsumerGroupState.ASSIGNING
    scenario.pass_ms(1_000)
    first.beat()
    assert scenario.consumers.assignment_epoch == 4
    scenario.settle(first, *others)
    assert scenario.consumers.state is ConsumerGroupState.STABLE


def test_a_member_that_is_alone_does_not_wait_for_its_assignment() -> None:
    scenario = ConsumerScenario(settings=GroupSettings(consumer_assignment_interval_ms=1_000))
    scenario.member("m1").leave()
    assert scenario.member("m2").partitions == {"t": set(range(6))}


# ------------------------------------------------------------------------------------- topics


def test_partitions_that_are_added_are_assigned() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    scenario.topics.grow("t", 8)
    member.beat()
    assert member.partitions == {"t": set(range(8))}
    assert member.epoch == 2


def test_topics_that_come_and_go_are_assigned_and_taken_away() -> None:
    scenario = ConsumerScenario(Topics())
    member = scenario.member("m1", "t", "u")
    assert member.partitions == {}
    scenario.topics.create("u", 2)
    member.beat()
    assert member.partitions == {"u": {0, 1}}
    scenario.topics.create("t", 1)
    member.beat()
    assert member.partitions == {"t": {0}, "u": {0, 1}}
    scenario.topics.delete("u")
    member.beat()
    member.beat()
    assert member.partitions == {"t": {0}}


def test_topics_of_others_do_not_matter() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    scenario.topics.create("other", 3)
    size = len(scenario.log)
    member.beat()
    assert (member.epoch, len(scenario.log)) == (1, size)


def test_a_member_may_change_what_it_subscribes_to() -> None:
    scenario = ConsumerScenario(Topics(t=2, u=2))
    member = scenario.member("m1", "t")
    member.beat(topics=["u"])
    member.beat()
    assert member.partitions == {"u": {0, 1}}
    assert member.epoch == 2


# ----------------------------------------------------------------------------------- patterns


def test_a_pattern_is_matched_by_the_broker_and_again_as_topics_come_and_go() -> None:
    scenario = ConsumerScenario(Topics(orders_eu=1, other=1))
    member = scenario.member("m1", topics=None, pattern="orders.*")
    assert member.partitions == {"orders_eu": {0}}
    scenario.topics.create("orders_us", 2)
    scenario.pass_ms(1_000)
    member.beat()
    assert member.partitions == {"orders_eu": {0}, "orders_us": {0, 1}}
    scenario.topics.delete("orders_eu")
    scenario.pass_ms(1_000)
    member.beat()
    member.beat()
    assert member.partitions == {"orders_us": {0, 1}}
    assert scenario.consumers.is_subscribed_to("orders_us")
    assert not scenario.consumers.is_subscribed_to("orders_eu")


def test_a_change_of_topics_right_after_another_is_not_missed() -> None:
    scenario = ConsumerScenario(Topics())
    member = scenario.member("m1", topics=None, pattern=".*")
    scenario.topics.create("a", 1)
    member.beat()
    scenario.pass_ms(1_000)
    member.beat()
    assert member.partitions == {"a": {0}}


def test_the_clusters_own_topics_match_no_pattern() -> None:
    scenario = ConsumerScenario(Topics(__consumer_offsets=3, mine=1))
    assert scenario.member("m1", topics=None, pattern=".*").partitions == {"mine": {0}}


def test_an_unused_pattern_is_forgotten() -> None:
    scenario = ConsumerScenario()
    first = scenario.member("m1", topics=None, pattern="t.*")
    second = scenario.member("m2", topics=None, pattern="u.*")
    assert set(scenario.consumers.patterns) == {"t.*", "u.*"}
    second.leave()
    assert set(scenario.consumers.patterns) == {"t.*"}
    first.beat(pattern="", topics=["t"])
    assert set(scenario.consumers.patterns) == set()
    assert scenario.restarted().consumers.patterns == {}
    assert first.partitions == {"t": set(range(6))}


# ------------------------------------------------------- patterns of clients with permissions


def only(*visible: str) -> TopicFilter:
    """Return the filter of a client that may see some topics."""
    return lambda names: [each for each in names if each in visible]


def test_a_pattern_matches_only_topics_that_the_member_may_see() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1, c=1))
    member = scenario.member("m1", topics=None, pattern=".*", visible=only("a", "c"))
    assert member.partitions == {"a": {0}, "c": {0}}


def test_a_member_that_joins_does_not_match_the_patterns_of_others_again() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1))
    first = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    scenario.pass_ms(1_000)
    second = scenario.member("m2", topics=None, pattern=".*")
    scenario.topics.grow("a", 2)
    scenario.pass_ms(1_000)
    second.beat()
    scenario.settle(first, second)
    assert set(first.partitions) | set(second.partitions) == {"a"}


def test_the_first_heartbeat_after_a_new_topic_decides_what_all_members_see() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1))
    first = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    second = scenario.member("m2", topics=None, pattern=".*")
    scenario.topics.create("c", 1)
    scenario.pass_ms(1_000)
    first.beat(visible=only("a", "c"))
    second.beat()
    scenario.settle(first, second)
    assert set(first.partitions) | set(second.partitions) == {"a", "c"}


def test_a_change_of_permissions_takes_effect_with_the_next_heartbeat() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1))
    member = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    scenario.pass_ms(1_000)
    member.beat(visible=only("b"))
    assert member.partitions == {"a": {0}}
    scenario.shard.permissions_changed()
    member.beat(visible=only("b"))
    member.beat(visible=only("b"))
    assert member.partitions == {"b": {0}}


def test_a_change_of_permissions_right_after_another_is_not_missed() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1, c=1))
    member = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    scenario.pass_ms(1_000)
    scenario.shard.permissions_changed()
    member.beat(visible=only("a", "b"))
    scenario.shard.permissions_changed()
    member.beat(visible=only("a", "b", "c"))
    assert member.partitions == {"a": {0}, "b": {0}}
    scenario.pass_ms(1_000)
    member.beat(visible=only("a", "b", "c"))
    assert member.partitions == {"a": {0}, "b": {0}, "c": {0}}


def test_a_session_that_expires_does_not_match_patterns() -> None:
    scenario = ConsumerScenario(Topics(a=1))
    first = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    scenario.member("m2", topics=None, pattern=".*", visible=only("a"))
    scenario.topics.create("b", 1)
    scenario.pass_ms(SESSION_MS - 1)
    first.beat(visible=only("a"))
    scenario.topics.create("c", 1)
    scenario.pass_ms(1)
    assert set(scenario.consumers.members) == {"m1"}
    assert scenario.consumers.patterns[".*"].topics == ("a",)
    scenario.pass_ms(1_000)
    first.beat(visible=only("a", "c"))
    assert scenario.consumers.patterns[".*"].topics == ("a", "c")


def test_patterns_are_matched_again_after_a_restart() -> None:
    scenario = ConsumerScenario(Topics(a=1, b=1))
    member = scenario.member("m1", topics=None, pattern=".*", visible=only("a"))
    member.scenario = scenario.restarted()
    assert member.scenario.consumers.patterns[".*"].topics == ("a",)
    member.beat(visible=only("b"))
    assert member.scenario.consumers.patterns[".*"].topics == ("b",)


def test_a_match_that_could_not_be_written_is_repeated() -> None:
    scenario = ConsumerScenario(Topics(a=1))
    member = scenario.member("m1", topics=None, pattern=".*")
    scenario.topics.create("b", 1)
    scenario.pass_ms(1_000)
    scenario.log_fails = ErrorCode.NOT_ENOUGH_REPLICAS
    member.beat()
    scenario.log_fails = None
    scenario.pass_ms(1_000)
    member.beat()
    assert member.partitions == {"a": {0}, "b": {0}}


# ----------------------------------------------------------------------------- static members


def test_a_static_member_that_returns_in_time_keeps_its_assignment_without_a_rebalance() -> None:
    scenario = ConsumerScenario()
    stays = scenario.member("m1", instance_id="a")
    leaves = scenario.member("m2", instance_id="b")
    scenario.settle(stays, leaves)
    epoch, had = scenario.consumers.epoch, leaves.partitions
    assert leaves.leave(-2).answer == {"member_id": "m2", "member_epoch": -2}
    assert scenario.consumers.members["m2"].epoch == -2
    stays.beat()
    back = scenario.member("m3", instance_id="b")
    assert back.partitions == had
    assert back.epoch == epoch == scenario.consumers.epoch
    assert set(scenario.consumers.members) == {"m1", "m3"}
    assert leaves.beat().code is ErrorCode.FENCED_INSTANCE_ID
    size = len(scenario.log)
    stays.beat()
    assert len(scenario.log) == size


def test_a_static_member_that_is_not_back_in_time_is_removed() -> None:
    scenario = ConsumerScenario()
    leaves = scenario.member("m1", instance_id="a")
    leaves.leave(-2)
    scenario.pass_ms(SESSION_MS)
    assert scenario.consumers.state is ConsumerGroupState.EMPTY


def test_an_instance_id_that_is_in_use_cannot_be_taken() -> None:
    scenario = ConsumerScenario()
    scenario.member("m1", instance_id="a")
    assert scenario.enter("m2", instance_id="a").code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert scenario.enter("m1", instance_id="a").code is ErrorCode.NONE, "it asks again"


def test_a_static_member_may_leave_for_good() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1", instance_id="a")
    assert member.leave(-1).code is ErrorCode.NONE
    assert scenario.consumers.static_members == {}


# ---------------------------------------------------------------------------------- assignors


def test_most_members_choose_the_assignor() -> None:
    scenario = ConsumerScenario(Topics(t=3, u=3))
    first = scenario.member("m1", "t", "u", assignor="range")
    second = scenario.member("m2", "t", "u")
    scenario.settle(first, second)
    assert second.partitions == {"t": {2}, "u": {2}}
    assert scenario.described()["assignor_name"] == "range"


# ----------------------------------------------------------------------------------- restarts


def state_of(scenario: ConsumerScenario) -> Any:
    group = scenario.consumers
    return {
        name: getattr(group, name)
        for name in (
            "epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp_ms", "members",
            "static_members", "targets", "patterns", "owners",
        )
    }  # fmt: skip


def test_a_group_is_the_same_after_a_restart() -> None:
    scenario = ConsumerScenario(Topics(t=6, u=2))
    clients = [
        scenario.member("m1", instance_id="a"),
        scenario.member("m2", topics=None, pattern="u|t"),
        scenario.member("m3", "u"),
    ]
    for client in clients:
        client.beat()
        restarted = scenario.restarted()
        assert state_of(restarted) == state_of(scenario)
    scenario.settle(*clients)
    restarted = scenario.restarted()
    for client in clients:
        client.scenario = restarted
        assert client.beat().code is ErrorCode.NONE
    assert restarted.consumers.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_a_group_is_the_same_after_its_log_was_compacted(keeps_tombstones: bool) -> None:
    scenario = ConsumerScenario(Topics(t=6, u=2))
    clients = [scenario.member("m1", instance_id="a"), scenario.member("m2", "t", "u")]
    scenario.settle(*clients)
    clients[0].leave(-2)
    clients[0] = scenario.member("m3", instance_id="a")
    clients.append(scenario.member("m4", topics=None, pattern="u.*"))
    clients.pop(1).leave()
    scenario.settle(*clients)
    for clean_to in range(len(scenario.log) + 1):
        loaded = scenario.compacted(clean_to, keeps_tombstones=keeps_tombstones)
        assert state_of(loaded) == state_of(scenario), clean_to


def test_after_a_restart_members_have_a_session_again() -> None:
    scenario = ConsumerScenario()
    first, second = scenario.member("m1", rebalance_timeout_ms=5_000), scenario.member("m2")
    first.beat()
    restarted = scenario.restarted()
    assert restarted.consumers.members["m1"].state == MemberState.UNREVOKED_PARTITIONS
    restarted.pass_ms(5_000)
    assert set(restarted.consumers.members) == {"m2"}, "it had to give up partitions"
    restarted.pass_ms(SESSION_MS)
    assert not restarted.consumers.members
    assert second.partitions == {}


def test_the_topics_that_kafka_4_0_wrote_down_are_cleared_away() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    scenario.write(*scenario.shard.encode(SubscriptionMetadataRecord(GROUP, b"\0\0\1\0")))
    scenario.topics.grow("t", 7)
    member.beat()
    assert not scenario.consumers.has_subscription_metadata
    assert not scenario.restarted().consumers.has_subscription_metadata


def test_a_change_that_cannot_be_written_has_not_happened() -> None:
    scenario = ConsumerScenario()
    first, second = scenario.member("m1"), scenario.member("m2")
    scenario.settle(first, second)
    before = state_of(scenario)
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    scenario.topics.grow("t", 8)
    assert first.beat().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.enter("m3").error is ErrorCode.KAFKA_STORAGE_ERROR
    assert second.leave().error is ErrorCode.KAFKA_STORAGE_ERROR
    scenario.pass_ms(SESSION_MS)
    assert state_of(scenario) == before
    scenario.log_fails = None
    scenario.settle(first, second)
    assert len(first.partitions["t"] | second.partitions["t"]) == 8, "the change was not forgotten"
    scenario.pass_ms(SESSION_MS)
    assert not scenario.consumers.members, "sessions run still"


# ------------------------------------------------------------------------------------- offsets


def test_a_member_commits_and_fetches_in_its_epoch() -> None:
    scenario = ConsumerScenario()
    member = scenario.member("m1")
    known = {"member_id": "m1", "generation": member.epoch}
    assert scenario.commit_codes({("t", 0): 5}, **known) == [ErrorCode.NONE]
    fetched = scenario.submit(events.OffsetsRequested(Call(), GROUP, None, False, "m1", 1))
    assert fetched.code is ErrorCode.NONE


def test_offsets_of_topics_that_the_group_reads_stay_others_expire() -> None:
    settings = GroupSettings(offsets_retention_ms=1_000, consumer_assignment_interval_ms=0)
    scenario = ConsumerScenario(Topics(t=1, u=1, v=1), settings)
    scenario.commit({("t", 0): 1, ("u", 0): 2, ("v", 0): 3})
    member = scenario.member("m1", topics=["t"], pattern="u.*")
    scenario.pass_ms(1_000)
    member.beat()
    scenario.submit(events.RetentionChecked(None, [GROUP]))
    assert scenario.fetch() == {("t", 0): 1, ("u", 0): 2}
    member.leave()
    scenario.submit(events.RetentionChecked(None, [GROUP]))
    assert GROUP not in scenario.shard.groups
    assert GROUP not in scenario.restarted().shard.groups


@pytest.mark.parametrize("topic", ["t", "u", "v"])
def test_offsets_of_topics_that_the_group_reads_cannot_be_deleted(topic: str) -> None:
    scenario = ConsumerScenario(Topics(t=1, u=1, v=1))
    scenario.commit({(topic, 0): 1})
    scenario.member("m1", topics=["t"], pattern="u.*")
    asked = [events.OffsetsOfTopic(topic, [0])]
    call = scenario.submit(events.OffsetDeleteRequested(Call(), GROUP, asked))
    ((answer,),) = [each["partitions"] for each in call.answer["topics"]]
    expected = ErrorCode.NONE if topic == "v" else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert answer["error_code"] == expected


# ----------------------------------------------------------------------------------- describing


def test_a_group_is_described_with_what_members_have_and_are_to_have() -> None:
    scenario = ConsumerScenario()
    scenario.member("m1", instance_id="a", rack_id="r")
    scenario.member("m2")
    described = scenario.described()
    assert described["group_state"] == "Reconciling"
    assert (described["group_epoch"], described["assignment_epoch"]) == (2, 2)
    first, second = described["members"]
    assert (first["instance_id"], first["rack_id"], first["member_epoch"]) == ("a", "r", 1)
    assert first["subscribed_topic_names"] == ["t"]
    assert first["member_type"] == 1
    assert first["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3, 4, 5]
    assert first["target_assignment"]["topic_partitions"][0]["topic_name"] == "t"
    assert second["assignment"] == {"topic_partitions": []}


def test_groups_are_listed_with_type_and_state() -> None:
    scenario = ConsumerScenario(settings=AT_ONCE)
    scenario.member("m1")
    scenario.commit({("t", 0): 5}, group="simple")

    def listed(states: set[str], types: set[str]) -> list[tuple[str, str, str]]:
        call = scenario.submit(events.ListRequested(Call(), frozenset(states), frozenset(types)))
        return [
            (each["group_id"], each["group_type"], each["group_state"])
            for each in call.answer["groups"]
        ]

    consumer, simple = (GROUP, "consumer", "Stable"), ("simple", "classic", "Empty")
    assert sorted(listed(set(), set())) == [consumer, simple]
    assert listed(set(), {"consumer"}) == [consumer]
    assert listed({"empty"}, set()) == [simple]
    assert listed({"stable"}, {"classic"}) == []
