"""Tests of committing, fetching, deleting and expiring offsets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.scenario import (
    GROUP,
    NO_DELAY,
    RANGE,
    SESSION_MS,
    START_MS,
    Call,
    Scenario,
    subscription,
)

from ottla.base.errors import ErrorCode
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.group import events
from ottla.core.group.classic import GroupState
from ottla.core.group.events import FetchTopic
from ottla.core.group.records import CommittedOffset, OffsetRecord, encode_record

RETENTION_MS = 7 * 24 * 3_600_000
TOPIC_ID, OTHER_ID = b"a" * 16, b"b" * 16

# ------------------------------------------------------------------------------------- committing


def test_anyone_may_commit_to_a_group_without_members() -> None:
    scenario = Scenario()
    assert scenario.commit_codes({("t", 0): 5, ("t", 1): 6}) == [ErrorCode.NONE] * 2
    assert scenario.fetch() == {("t", 0): 5, ("t", 1): 6}
    assert scenario.state is GroupState.EMPTY
    assert scenario.group.protocol_type is None


def test_a_commit_keeps_all_that_was_sent() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5}, metadata="note", topic_id=TOPIC_ID)
    assert scenario.offset("t", 0) == CommittedOffset(5, 0, "note", START_MS, -1, TOPIC_ID, 0)


def test_the_last_commit_counts_even_if_it_goes_back() -> None:
    scenario = Scenario()
    for offset in (5, 9, 2):
        scenario.commit({("t", 0): offset})
    assert scenario.fetch() == {("t", 0): 2}


def test_members_commit_in_their_generation() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    offsets = {("t", 0): 5}
    mine = {"member_id": member.member_id, "generation": 1}
    assert scenario.commit_codes(offsets, **mine) == [ErrorCode.NONE]
    assert scenario.commit_codes(offsets, **{**mine, "generation": 0}) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert scenario.commit_codes(offsets, **{**mine, "member_id": "x"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert scenario.commit_codes(offsets) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_members_may_commit_before_they_join_again() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.join_fully()
    assert scenario.state is GroupState.PREPARING_REBALANCE
    mine = {"member_id": member.member_id, "generation": 1}
    assert scenario.commit_codes({("t", 0): 5}, **mine) == [ErrorCode.NONE]


def test_nobody_commits_while_assignments_are_awaited() -> None:
    scenario = Scenario()
    call = scenario.join_fully()
    scenario.pass_ms(3_000)
    mine = {"member_id": call.member_id, "generation": 1}
    assert scenario.commit_codes({("t", 0): 5}, **mine) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    for offset in range(5):
        scenario.pass_ms(SESSION_MS - 1)
        scenario.commit({("t", 0): offset}, member_id=member.member_id, generation=1)
    assert scenario.state is GroupState.STABLE


def test_a_member_of_a_group_that_is_not_there_cannot_commit() -> None:
    scenario = Scenario()
    offsets = {("t", 0): 5}
    assert scenario.commit_codes(offsets, member_id="m", generation=3) == [
        ErrorCode.GROUP_ID_NOT_FOUND
    ]
    assert scenario.commit_codes(
        offsets, member_id="m", generation=3, knows_group_not_found=False
    ) == [ErrorCode.ILLEGAL_GENERATION]
    assert scenario.state is GroupState.DEAD


def test_metadata_that_is_too_long_fails_its_partition_alone() -> None:
    scenario = Scenario()
    topics = [
        events.CommitTopic(
            "t",
            TOPIC_ID,
            [
                events.CommitPartition(0, 1, 0, "x" * 4_096),
                events.CommitPartition(1, 1, 0, "x" * 4_097),
                events.CommitPartition(2, 1, 0, None),
            ],
        )
    ]
    call = scenario.submit(events.CommitRequested(Call(), GROUP, "", None, -1, -1, topics))
    codes = [each["error_code"] for each in call.answer["topics"][0]["partitions"]]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert set(scenario.fetch()) == {("t", 0), ("t", 2)}


def test_commits_that_cannot_be_written_change_nothing() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5})
    scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.commit({("t", 0): 6}).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert scenario.fetch() == {("t", 0): 5}


# --------------------------------------------------------------------------------------- fetching


def test_a_group_that_is_not_known_has_no_offsets() -> None:
    scenario = Scenario()
    assert scenario.fetch() == {}
    assert scenario.fetch(FetchTopic("t", [0, 1])) == {("t", 0): -1, ("t", 1): -1}


def test_what_was_not_committed_is_minus_one() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5})
    assert scenario.fetch(FetchTopic("t", [0, 9]), FetchTopic("u", [0])) == {
        ("t", 0): 5,
        ("t", 9): -1,
        ("u", 0): -1,
    }


def test_an_offset_of_an_earlier_topic_of_the_same_name_is_none() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5}, topic_id=TOPIC_ID)
    assert scenario.fetch(FetchTopic("t", [0], TOPIC_ID)) == {("t", 0): 5}
    assert scenario.fetch(FetchTopic("t", [0])) == {("t", 0): 5}
    assert scenario.fetch(FetchTopic("t", [0], OTHER_ID)) == {("t", 0): -1}


# ----------------------------------------------------------------------------------- transactions


def write_in_transaction(scenario: Scenario, offset: int, producer_id: int = 7) -> None:
    record = OffsetRecord(GROUP, "t", 0, CommittedOffset(offset, -1, "", START_MS))
    scenario.write(*encode_record(record), producer_id)


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 1})
    write_in_transaction(scenario, 5)
    assert scenario.fetch() == {("t", 0): 1}
    assert scenario.fetch(stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    scenario.shard.end_transaction(7, commit=True)
    assert scenario.fetch(stable=True) == {("t", 0): 5}


def test_offsets_of_a_transaction_that_aborts_never_count() -> None:
    scenario = Scenario()
    write_in_transaction(scenario, 5)
    scenario.shard.end_transaction(7, commit=False)
    assert scenario.fetch() == {}
    assert scenario.fetch(FetchTopic("t", [0]), stable=True) == {("t", 0): -1}


def test_of_a_transaction_and_a_later_commit_the_later_counts() -> None:
    scenario = Scenario()
    write_in_transaction(scenario, 5)
    scenario.commit({("t", 0): 6})
    scenario.shard.end_transaction(7, commit=True)
    assert scenario.fetch() == {("t", 0): 6}


TXN = ProducerIdAndEpoch(7, epoch=2)


def test_a_commit_in_a_transaction_waits_for_its_end() -> None:
    scenario = Scenario()
    assert scenario.commit_codes({("t", 0): 5}, producer=TXN) == [ErrorCode.NONE]
    asked = FetchTopic("t", [0])
    assert scenario.fetch(asked, stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert scenario.restarted().fetch(asked, stable=True) == scenario.fetch(asked, stable=True)
    scenario.end_transaction(TXN.id, commit=True)
    assert scenario.fetch(stable=True) == {("t", 0): 5}
    assert scenario.restarted().fetch(stable=True) == {("t", 0): 5}


def test_the_records_of_a_transaction_are_its_producers() -> None:
    topics = [events.CommitTopic("t", bytes(16), [events.CommitPartition(0, 5, 0, "")])]
    event = events.CommitRequested(None, GROUP, "", None, -1, -1, topics, producer=TXN)
    assert Scenario().shard.decide(event, START_MS).producer == TXN


def test_an_offset_is_unstable_until_the_last_of_its_transactions_ends() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 1})
    for producer_id in (7, 8):
        scenario.commit({("t", 0): producer_id}, producer=ProducerIdAndEpoch(producer_id, 0))
        scenario.commit({("t", 0): producer_id}, producer=ProducerIdAndEpoch(producer_id, 0))
    scenario.end_transaction(8, commit=True)
    assert scenario.fetch(stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    scenario.end_transaction(7, commit=False)
    assert scenario.fetch(stable=True) == {("t", 0): 8}


def test_deleting_an_offset_drops_it_from_open_transactions() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5}, producer=TXN)
    delete_offsets(scenario, ("t", [0]))
    assert scenario.fetch(FetchTopic("t", [0]), stable=True) == {("t", 0): -1}
    scenario.end_transaction(TXN.id, commit=True)
    assert scenario.fetch() == {}


def test_a_transaction_may_commit_for_a_group_with_members_without_naming_one() -> None:
    scenario = Scenario()
    member, *_ = scenario.stable_group()
    assert scenario.commit_codes({("t", 0): 5}, producer=TXN) == [ErrorCode.NONE]
    known = {"member_id": member.member_id, "generation": member.generation}
    assert scenario.commit_codes({("t", 0): 5}, producer=TXN, **known) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"member_id": "stranger", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_transaction_that_names_a_member_must_name_one_of_the_group(
    claim: dict[str, Any], code: ErrorCode
) -> None:
    scenario = Scenario()
    scenario.stable_group()
    assert scenario.commit_codes({("t", 0): 5}, producer=TXN, **claim) == [code]


def test_a_transaction_with_an_old_generation_is_refused() -> None:
    scenario = Scenario()
    member, *_ = scenario.stable_group()
    old = {"member_id": member.member_id, "generation": member.generation - 1}
    refused = scenario.commit_codes({("t", 0): 5}, producer=TXN, **old)
    assert refused == [ErrorCode.ILLEGAL_GENERATION]


def test_a_transaction_with_a_generation_of_no_group_is_refused() -> None:
    refused = Scenario().commit_codes({("t", 0): 5}, producer=TXN, generation=3, member_id="m")
    assert refused == [ErrorCode.ILLEGAL_GENERATION]


def test_a_member_may_commit_in_a_transaction_while_the_group_waits_for_its_assignment() -> None:
    scenario = Scenario(NO_DELAY)
    joined = scenario.join_fully()
    scenario.pass_ms(0)
    known = {"member_id": joined.member_id, "generation": joined.generation}
    assert scenario.commit_codes({("t", 0): 5}, **known) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert scenario.commit_codes({("t", 0): 5}, producer=TXN, **known) == [ErrorCode.NONE]


# --------------------------------------------------------------------------------------- deleting


def delete_offsets(scenario: Scenario, *topics: tuple[str, list[int]]) -> Call:
    asked = [events.OffsetsOfTopic(*each) for each in topics]
    call: Call = scenario.submit(events.OffsetDeleteRequested(Call(), GROUP, asked))
    return call


def codes_of(call: Call) -> list[int]:
    return [each["error_code"] for topic in call.answer["topics"] for each in topic["partitions"]]


def test_offsets_of_a_group_without_members_can_be_deleted() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5, ("t", 1): 6})
    call = delete_offsets(scenario, ("t", [0, 9]))
    assert (call.code, codes_of(call)) == (ErrorCode.NONE, [0, 0])
    assert scenario.fetch() == {("t", 1): 6}
    assert scenario.restarted().fetch() == {("t", 1): 6}


def test_offsets_of_topics_that_consumers_read_cannot_be_deleted() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5, ("u", 0): 6})
    scenario.stable_group()
    call = delete_offsets(scenario, ("t", [0]), ("u", [0]))
    assert codes_of(call) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert scenario.fetch() == {("t", 0): 5}


def test_offsets_of_other_groups_with_members_cannot_be_deleted() -> None:
    scenario = Scenario()
    scenario.stable_group(protocol_type="connect")
    assert delete_offsets(scenario, ("t", [0])).code is ErrorCode.NON_EMPTY_GROUP


def test_a_subscription_that_cannot_be_read_is_taken_to_be_to_everything() -> None:
    scenario = Scenario()
    scenario.commit({("u", 0): 6})
    scenario.stable_group(protocols=(("range", b"\0"),))
    assert codes_of(delete_offsets(scenario, ("u", [0]))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    assert delete_offsets(Scenario(), ("t", [0])).code is ErrorCode.GROUP_ID_NOT_FOUND


def delete_group(scenario: Scenario, group: str = GROUP) -> ErrorCode:
    call: Call = scenario.submit(events.DeleteRequested(Call(), group))
    return call.code


def test_a_group_without_members_can_be_deleted_with_its_offsets() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    scenario.commit({("t", 0): 5, ("u", 3): 7}, member_id=member.member_id, generation=1)
    assert delete_group(scenario) is ErrorCode.NON_EMPTY_GROUP
    scenario.leave(member.member_id)
    assert delete_group(scenario) is ErrorCode.NONE
    assert scenario.state is GroupState.DEAD
    assert scenario.fetch() == {}
    restarted = scenario.restarted()
    assert restarted.state is GroupState.DEAD
    assert restarted.fetch() == {}
    assert delete_group(scenario) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5, ("u", 0): 6}, topic_id=TOPIC_ID)
    scenario.commit({("t", 0): 7}, group="other", topic_id=OTHER_ID)
    scenario.submit(events.TopicDeleted(None, "t", TOPIC_ID))
    assert scenario.fetch() == {("u", 0): 6}
    assert scenario.fetch(group="other") == {("t", 0): 7}, "of another topic of that name"


# ------------------------------------------------------------------------------------------ expiry


def check_retention(scenario: Scenario) -> None:
    scenario.submit(events.RetentionChecked(None, list(scenario.shard.groups)))


def test_offsets_of_a_group_that_only_commits_expire_after_the_last_commit() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5, ("u", 0): 1})
    scenario.pass_ms(1_000)
    scenario.commit({("t", 0): 6})
    scenario.pass_ms(RETENTION_MS - 1_000)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 6}
    scenario.pass_ms(1_000)
    check_retention(scenario)
    assert scenario.state is GroupState.DEAD
    assert scenario.restarted().state is GroupState.DEAD


def test_offsets_expire_when_the_group_has_been_empty_for_long() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group(session_ms=2 * RETENTION_MS)
    scenario.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    scenario.pass_ms(RETENTION_MS + 1)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 5}, "the group reads the topic"
    scenario.leave(member.member_id)
    scenario.pass_ms(RETENTION_MS - 1)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 5}
    scenario = scenario.restarted()
    scenario.pass_ms(1)
    check_retention(scenario)
    assert scenario.state is GroupState.DEAD


def test_offsets_of_topics_that_a_stable_group_does_not_read_expire() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group(session_ms=2 * RETENTION_MS)
    offsets = {("t", 0): 5, ("u", 0): 6}
    scenario.commit(offsets, member_id=member.member_id, generation=1)
    scenario.pass_ms(RETENTION_MS)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 5}
    assert scenario.state is GroupState.STABLE


def test_offsets_of_other_groups_with_members_stay() -> None:
    scenario = Scenario()
    long = {"session_ms": 2 * RETENTION_MS, "protocol_type": "connect", "protocols": RANGE}
    (member,) = scenario.stable_group(**long)
    scenario.commit({("u", 0): 6}, member_id=member.member_id, generation=1)
    scenario.pass_ms(RETENTION_MS)
    check_retention(scenario)
    assert scenario.fetch() == {("u", 0): 6}


def test_an_offset_with_an_expire_time_of_its_own_goes_at_that_time() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5}, retention_ms=1_000)
    scenario.pass_ms(999)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 5}
    scenario = scenario.restarted()
    scenario.pass_ms(1)
    check_retention(scenario)
    assert scenario.fetch() == {}


def test_an_offset_that_a_transaction_wants_to_change_does_not_expire() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5})
    scenario.pass_ms(RETENTION_MS)
    write_in_transaction(scenario, 9)
    check_retention(scenario)
    assert scenario.fetch() == {("t", 0): 5}
    assert scenario.state is GroupState.EMPTY


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    scenario = Scenario()
    (member,) = scenario.stable_group()
    check_retention(scenario)
    assert scenario.state is GroupState.STABLE
    scenario.leave(member.member_id)
    pending = scenario.join()
    check_retention(scenario)
    assert scenario.state is GroupState.EMPTY, "somebody is about to join"
    scenario.leave(pending.member_id)
    check_retention(scenario)
    assert scenario.state is GroupState.DEAD


# ------------------------------------------------------------------------------------ subscriptions


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\1",
        b"\0\1\0\0\0\2\0\1t",
        b"\0\1\x7f\xff\xff\xff",
        b"\xff\xff\0\0\0\0",
        b"\0\1\0\0\0\1\0\5tt",
        b"\0\1\0\0\0\1\xff\xff",
        b"\0\1\0\0\0\1\0\1\xff",
    ],
)
def test_metadata_that_is_no_consumers_is_opaque(metadata: bytes) -> None:
    scenario = Scenario()
    scenario.stable_group(protocols=(("range", metadata),))
    assert scenario.group.subscribed_topics is None


def test_only_the_topics_of_a_subscription_are_looked_at() -> None:
    scenario = Scenario()
    newer = subscription("t", "u") + b"whatever version 99 adds"
    scenario.stable_group(protocols=(("range", newer),))
    assert scenario.group.subscribed_topics == {"t", "u"}


def test_a_retention_beyond_the_end_of_time_is_kept_until_then() -> None:
    scenario = Scenario()
    scenario.commit({("t", 0): 5}, retention_ms=2**63 - 1)
    assert scenario.restarted().fetch() == {("t", 0): 5}
