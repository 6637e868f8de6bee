from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.errors import ErrorCode
from ottla.broker.handlers import create_topics
from ottla.metadata.image import ImageDelta

TOPIC: dict[str, Any] = {"name": "orders", "num_partitions": 3, "replication_factor": 1}


def codes(answer: Any) -> list[int]:
    return [int(topic.error_code) for topic in answer.topics]


@pytest.mark.parametrize("version", versions(create_topics))
def test_a_topic_is_created_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        configs = [{"name": "retention.ms", "value": "5000"}]
        answer = await broker.call(
            create_topics, version, topics=[{**TOPIC, "configs": configs}], timeout_ms=30_000
        )
        assert codes(answer) == [0]
        (result,) = answer.topics
        topic = broker.image.topics["orders"]
        assert topic.configs == {"retention.ms": "5000"}
        assert len(topic.partitions) == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            retention = next(each for each in result.configs if each.name == "retention.ms")
            assert (retention.value, retention.config_source) == ("5000", 1)
            assert len(result.configs) > 20
        if version >= 7:
            assert result.topic_id.bytes == topic.topic_id

    with_broker(scenario)


@pytest.mark.parametrize("version", versions(create_topics))
def test_errors_stand_beside_successes(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        topics = [{**TOPIC, "name": "bad name"}, TOPIC, {**TOPIC, "name": "b"}, TOPIC]
        answer = await broker.call(create_topics, version, topics=topics)
        assert codes(answer) == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
        assert [topic.name for topic in answer.topics] == ["bad name", "orders", "b"]
        assert answer.topics[0].error_message
        assert answer.topics[2].error_message is None
        assert list(broker.image.topics) == ["b"]

    with_broker(scenario)


def test_validate_only_creates_nothing() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(create_topics, 7, topics=[TOPIC], validate_only=True)
        assert codes(answer) == [0]
        assert answer.topics[0].num_partitions == 3
        assert answer.topics[0].topic_id is None
        assert not broker.image.topics

    with_broker(scenario)


def test_more_replicas_than_brokers_are_refused() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(create_topics, 7, topics=[{**TOPIC, "replication_factor": 2}])
        assert codes(answer) == [ErrorCode.INVALID_REPLICATION_FACTOR]

    with_broker(scenario)


def test_an_assignment_is_taken_from_the_request() -> None:
    async def scenario(broker: FakeBroker) -> None:
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": n, "broker_ids": [1]} for n in range(2)],
        }
        answer = await broker.call(create_topics, 7, topics=[topic])
        assert codes(answer) == [0]
        assert [state.replicas for state in broker.image.topics["t"].partitions] == [(1,), (1,)]

    with_broker(scenario)


def test_the_answer_waits_until_the_broker_has_reacted() -> None:
    async def scenario(broker: FakeBroker) -> None:
        reacting, finish = asyncio.Event(), asyncio.Event()

        async def react(delta: ImageDelta) -> None:
            reacting.set()
            await finish.wait()

        broker.reaction = react
        creating = asyncio.ensure_future(broker.call(create_topics, 7, topics=[TOPIC]))
        await reacting.wait()
        assert not creating.done()
        finish.set()
        assert codes(await creating) == [0]

    with_broker(scenario)


def test_a_creation_that_takes_too_long_is_reported_and_continues() -> None:
    async def scenario(broker: FakeBroker) -> None:
        finish = asyncio.Event()

        async def react(delta: ImageDelta) -> None:
            await finish.wait()

        broker.reaction = react
        answer = await broker.call(create_topics, 7, topics=[TOPIC], timeout_ms=10)
        assert codes(answer) == [ErrorCode.REQUEST_TIMED_OUT]
        waiting = asyncio.ensure_future(broker.call(create_topics, 7, topics=[TOPIC]))
        finish.set()
        assert codes(await waiting) == [ErrorCode.TOPIC_ALREADY_EXISTS]

    with_broker(scenario)


def test_a_full_disk_is_a_storage_error_and_the_topic_can_be_created_later() -> None:
    async def scenario(broker: FakeBroker) -> None:
        broker.fs.capacity = 0
        answer = await broker.call(create_topics, 7, topics=[TOPIC])
        assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.image.topics
        broker.fs.capacity = None
        assert codes(await broker.call(create_topics, 7, topics=[TOPIC])) == [0]

    with_broker(scenario)


def test_of_concurrent_requests_for_one_name_exactly_one_creates_it() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answers = await asyncio.gather(
            *(broker.call(create_topics, 7, topics=[TOPIC]) for _ in range(5))
        )
        assert sorted(codes(answer)[0] for answer in answers) == [
            ErrorCode.NONE,
            *[ErrorCode.TOPIC_ALREADY_EXISTS] * 4,
        ]

    with_broker(scenario)
