"""Config changes take effect at once, without a restart, and survive one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, eventually

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.batch import iter_headers

MESSAGE_TOO_LARGE = 10
INVALID_CONFIG = 40
INVALID_REQUEST = 42
TOPIC_DELETION_DISABLED = 73
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
ALL_BROKERS = ""


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    overrides = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
    with BrokerProcess(strict=True, overrides=overrides) as process:
        yield process


@pytest.fixture
def own(own_broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(own_broker.port) as client:
        yield client


def described(client: RawClient, kind: int, resource: str, name: str) -> Any:
    asked = {"resource_type": kind, "resource_name": resource, "configuration_keys": [name]}
    answer = client.call(Api.DESCRIBE_CONFIGS, resources=[asked], include_synonyms=True)
    return answer.results[0].configs[0]


def alter(
    client: RawClient, kind: int, resource: str, *changes: tuple[str, int, str | None]
) -> Any:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resources = [{"resource_type": kind, "resource_name": resource, "configs": configs}]
    return client.call(Api.INCREMENTAL_ALTER_CONFIGS, resources=resources).responses[0]


def is_accepted(client: RawClient, topic: str, size: int) -> bool:
    code = client.produce(topic, [(None, bytes(size), (), 1)]).error_code
    assert code in (0, MESSAGE_TOO_LARGE)
    return bool(code == 0)


# -------------------------------------------------------------------------------- topic configs


def test_max_message_bytes_counts_from_the_next_produce(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    assert is_accepted(client, topic, 5000)
    client.alter_topic(topic, max_message_bytes="1000")
    assert not is_accepted(client, topic, 5000)
    alter(client, TOPIC, topic, ("max.message.bytes", DELETE, None))
    assert is_accepted(client, topic, 5000)


def test_compression_type_counts_from_the_next_produce(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [(None, bytes(1000), (), 1)])
    client.alter_topic(topic, compression_type="gzip")
    client.produce(topic, [(None, bytes(1000), (), 1)])
    client.alter_topic(topic, compression_type="producer")
    client.produce(topic, [(None, bytes(1000), (), 1)])
    stored = iter_headers(bytes(client.fetch(topic).records))
    assert [header.compression for header in stored] == [0, 1, 0]


def test_timestamp_type_counts_from_the_next_produce(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    assert client.produce(topic, [(None, b"v", (), 7)]).log_append_time_ms == -1
    client.alter_topic(topic, message_timestamp_type="LogAppendTime")
    assert client.produce(topic, [(None, b"v", (), 7)]).log_append_time_ms > 7


def test_cleanup_policy_counts_from_the_next_produce(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    assert client.produce(topic, [(None, b"v", (), 1)]).error_code == 0
    client.alter_topic(topic, cleanup_policy="compact")
    assert client.produce(topic, [(None, b"v", (), 1)]).error_code == 87
    client.alter_topic(topic, cleanup_policy="delete")
    assert client.produce(topic, [(None, b"v", (), 1)]).error_code == 0


def test_segment_bytes_count_from_the_next_append(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    for _ in range(3):
        client.produce(topic, [(None, bytes(900_000), (), 1)])
    directory = broker.data_dir / f"{topic}-0"
    assert len(list(directory.glob("*.log"))) == 1
    client.alter_topic(topic, segment_bytes="1048576")
    for _ in range(2):
        client.produce(topic, [(None, bytes(900_000), (), 1)])
    assert len(list(directory.glob("*.log"))) == 3


def test_retention_counts_from_the_next_check(own: RawClient) -> None:
    own.create_topic("t", segment_bytes="1048576")
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    for _ in range(6):
        own.produce("t", [(None, bytes(900_000), (), hour_ago_ms)])
    assert own.offsets("t") == (0, 6)
    own.alter_topic("t", retention_bytes="1800000")
    eventually(lambda: own.offsets("t")[0], lambda start: start == 4)
    own.alter_topic("t", retention_ms="1800000")
    eventually(lambda: own.offsets("t"), lambda found: found == (6, 6))


def test_wrong_topic_configs_change_nothing(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    wrong: list[tuple[str, int, str | None]] = [
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, "-2"),
        ("no.such.config", SET, "1"),
        ("max.message.bytes", APPEND, "1"),
        ("cleanup.policy", SET, "shred"),
        ("compression.type", SET, "rar"),
        ("min.compaction.lag.ms", SET, "9999999999999999999"),
        ("segment.bytes", SET, "1"),
    ]
    for change in wrong:
        good = ("max.message.bytes", SET, "77777")
        answer = alter(client, TOPIC, topic, good, change)
        assert answer.error_code in (INVALID_CONFIG, INVALID_REQUEST), change
        assert answer.error_message
    assert described(client, TOPIC, topic, "max.message.bytes").value == "1048588"


def test_validate_only_changes_nothing(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    configs = [{"name": "max.message.bytes", "config_operation": SET, "value": "1000"}]
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
    answer = client.call(Api.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=True)
    assert answer.responses[0].error_code == 0
    assert is_accepted(client, topic, 5000)


# ------------------------------------------------------------------------------- broker configs


@pytest.mark.parametrize("resource", ["1", ALL_BROKERS])
def test_broker_configs_count_at_once_for_topics_without_their_own(
    own: RawClient, resource: str
) -> None:
    own.create_topic("t")
    own.create_topic("own", max_message_bytes="100000")
    assert is_accepted(own, "t", 5000)
    own.alter(BROKER, resource, message_max_bytes="1000")
    assert not is_accepted(own, "t", 5000)
    assert is_accepted(own, "own", 5000)
    found = described(own, TOPIC, "t", "max.message.bytes")
    assert (found.value, found.config_source) == ("1000", 2 if resource else 3)
    alter(own, BROKER, resource, ("message.max.bytes", DELETE, None))
    assert is_accepted(own, "t", 5000)


def test_a_brokers_own_config_wins_over_that_of_all(own: RawClient) -> None:
    own.alter(BROKER, ALL_BROKERS, message_max_bytes="2000")
    own.alter(BROKER, "1", message_max_bytes="3000")
    found = described(own, BROKER, "1", "message.max.bytes")
    assert (found.value, found.config_source) == ("3000", 2)
    assert [(each.value, each.source) for each in found.synonyms] == [
        ("3000", 2),
        ("2000", 3),
        ("1048588", 5),
    ]


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
def test_configs_survive_a_restart(own_broker: BrokerProcess, kill: bool) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t", retention_ms="60000")
        client.alter_topic("t", max_message_bytes="1000")
        client.alter(BROKER, "1", log_retention_ms="120000")
    own_broker.restart(kill=kill)
    with RawClient(own_broker.port) as client:
        assert described(client, TOPIC, "t", "retention.ms").value == "60000"
        assert not is_accepted(client, "t", 5000)
        assert described(client, BROKER, "1", "log.retention.ms").value == "120000"


def test_configs_that_need_a_restart_are_refused(client: RawClient) -> None:
    for name, value in (("log.dirs", "/elsewhere"), ("node.id", "7")):
        answer = alter(client, BROKER, "1", (name, SET, value))
        assert answer.error_code in (INVALID_REQUEST, INVALID_CONFIG), name
    assert described(client, BROKER, "1", "node.id").read_only


def test_another_broker_cannot_be_described(client: RawClient) -> None:
    asked = {"resource_type": BROKER, "resource_name": "2", "configuration_keys": None}
    answer = client.call(Api.DESCRIBE_CONFIGS, resources=[asked])
    assert answer.results[0].error_code == INVALID_REQUEST


def test_the_flush_settings_of_a_topic_are_taken(client: RawClient, topic: str) -> None:
    """The test shows only that they are accepted; their effect shows after a power cut."""
    client.create_topic(topic, flush_messages="1", flush_ms="10")
    for number in range(5):
        assert client.produce(topic, [(None, b"v", (), 1)]).base_offset == number
    assert described(client, TOPIC, topic, "flush.messages").value == "1"
