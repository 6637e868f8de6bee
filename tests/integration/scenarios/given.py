"""The starting point of every scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tests.raw_client import Api, RawClient

from ottla.testing.broker import BrokerProcess

TIMESTAMP = 1_700_000_000_000


class Given(NamedTuple):
    """A topic with two partitions; partition 0 has three records of one idempotent producer."""

    broker: BrokerProcess
    client: RawClient
    topic: str
    topic_id: bytes
    producer_id: int


Scenarios: TypeAlias = Mapping[int, Callable[[Given, int], None]]
"""API key -> function that sends a request in a version and checks the response."""


def by_name_or_id(given: Given, by_id: bool, name: str = "topic") -> dict[str, Any]:
    return {"topic_id": given.topic_id} if by_id else {name: given.topic}


def same_topic(given: Given, answered: Any, by_id: bool, name: str = "topic") -> bool:
    if by_id:
        return bool(answered.topic_id == given.topic_id)
    return bool(getattr(answered, name) == given.topic)


def topic_config(given: Given, name: str) -> str:
    resource = {"resource_type": 2, "resource_name": given.topic, "configuration_keys": [name]}
    answer = given.client.call(Api.DESCRIBE_CONFIGS, resources=[resource])
    value: str = answer.results[0].configs[0].value
    return value
