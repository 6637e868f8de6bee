"""The quota for created and deleted partitions (KIP-599)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.quotas.greedy import set_quotas
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode as E
from ottla.client.admin import QuotaEntity
from ottla.testing.broker_thread import BrokerThread


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        set_quotas(broker, QuotaEntity.of(client_id="limited"), controller_mutation_rate=1.0)
        yield broker


@pytest.fixture
def limited(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.port, client_id="limited") as client:
        yield client


def create(client: RawClient, version: int, *topics: tuple[str, int]) -> Any:
    return client.call(
        Api.CREATE_TOPICS,
        version,
        topics=[
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in topics
        ],
        timeout_ms=30_000,
    )


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer.topics]


def test_changes_over_the_quota_are_refused(broker: BrokerThread, limited: RawClient) -> None:
    answer = create(limited, 7, ("a", 10), ("b", 10), ("c", 1))
    # Eleven tokens suffice for the first two topics, and are then exceeded by nine.
    assert codes(answer) == [0, 0, E.THROTTLING_QUOTA_EXCEEDED]
    assert answer.topics[2].error_message == "The throttling quota has been exceeded."
    assert 8_000 <= answer.throttle_time_ms <= 9_000
    assert broker.topics() == ["a", "b"]


@pytest.mark.parametrize(
    ("api", "version", "body", "results"),
    [
        (
            Api.DELETE_TOPICS,
            6,
            {"topics": [{"name": "a", "topic_id": bytes(16)}], "timeout_ms": 30_000},
            "responses",
        ),
        (
            Api.CREATE_PARTITIONS,
            3,
            {"topics": [{"name": "a", "count": 40, "assignments": None}], "timeout_ms": 30_000},
            "results",
        ),
    ],
)
def test_deletions_and_new_partitions_count_too(
    broker: BrokerThread,
    limited: RawClient,
    api: Api,
    version: int,
    body: dict[str, Any],
    results: str,
) -> None:
    assert codes(create(limited, 7, ("a", 20))) == [0]
    with RawClient(broker.port, client_id="limited") as other:
        answer = other.call(api, version, **body)
    assert [each.error_code for each in getattr(answer, results)] == [E.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms > 8_000
    assert broker.topics() == ["a"]
    with RawClient(broker.port, client_id="unlimited") as other:
        answer = other.call(api, version, **body)
    assert [each.error_code for each in getattr(answer, results)] == [0]
    assert answer.throttle_time_ms == 0


def test_older_versions_are_only_throttled(broker: BrokerThread, limited: RawClient) -> None:
    answer = create(limited, 5, ("a", 15), ("b", 15))
    assert codes(answer) == [0, 0]
    assert 18_000 <= answer.throttle_time_ms <= 19_000
    assert broker.call(lambda: broker.broker.server.connections_throttled) == 1
    assert broker.topics() == ["a", "b"]


def test_topics_that_are_created_automatically_count_too(
    broker: BrokerThread, limited: RawClient
) -> None:
    def metadata(client: RawClient, name: str) -> list[int]:
        topics = [{"name": name}]
        return codes(client.call(Api.METADATA, topics=topics, allow_auto_topic_creation=True))

    assert metadata(limited, "a") == [0]
    assert codes(create(limited, 7, ("b", 40))) == [0]
    assert metadata(limited, "c") == [E.UNKNOWN_TOPIC_OR_PARTITION]
    with RawClient(broker.port, client_id="unlimited") as other:
        assert metadata(other, "d") == [0]
    assert broker.topics() == ["a", "b", "d"]
