"""Tests of a group member's next step: reactions to errors, plans, and the poll interval."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.consumer.membership import PollProgress, Reaction, plan, reaction_to
from ottla.wire.api import Api


@pytest.mark.parametrize(
    ("api", "code", "reaction"),
    [
        (Api.JOIN_GROUP, ErrorCode.NONE, Reaction.CONTINUE),
        (Api.JOIN_GROUP, ErrorCode.MEMBER_ID_REQUIRED, Reaction.JOIN_WITH_ID),
        (Api.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Reaction.RETRY),
        (Api.JOIN_GROUP, ErrorCode.NOT_COORDINATOR, Reaction.FIND_COORDINATOR),
        (Api.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID, Reaction.START_OVER),
        (Api.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Reaction.FAIL),
        (Api.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, Reaction.FAIL),
        (Api.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED, Reaction.FAIL),
        (Api.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS, Reaction.REJOIN),
        (Api.SYNC_GROUP, ErrorCode.ILLEGAL_GENERATION, Reaction.START_OVER),
        (Api.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, Reaction.REJOIN),
        (Api.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, Reaction.START_OVER),
        (Api.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID, Reaction.FAIL),
        (Api.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH, Reaction.START_OVER),
        (Api.CONSUMER_GROUP_HEARTBEAT, ErrorCode.UNRELEASED_INSTANCE_ID, Reaction.FAIL),
        (Api.CONSUMER_GROUP_HEARTBEAT, ErrorCode.UNSUPPORTED_ASSIGNOR, Reaction.FAIL),
        (Api.HEARTBEAT, 9999, Reaction.FAIL),
    ],
)
def test_each_code_calls_for_one_reaction(api: Api, code: int, reaction: Reaction) -> None:
    assert reaction_to(api, code) is reaction


def test_a_plan_is_what_goes_and_what_comes() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    found = plan([a, b], [b, c])
    assert (found.revoke, found.add) == ((a,), (c,))
    assert found.needs_another_round
    assert not plan([b], [b, c]).needs_another_round


def test_polls_and_records_count_as_signs_of_life() -> None:
    progress = PollProgress(0.0)
    assert progress.idle_s(5.0) == 5.0
    progress.polls += 1
    assert progress.idle_s(6.0) == 0.0
    assert progress.idle_s(8.0) == 2.0
    progress.last = object()
    assert progress.idle_s(9.0) == 0.0
    progress.is_in_poll = True
    assert progress.idle_s(100.0) == 0.0
