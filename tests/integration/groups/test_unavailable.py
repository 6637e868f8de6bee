"""Responses while the coordinator loads, or when its topic cannot be created."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.integration.groups.requests import (
    commit,
    consumer_join,
    heartbeat,
    join,
    stable_member,
)
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.broker.coordinator_runtime import ShardState
from ottla.testing.broker import BrokerProcess, EmbeddedBroker

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
OVERRIDES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


def prepare(client: RawClient) -> Any:
    client.create_topic("t")
    client.call(Api.FIND_COORDINATOR, 0, key="g")
    return stable_member(client, "g")


def check_loading(client: RawClient, member: Any) -> None:
    found = client.call(Api.FIND_COORDINATOR, 0, key="g")
    assert found.error_code == 0, "it is known who will be the coordinator"
    assert join(client, "g").error_code == LOADING
    assert heartbeat(client, "g", member) is ErrorCode.NONE, "the member is to wait"
    assert commit(client, "g", {("t", 0): 1}, member) == [LOADING]
    answer = client.call(Api.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])
    assert answer.groups[0].error_code == LOADING
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    for api, body in (
        (Api.SYNC_GROUP, {"generation_id": 1, "member_id": member.member_id, **protocol}),
        (Api.LEAVE_GROUP, {"members": [{"member_id": member.member_id}]}),
        (Api.OFFSET_DELETE, {"topics": []}),
    ):
        assert client.call(api, group_id="g", **body).error_code == LOADING
    assert client.call(Api.LIST_GROUPS, 5).error_code == LOADING
    described = client.call(Api.DESCRIBE_GROUPS, 6, groups=["g"])
    assert described.groups[0].error_code == LOADING
    heartbeat_code = consumer_join(client, "g", "m", "t").error_code
    assert heartbeat_code == LOADING
    described = client.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
    assert described.groups[0].error_code == LOADING
    deleted = client.call(Api.DELETE_GROUPS, 2, groups_names=["g"])
    assert deleted.results[0].error_code == LOADING


def test_a_loading_coordinator_returns_its_error() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker(overrides=OVERRIDES) as embedded:
            with RawClient(embedded.port) as client:
                member = await asyncio.to_thread(prepare, client)
                for runner in embedded.broker.group_coordinator.runtime.runners:
                    runner.state = ShardState.LOADING
                await asyncio.to_thread(check_loading, client, member)
                for runner in embedded.broker.group_coordinator.runtime.runners:
                    runner.state = ShardState.ACTIVE
                assert await asyncio.to_thread(heartbeat, client, "g", member) is ErrorCode.NONE

    asyncio.run(scenario())


def test_a_topic_that_cannot_be_made_is_reported_once_in_the_log() -> None:
    overrides = {"offsets.topic.segment.bytes": "14"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        for _ in range(5):
            answer = client.call(Api.FIND_COORDINATOR, 3, key="g", key_type=0)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.log().count("Could not create __consumer_offsets") == 1
