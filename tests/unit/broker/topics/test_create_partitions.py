from __future__ import annotations

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.errors import ErrorCode
from ottla.broker.handlers import create_partitions, create_topics


@pytest.mark.parametrize("version", versions(create_partitions))
def test_partitions_are_added_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a", "b", "c")
        answer = await broker.call(
            create_partitions,
            version,
            topics=[
                {"name": "a", "count": 3, "assignments": None},
                {"name": "b", "count": 2, "assignments": [{"broker_ids": [1]}]},
                {"name": "c", "count": 1, "assignments": None},
                {"name": "no", "count": 2, "assignments": None},
            ],
            timeout_ms=1000,
        )
        assert [(each.name, int(each.error_code)) for each in answer.results] == [
            ("a", 0),
            ("b", 0),
            ("c", ErrorCode.INVALID_PARTITIONS),
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        counts = {name: len(topic.partitions) for name, topic in broker.image.topics.items()}
        assert counts == {"a": 3, "b": 2, "c": 1}
        changed = [(c.topic.name, c.partition) for d in broker.deltas for c in d.partitions_changed]
        assert sorted(changed) == [("a", 1), ("a", 2), ("b", 1)]

    with_broker(scenario)


def test_validate_only_adds_nothing() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(
            create_partitions,
            3,
            topics=[{"name": "a", "count": 3, "assignments": None}],
            validate_only=True,
        )
        assert int(answer.results[0].error_code) == 0
        assert len(broker.image.topics["a"].partitions) == 1

    with_broker(scenario)
