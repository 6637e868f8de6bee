from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.errors import ErrorCode
from ottla.broker.handlers import create_topics, delete_topics


def named(version: int, *names: str) -> dict[str, Any]:
    if version >= 6:
        return {"topics": [{"name": name} for name in names]}
    return {"topic_names": list(names)}


@pytest.mark.parametrize("version", versions(delete_topics))
def test_topics_are_deleted_by_name_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a", "b")
        topic_id = broker.image.topics["a"].topic_id
        answer = await broker.call(delete_topics, version, **named(version, "a", "no"))
        assert [(each.name, int(each.error_code)) for each in answer.responses] == [
            ("a", 0),
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert list(broker.image.topics) == ["b"]
        assert broker.deltas[-1].topics_deleted[0].topic_id == topic_id
        if version >= 6:
            assert answer.responses[0].topic_id.bytes == topic_id

    with_broker(scenario)


@pytest.mark.parametrize("version", versions(delete_topics))
def test_a_disabled_deletion_is_reported_in_the_versions_words(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(delete_topics, version, **named(version, "a"))
        expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert int(answer.responses[0].error_code) == expected
        assert "a" in broker.image.topics

    with_broker(scenario, delete_topic_enable="false")


def test_topics_are_deleted_by_id() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        topic_id = broker.image.topics["a"].topic_id
        unknown = bytes(15) + b"\x09"
        answer = await broker.call(
            delete_topics,
            6,
            topics=[{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}],
        )
        first, second = answer.responses
        assert (first.name, int(first.error_code)) == ("a", 0)
        assert (second.name, int(second.error_code)) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert second.topic_id.bytes == unknown
        assert not broker.image.topics

    with_broker(scenario)


def test_a_deleted_topic_can_be_created_anew_with_another_id() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        first = broker.image.topics["a"].topic_id
        await broker.call(delete_topics, 6, topics=[{"name": "a"}])
        await broker.create(create_topics, "a")
        assert broker.image.topics["a"].topic_id != first

    with_broker(scenario)
