"""Tests of every error of the consumer protocol, and of the classic protocol in consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.core.group.consumer_scenario import REBALANCE_MS, ConsumerScenario
from tests.unit.core.group.scenario import GROUP, Call, subscription

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.group import events
from ottla.core.group.consumer_heartbeat import check
from ottla.core.group.settings import GroupSettings

# ---------------------------------------------------------------------------- invalid requests

FIRST: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": REBALANCE_MS,
    "topics": ["t"],
    "owned": {},
}
INVALID = ErrorCode.INVALID_REQUEST
REQUESTS: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "no group": ({"group_id": ""}, INVALID, "GroupId can't be empty."),
    "a blank group": ({"group_id": "  "}, INVALID, "GroupId can't be empty."),
    "no member": ({"member_id": ""}, INVALID, "MemberId can't be empty."),
    "no member goes on": (
        {"member_id": "", "member_epoch": 3},
        INVALID,
        "MemberId can't be empty.",
    ),
    "no member leaves": (
        {"member_id": "", "member_epoch": -1},
        INVALID,
        "MemberId can't be empty.",
    ),
    "an empty instance": ({"instance_id": ""}, INVALID, "InstanceId can't be empty."),
    "an empty rack": ({"rack_id": " "}, INVALID, "RackId can't be empty."),
    "no timeout": (
        {"rebalance_timeout_ms": -1},
        INVALID,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "nothing said of partitions": (
        {"owned": None},
        INVALID,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "partitions of before": (
        {"owned": {b"x" * 16: frozenset({1})}},
        INVALID,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "no subscription": (
        {"topics": None},
        INVALID,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    "a dynamic member pauses": ({"member_epoch": -2}, INVALID, "InstanceId can't be null."),
    "an epoch that there is not": ({"member_epoch": -3}, INVALID, "MemberEpoch is invalid."),
    "an assignor that there is not": (
        {"assignor": "mine"},
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor mine is not supported. Supported assignors: uniform, range.",
    ),
    "a pattern that is none": (
        {"pattern": "(a"},
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing ).",
    ),
}


def heartbeat(**fields: Any) -> events.ConsumerHeartbeat:
    return events.ConsumerHeartbeat(token=None, client_id="c", client_host="/h", **fields)


@pytest.mark.parametrize(("fields", "code", "message"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_is_wrong_by_itself(
    fields: dict[str, Any], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        check(heartbeat(**{**FIRST, **fields}), 1, ("uniform", "range"))
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topics": []},
        {"topics": None, "pattern": "t.*"},
        {"topics": None, "pattern": ""},
        {"member_epoch": 4, "topics": None, "owned": None, "rebalance_timeout_ms": -1},
        {"member_epoch": -1},
        {"member_epoch": -2, "instance_id": "i"},
        {"assignor": "range"},
    ],
)
def test_a_request_that_is_right(fields: dict[str, Any]) -> None:
    check(heartbeat(**{**FIRST, **fields}), 1, ("uniform", "range"))


def test_in_version_0_a_member_that_joins_may_have_no_id() -> None:
    check(heartbeat(**{**FIRST, "member_id": ""}), 0, ("uniform",))


# ------------------------------------------------------------------ errors from the group's state


class Given:
    """A consumer group with a dynamic, a static and a classic member."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        options = {} if settings is None else {"settings": settings}
        self.scenario = ConsumerScenario(**options)  # type: ignore[arg-type]
        self.scenario.join_fully(group="classic", protocol_type="connect")
        self.member = self.scenario.member("m")
        self.static = self.scenario.member("s", instance_id="i")
        asked = self.scenario.join()
        self.classic = self.scenario.join(asked.member_id)
        self.scenario.settle(self.member, self.static)


Ask = Callable[[Given], ErrorCode]


def beat(**fields: Any) -> Ask:
    return lambda given: given.scenario.beat(**fields).code


def enter(member_id: str, **fields: Any) -> Ask:
    return lambda given: given.scenario.enter(member_id, **fields).code


HEARTBEATS: dict[str, tuple[Ask, ErrorCode]] = {
    "of no group": (
        beat(member_id="m", epoch=1, group="none"),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "that leaves no group": (
        beat(member_id="m", epoch=-1, group="none"),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "of a classic group": (
        beat(member_id="m", epoch=1, group="classic"),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "that leaves a classic group": (
        beat(member_id="m", epoch=-1, group="classic"),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "that joins a group of others than consumers": (
        enter("m", group="classic"),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "of a stranger": (beat(member_id="x", epoch=1), ErrorCode.UNKNOWN_MEMBER_ID),
    "of a stranger who leaves": (beat(member_id="x", epoch=-1), ErrorCode.UNKNOWN_MEMBER_ID),
    "of an unknown instance": (
        beat(member_id="s", epoch=2, instance_id="x"),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "of an unknown instance that pauses": (
        beat(member_id="s", epoch=-2, instance_id="x"),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "with a later epoch": (beat(member_id="m", epoch=99), ErrorCode.FENCED_MEMBER_EPOCH),
    "with an old epoch": (beat(member_id="m", epoch=1), ErrorCode.FENCED_MEMBER_EPOCH),
    "of another static member": (
        beat(member_id="m", epoch=2, instance_id="i"),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "of another static member that leaves": (
        beat(member_id="m", epoch=-1, instance_id="i"),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "of another static member that pauses": (
        beat(member_id="m", epoch=-2, instance_id="i"),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "that takes an instance id in use": (
        enter("x", instance_id="i"),
        ErrorCode.UNRELEASED_INSTANCE_ID,
    ),
}


@pytest.mark.parametrize(("ask", "code"), HEARTBEATS.values(), ids=HEARTBEATS)
def test_a_consumer_heartbeat(ask: Ask, code: ErrorCode) -> None:
    given = Given()
    size = len(given.scenario.log)
    assert ask(given) is code
    assert len(given.scenario.log) == size, "nothing has happened"


def test_a_consumer_group_that_is_full() -> None:
    full = GroupSettings(consumer_max_size=2, consumer_assignment_interval_ms=0)
    scenario = ConsumerScenario(settings=full)
    members = [scenario.member("m"), scenario.member("s", instance_id="i")]
    refused = scenario.enter("x")
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.answer["error_message"] == (
        "The consumer group has reached its maximum capacity of 2 members."
    )
    asked = scenario.join()
    assert (asked.code, asked.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    scenario.settle(*members)


# ------------------------------------------------------- classic members of a consumer group


def old_generation(given: Given) -> Any:
    return {"member_id": given.classic.member_id, "generation": given.classic.generation - 1}


CLASSIC: dict[str, tuple[Ask, ErrorCode]] = {
    "heartbeat of a stranger": (
        lambda given: given.scenario.heartbeat("x", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "heartbeat of a member of the consumer protocol": (
        lambda given: given.scenario.heartbeat("m", given.member.epoch),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "heartbeat of an unknown instance": (
        lambda given: given.scenario.heartbeat("m", 1, instance="x"),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "heartbeat of another static member": (
        lambda given: given.scenario.heartbeat("m", 1, instance="i"),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "heartbeat of an old generation": (
        lambda given: given.scenario.heartbeat(**old_generation(given)),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "sync of an old generation": (
        lambda given: (
            given.scenario.submit(
                events.SyncRequested(
                    Call(), GROUP, given.classic.member_id, None, 0, None, None, {}
                )
            ).code
        ),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "sync of a stranger": (
        lambda given: (
            given.scenario.submit(
                events.SyncRequested(Call(), GROUP, "x", None, 0, None, None, {})
            ).code
        ),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "sync of another protocol": (
        lambda given: given.scenario.sync(given.classic, protocol=("consumer", "mine")).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "sync of another type": (
        lambda given: given.scenario.sync(given.classic, protocol=("connect", "range")).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "join of another type": (
        lambda given: given.scenario.join(protocol_type="connect").code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "join without a shared protocol": (
        lambda given: given.scenario.join(protocols=(("mine", subscription("t")),)).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "join without protocols": (
        lambda given: given.scenario.join(protocols=()).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "join with metadata that is none": (
        lambda given: given.scenario.join(protocols=(("range", b"\0"),)).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "join without an id": (
        lambda given: given.scenario.join().code,
        ErrorCode.MEMBER_ID_REQUIRED,
    ),
    "join of another static member": (
        lambda given: given.scenario.join("m", instance="i").code,
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "join of an unknown instance with an id": (
        lambda given: given.scenario.join("m", instance="x").code,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "leave of a stranger": (
        lambda given: given.scenario.leave("x")[0],
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "leave of an unknown instance": (
        lambda given: given.scenario.leave(("", "x"))[0],
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "leave of another static member": (
        lambda given: given.scenario.leave(("m", "i"))[0],
        ErrorCode.FENCED_INSTANCE_ID,
    ),
}


@pytest.mark.parametrize(("ask", "code"), CLASSIC.values(), ids=CLASSIC)
def test_a_classic_request_to_a_consumer_group(ask: Ask, code: ErrorCode) -> None:
    given = Given()
    size = len(given.scenario.log)
    assert ask(given) is code
    assert len(given.scenario.log) == size, "nothing has happened"


def test_a_sync_while_the_group_changes() -> None:
    given = Given()
    joined = given.scenario.join(given.classic.member_id)
    given.scenario.member("more")
    assert given.scenario.sync(joined).code is ErrorCode.REBALANCE_IN_PROGRESS


# ---------------------------------------------------------------------------------------- offsets


def commit(**options: Any) -> Ask:
    def ask(given: Given) -> ErrorCode:
        (code,) = given.scenario.commit_codes({("t", 0): 1}, **options)
        return code

    return ask


def fetch(member_id: str | None, epoch: int) -> Ask:
    def ask(given: Given) -> ErrorCode:
        event = events.OffsetsRequested(Call(), GROUP, None, False, member_id, epoch)
        code: ErrorCode = given.scenario.submit(event).code
        return code

    return ask


TXN = ProducerIdAndEpoch(7, 0)
OFFSETS: dict[str, tuple[Ask, ErrorCode]] = {
    "commit of nobody": (commit(), ErrorCode.UNKNOWN_MEMBER_ID),
    "commit of a stranger": (
        commit(member_id="x", generation=1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "commit in an old epoch": (
        commit(member_id="m", generation=1),
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "commit in a later epoch": (
        commit(member_id="m", generation=99),
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "commit in an old generation": (
        lambda given: commit(**old_generation(given))(given),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "transactional commit in an old epoch": (
        commit(member_id="m", generation=1, producer=TXN),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "transactional commit of a stranger": (
        commit(member_id="x", generation=1, producer=TXN),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "transactional commit of nobody": (commit(producer=TXN), ErrorCode.NONE),
    "commit in an old version": (
        lambda given: commit(
            member_id="m", generation=given.member.epoch, knows_member_epochs=False
        )(given),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "commit of a classic member in an old version": (
        lambda given: commit(
            member_id=given.classic.member_id,
            generation=given.classic.generation,
            knows_member_epochs=False,
        )(given),
        ErrorCode.NONE,
    ),
    "fetch of nobody": (fetch(None, -1), ErrorCode.NONE),
    "fetch of a stranger": (fetch("x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    "fetch without a name": (fetch("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
    "fetch in an old epoch": (fetch("m", 1), ErrorCode.STALE_MEMBER_EPOCH),
    "fetch in an old generation": (
        lambda given: fetch(given.classic.member_id, 0)(given),
        ErrorCode.ILLEGAL_GENERATION,
    ),
}


@pytest.mark.parametrize(("ask", "code"), OFFSETS.values(), ids=OFFSETS)
def test_offsets_of_a_consumer_group(ask: Ask, code: ErrorCode) -> None:
    assert ask(Given()) is code


def test_describing_what_is_not_there() -> None:
    given = Given()
    for group, reason in (("none", "not found"), ("classic", "is not a consumer group")):
        body = given.scenario.described(group)
        assert body["error_code"] is ErrorCode.GROUP_ID_NOT_FOUND
        assert body["error_message"] == f"Group {group} {reason}."
    call = given.scenario.submit(events.DescribeRequested(Call(), GROUP))
    assert call.answer["group_state"] == "Dead"
    assert call.answer["error_message"] == f"Group {GROUP} is not a classic group."


def test_a_group_with_members_cannot_be_deleted() -> None:
    given = Given()
    for group in (GROUP, "classic"):
        call = given.scenario.submit(events.DeleteRequested(Call(), group))
        assert call.code is ErrorCode.NON_EMPTY_GROUP
