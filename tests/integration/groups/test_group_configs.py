"""Configs of a single consumer group, changed while it is active."""

from __future__ import annotations

from typing import Any

from tests.integration.groups.requests import consumer_heartbeat, consumer_join
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess

GROUP = 32
BROKER = 4
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
SET, DELETE = 0, 1


def alter(
    client: RawClient, name: str, value: str | None, group: str = "g", kind: int = GROUP
) -> ErrorCode:
    change = {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
    resource = {"resource_type": kind, "resource_name": group, "configs": [change]}
    (answer,) = client.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    return ErrorCode(answer.error_code)


def described(client: RawClient) -> dict[str, tuple[str, int]]:
    """Return the group's configs as name -> (value, source)."""
    resource = {"resource_type": GROUP, "resource_name": "g", "configuration_keys": None}
    (answer,) = client.call(Api.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert answer.error_code == 0, answer
    return {each.name: (each.value, each.config_source) for each in answer.configs}


def listed(client: RawClient) -> list[str]:
    answer = client.call(Api.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])
    return [each.resource_name for each in answer.config_resources]


def test_a_group_has_configs_of_its_own(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        client.call(Api.FIND_COORDINATOR, 0, key="g")
        member = consumer_join(client, "g", "m", "t")
        assert member.heartbeat_interval_ms == 200
        assert described(client)[HEARTBEAT] == ("200", 4)
        assert listed(client) == []

        assert alter(client, HEARTBEAT, "700") is ErrorCode.NONE
        assert alter(client, SESSION, "30000") is ErrorCode.NONE
        assert consumer_heartbeat(client, "g", "m", 1).heartbeat_interval_ms == 700
        assert consumer_join(client, "other", "m", "t").heartbeat_interval_ms == 200
        assert described(client)[HEARTBEAT] == ("700", 8)
        assert listed(client) == ["g"]
    own_broker.restart(kill=True)
    with RawClient(own_broker.port) as client:
        client.call(Api.FIND_COORDINATOR, 0, key="g")
        assert described(client)[SESSION] == ("30000", 8)
        assert alter(client, HEARTBEAT, None) is ErrorCode.NONE
        assert consumer_heartbeat(client, "g", "m", 1).heartbeat_interval_ms == 200


def test_configs_of_groups_that_make_no_sense(client: RawClient) -> None:
    invalid = ErrorCode.INVALID_CONFIG
    wrong: list[tuple[Any, ErrorCode]] = [
        (("consumer.session", "1"), invalid),
        ((HEARTBEAT, "often"), invalid),
        ((HEARTBEAT, "99"), invalid),
        ((HEARTBEAT, "15001"), invalid),
        ((SESSION, "60001"), invalid),
        ((SESSION, "150"), invalid),
        ((HEARTBEAT, "300", ""), ErrorCode.INVALID_REQUEST),
    ]
    for arguments, code in wrong:
        assert alter(client, *arguments) is code, arguments
    assert described(client)[HEARTBEAT] == ("200", 4)


def test_how_often_assignments_are_made_can_be_changed_for_all(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t", 2)
        client.call(Api.FIND_COORDINATOR, 0, key="g")
        interval = "group.consumer.assignment.interval.ms"
        assert alter(client, interval, "0", "", BROKER) is ErrorCode.NONE
        consumer_join(client, "g", "m1", "t")
        assert consumer_join(client, "g", "m2", "t").member_epoch == 2
        assert alter(client, interval, "15000", "", BROKER) is ErrorCode.NONE
        assert consumer_join(client, "g", "m3", "t").member_epoch == 2, "it waits"
        consumer_heartbeat(client, "g", "m3", -1)
        assert alter(client, "consumer.assignment.interval.ms", "0") is ErrorCode.NONE
        assert consumer_join(client, "g", "m4", "t").member_epoch == 5
