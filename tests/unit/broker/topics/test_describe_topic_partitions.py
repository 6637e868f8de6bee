from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, with_broker

from ottla.base.errors import ErrorCode
from ottla.broker.handlers import create_topics, describe_topic_partitions


def described(answer: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (topic.name, int(topic.error_code), [each.partition_index for each in topic.partitions])
        for topic in answer.topics
    ]


def cursor(answer: Any) -> tuple[str, int] | None:
    found = answer.next_cursor
    return found and (found.topic_name, found.partition_index)


async def page(broker: FakeBroker, *names: str, **fields: Any) -> Any:
    topics = [{"name": name} for name in names]
    return await broker.call(describe_topic_partitions, 0, topics=topics, **fields)


async def three_topics(broker: FakeBroker) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await broker.create(create_topics, name, num_partitions=count)


def test_all_topics_are_reported_by_name() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        answer = await page(broker)
        assert described(answer) == [("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])]
        assert cursor(answer) is None
        first = answer.topics[0]
        assert first.topic_id.bytes == broker.image.topics["a"].topic_id
        assert first.topic_authorized_operations == 3576
        partition = first.partitions[0]
        assert (partition.leader_id, partition.isr_nodes, partition.replica_nodes) == (
            1,
            (1,),
            (1,),
        )
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())

    with_broker(scenario)


@pytest.mark.parametrize("limit", range(1, 8))
def test_the_pages_together_list_everything_once(limit: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        seen, position = [], None
        while True:
            answer = await page(broker, response_partition_limit=limit, cursor=position)
            partitions = [
                (name, index) for name, _, indexes in described(answer) for index in indexes
            ]
            assert len(partitions) <= limit
            seen += partitions
            following = cursor(answer)
            if following is None:
                break
            position = {"topic_name": following[0], "partition_index": following[1]}
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    with_broker(scenario)


def test_a_cursor_to_a_deleted_topic_continues_at_the_next_one() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        position = {"topic_name": "aa", "partition_index": 2}
        answer = await page(broker, cursor=position)
        assert described(answer) == [("b", 0, [0, 1, 2]), ("c", 0, [0])]

    with_broker(scenario)


def test_unknown_topics_are_reported_when_asked_for_by_name() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        answer = await page(broker, "no", "x y", "a", "a")
        assert described(answer) == [
            ("a", 0, [0, 1]),
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ]

    with_broker(scenario)


def test_the_brokers_limit_wins_and_is_at_least_one() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        assert described(await page(broker, response_partition_limit=1000)) == [
            ("a", 0, [0, 1]),
            ("b", 0, [0, 1]),
        ]
        assert described(await page(broker, response_partition_limit=-5)) == [("a", 0, [0])]

    with_broker(scenario, max_request_partition_size_limit="4")


def test_a_negative_cursor_is_refused() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await three_topics(broker)
        answer = await page(broker, "a", cursor={"topic_name": "a", "partition_index": -1})
        assert described(answer) == [("a", ErrorCode.INVALID_REQUEST, [])]

    with_broker(scenario)
