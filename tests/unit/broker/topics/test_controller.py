"""Tests of brokers that join the cluster and regain leadership, and of controller fencing."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, with_broker
from tests.unit.metadata.memory_files import MemoryFileSystem

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.metadata import Delete, Replace
from ottla.base.types import ZERO_UUID, parse_uuid
from ottla.broker.handlers import create_topics, delete_topics, describe_cluster, metadata
from ottla.broker.registration import FoundTopic, ensure_cluster_id
from ottla.core.controller.create_topics import NewTopic
from ottla.metadata import tree


async def restarted(broker: FakeBroker, *, clean_shutdown: bool) -> FakeBroker:
    await broker.stop()
    again = FakeBroker({}, broker.fs, 1)
    await again.start(clean_shutdown=clean_shutdown)
    return again


async def started(fs: MemoryFileSystem | None = None) -> FakeBroker:
    broker = FakeBroker({}, fs or MemoryFileSystem(), 1)
    await broker.start()
    return broker


def test_the_cluster_id_is_made_once_and_kept() -> None:
    async def scenario() -> None:
        broker = await started()
        first = broker.image.cluster_id
        assert first is not None
        assert len(parse_uuid(first)) == 16
        again = await restarted(broker, clean_shutdown=True)
        assert again.image.cluster_id == first
        assert await ensure_cluster_id(again, "another") == first
        await again.stop()

    asyncio.run(scenario())


def test_only_a_standalone_broker_creates_a_cluster_under_a_known_id() -> None:
    async def scenario() -> None:
        broker = FakeBroker({}, MemoryFileSystem(), 1)
        await broker.open_store()
        with pytest.raises(UserError, match="belong to cluster known, but ZooKeeper at zk:2181"):
            await ensure_cluster_id(broker, "known", zookeeper="zk:2181")
        assert await ensure_cluster_id(broker, "known") == "known"
        assert await ensure_cluster_id(broker, "known", zookeeper="zk:2181") == "known"
        await broker.store.close()

    asyncio.run(scenario())


def test_each_start_is_a_new_incarnation_and_the_broker_is_controller() -> None:
    async def scenario() -> None:
        broker = await started()
        assert broker.image.brokers[1].incarnation == 0
        assert (broker.image.controller_id, broker.image.controller_epoch) == (1, 0)
        again = await restarted(broker, clean_shutdown=True)
        assert again.image.brokers[1].incarnation == 1
        assert not again.image.brokers[1].fenced
        assert (again.image.controller_id, again.image.controller_epoch) == (1, 1)
        await again.stop()

    asyncio.run(scenario())


def test_the_leader_epoch_grows_after_a_crash_and_not_after_a_clean_shutdown() -> None:
    async def scenario() -> None:
        broker = await started()
        await broker.create(create_topics, "a", num_partitions=2)
        epochs = []
        for clean in (True, True, False, True, False):
            broker = await restarted(broker, clean_shutdown=clean)
            epochs.append([state.leader_epoch for state in broker.image.topics["a"].partitions])
        assert epochs == [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2]]
        await broker.stop()

    asyncio.run(scenario())


def test_topics_found_on_disk_are_adopted_once() -> None:
    async def scenario() -> None:
        known_id = bytes(15) + b"\x05"
        found = (FoundTopic("a", known_id, 3), FoundTopic("b", ZERO_UUID, 1))
        broker = FakeBroker({}, MemoryFileSystem(), 1)
        await broker.start(found_topics=found)
        assert broker.image.topics["a"].topic_id == known_id
        assert broker.image.topics["b"].topic_id != ZERO_UUID
        assert [state.leader for state in broker.image.topics["a"].partitions] == [1, 1, 1]
        await broker.call(delete_topics, 6, topics=[{"name": "a"}, {"name": "b"}])
        await broker.stop()

        again = FakeBroker({}, broker.fs, 1)
        await again.start(found_topics=found)
        assert not again.image.topics
        await again.stop()

    asyncio.run(scenario())


def test_a_controller_of_the_past_changes_nothing() -> None:
    async def scenario(broker: FakeBroker) -> None:
        epoch = broker.image.controller_epoch
        await broker.store.txn([], [Replace(tree.CONTROLLER_EPOCH, b"{}")])
        broker.image.controller_epoch = epoch  # the change has not reached this broker yet
        (decision,) = await broker.controller.create_topics([NewTopic("a")])
        assert decision.error is not None
        assert decision.error.code == ErrorCode.NOT_CONTROLLER
        assert not broker.image.topics

    with_broker(scenario)


def test_a_controller_whose_session_is_over_changes_nothing() -> None:
    async def scenario(broker: FakeBroker) -> None:
        controller_id = broker.image.controller_id
        await broker.store.txn([], [Delete(tree.CONTROLLER_LEADER)])
        broker.image.controller_id = controller_id  # the change has not reached this broker yet
        (decision,) = await broker.controller.create_topics([NewTopic("a")])
        assert decision.error is not None
        assert decision.error.code == ErrorCode.NOT_CONTROLLER
        assert not broker.image.topics

    with_broker(scenario)


def test_producer_ids_are_given_out_once_across_restarts() -> None:
    async def scenario() -> None:
        broker = await started()
        first, second = await asyncio.gather(
            broker.controller.allocate_producer_ids(), broker.controller.allocate_producer_ids()
        )
        again = await restarted(broker, clean_shutdown=False)
        third = await again.controller.allocate_producer_ids()
        assert [first, second, third] == [range(1000), range(1000, 2000), range(2000, 3000)]
        await again.stop()

    asyncio.run(scenario())


def test_a_change_is_complete_even_if_its_client_went_away() -> None:
    async def scenario(broker: FakeBroker) -> None:
        creating = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        creating.cancel()
        await broker.controller.close()
        assert list(broker.image.topics) == ["a"]

    with_broker(scenario)


def test_a_stopping_broker_answers_waiting_requests() -> None:
    async def scenario(broker: FakeBroker) -> None:
        reacting = asyncio.Event()

        async def react(delta: object) -> None:
            reacting.set()
            await asyncio.Event().wait()

        broker.reaction = react
        creating = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        await reacting.wait()
        await broker.follower.close()
        with pytest.raises(KafkaError) as raised:
            await creating
        assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE

    with_broker(scenario)


def test_requests_that_come_before_the_broker_has_joined_wait_for_it() -> None:
    async def scenario() -> None:
        broker = FakeBroker({}, MemoryFileSystem(), 1)
        await broker.load()
        creating = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        asking = asyncio.ensure_future(broker.call(metadata, 12, topics=[{"name": "b"}]))
        describing = asyncio.ensure_future(broker.call(describe_cluster, 2))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not broker.image.topics
        await broker.join()
        (decision,) = await creating
        assert decision.error is None
        answer = await asking
        assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [("b", 0)]
        assert len(answer.brokers) == len((await describing).brokers) == 1
        await broker.stop()

    asyncio.run(scenario())


def test_a_broker_that_stops_before_it_has_joined_drops_what_waits() -> None:
    async def scenario() -> None:
        broker = FakeBroker({}, MemoryFileSystem(), 1)
        await broker.load()
        creating = asyncio.ensure_future(broker.controller.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        await broker.stop()
        with pytest.raises(KafkaError) as raised:
            await creating
        assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE

    asyncio.run(scenario())
