"""Admin changes of partitions whose states change between the decision and the commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.unit.broker.topics.testbed import LISTENER, FakeBroker, with_broker

from ottla.base.cluster import BrokerRegistration, ElectionType, Endpoint, PartitionState
from ottla.base.errors import ErrorCode
from ottla.base.metadata import Check, Create, Op, Replace
from ottla.base.types import TopicPartition
from ottla.broker import controller as controller_module
from ottla.core.controller.create_topics import NewTopic
from ottla.core.controller.reassignment import ReassignmentRequest
from ottla.metadata import tree

TOPIC = "t"
FIRST = TopicPartition(TOPIC, 0)


async def with_topic(broker: FakeBroker) -> None:
    """Register a second broker, and create a topic of two partitions with replicas on both."""
    other = BrokerRegistration(2, 0, {LISTENER: Endpoint("localhost", 19093)})
    ops = [
        Create(tree.registration_path(2), tree.encode_registration(other)),
        Create(tree.live_path(2), tree.encode({}), ephemeral=True),
    ]
    await broker.follower.applied(await broker.store.txn([], ops))
    (created,) = await broker.controller.create_topics(
        [NewTopic(TOPIC, assignments=[(0, [1, 2]), (1, [1, 2])])]
    )
    assert created.error is None


def state(broker: FakeBroker, partition: int = 0) -> PartitionState:
    return broker.image.topics[TOPIC].partitions[partition]


def alter_before_commits(
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    altered: Callable[[], PartitionState],
    times: int = 1,
) -> list[int]:
    """Alter the state of the first partition before it is committed, as an ISR change does.

    Returns:
        The numbers of checks of the commits that were overtaken.
    """
    commit = broker.store.txn
    path = tree.partition_path(broker.image.topics[TOPIC].topic_id, 0)
    overtaken: list[int] = []

    async def overtaking(checks: Sequence[Check], ops: Sequence[Op]) -> int:
        if any(op.path == path for op in ops) and len(overtaken) < times:
            overtaken.append(len(checks))
            await commit([], [Replace(path, tree.encode_partition(altered()))])
        return await commit(checks, ops)

    monkeypatch.setattr(broker.store, "txn", overtaking)
    return overtaken


def run(scenario: Callable[[FakeBroker], Awaitable[None]]) -> None:
    async def with_it(broker: FakeBroker) -> None:
        await with_topic(broker)
        await scenario(broker)

    with_broker(with_it)


def test_a_reassignment_that_an_isr_change_overtakes_is_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: FakeBroker) -> None:
        overtaken = alter_before_commits(broker, monkeypatch, lambda: state(broker), times=2)
        requested = [ReassignmentRequest(TopicPartition(TOPIC, each), [2, 1]) for each in (0, 1)]
        decisions = await broker.controller.alter_reassignments(requested)
        assert [each.error for each in decisions] == [None, None]
        assert [each.partition for each in decisions] == [each.partition for each in requested]
        assert [state(broker, each).replicas for each in (0, 1)] == [(2, 1), (2, 1)]
        assert len(overtaken) == 2

    run(scenario)


def test_an_election_that_is_not_needed_any_more_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.controller.alter_reassignments(
            [ReassignmentRequest(TopicPartition(TOPIC, each), [2, 1]) for each in (0, 1)]
        )
        elected = state(broker)._replace(leader=2, leader_epoch=state(broker).leader_epoch + 1)
        overtaken = alter_before_commits(broker, monkeypatch, lambda: elected)
        decisions = await broker.controller.elect_leaders(ElectionType.PREFERRED, None)
        assert overtaken
        assert [each.partition for each in decisions] == [TopicPartition(TOPIC, 1)]
        assert [state(broker, each).leader for each in (0, 1)] == [2, 2]

    run(scenario)


def test_a_partition_that_never_stays_the_same_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_module, "STATE_TRIES", 3)

    async def scenario(broker: FakeBroker) -> None:
        overtaken = alter_before_commits(broker, monkeypatch, lambda: state(broker), times=99)
        (decision,) = await broker.controller.alter_reassignments(
            [ReassignmentRequest(FIRST, [2, 1])]
        )
        assert decision.error is not None
        assert decision.error.code == ErrorCode.NOT_CONTROLLER
        assert len(overtaken) == 4

    run(scenario)
