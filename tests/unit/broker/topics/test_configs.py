"""Tests of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.errors import ErrorCode
from ottla.broker.handlers import (
    alter_configs,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, DEFAULT, DYNAMIC_LOGGER = 1, 2, 3, 5, 6


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


async def describe(broker: FakeBroker, kind: int, name: str, *keys: str) -> dict[str, Any]:
    answer = await broker.call(
        describe_configs,
        4,
        resources=[resource(kind, name, list(keys) or None)],
        include_synonyms=True,
    )
    (result,) = answer.results
    assert int(result.error_code) == 0, result.error_message
    return {config.name: config for config in result.configs}


async def alter(broker: FakeBroker, kind: int, name: str, *ops: tuple[str, int, Any]) -> int:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in ops]
    answer = await broker.call(
        incremental_alter_configs,
        1,
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
    )
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_message is None) == (int(result.error_code) == 0)
    return int(result.error_code)


# ---------------------------------------------------------------------------------- describing


@pytest.mark.parametrize("version", versions(describe_configs))
def test_a_topic_is_described_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        configs = [{"name": "retention.ms", "value": "5000"}]
        await broker.create(create_topics, "a", configs=configs)
        asked: dict[str, Any] = {"include_synonyms": True}
        if version >= 3:
            asked["include_documentation"] = True
        answer = await broker.call(
            describe_configs,
            version,
            resources=[resource(TOPIC, "a", ["retention.ms", "cleanup.policy", "nonsense"])],
            **asked,
        )
        (result,) = answer.results
        assert (int(result.error_code), result.resource_name) == (0, "a")
        policy, retention = result.configs
        assert (policy.name, policy.value, policy.config_source) == (
            "cleanup.policy",
            "delete",
            DEFAULT,
        )
        assert (retention.value, retention.config_source) == ("5000", TOPIC_CONFIG)
        assert (retention.read_only, retention.is_sensitive) == (False, False)
        assert (retention.synonyms[0].name, retention.synonyms[0].value) == ("retention.ms", "5000")
        if version >= 3:
            assert retention.config_type == 5
            assert retention.documentation

    with_broker(scenario)


def test_neither_synonyms_nor_documentation_come_unasked() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(describe_configs, 4, resources=[resource(TOPIC, "a", [])])
        configs = answer.results[0].configs
        assert len(configs) > 20
        assert all(not each.synonyms and each.documentation is None for each in configs)

    with_broker(scenario)


def test_this_broker_is_described_by_its_id_and_others_are_refused() -> None:
    async def scenario(broker: FakeBroker) -> None:
        own = await describe(broker, BROKER, "7", "num.partitions", "node.id")
        assert (own["num.partitions"].value, own["node.id"].value) == ("3", "7")
        assert own["node.id"].read_only
        resources = [resource(BROKER, "8"), resource(BROKER, "x"), resource(BROKER_LOGGER, "8")]
        answer = await broker.call(describe_configs, 4, resources=resources)
        assert [int(each.error_code) for each in answer.results] == [ErrorCode.INVALID_REQUEST] * 3

    with_broker(scenario, node_id=7, num_partitions="3")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "x y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_has_an_error(kind: int, name: str, code: ErrorCode) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(describe_configs, 4, resources=[resource(kind, name)])
        (result,) = answer.results
        assert (int(result.error_code), result.configs) == (code, ())
        assert result.error_message

    with_broker(scenario)


# ------------------------------------------------------------------------------------ altering


@pytest.mark.parametrize("version", versions(alter_configs))
def test_alter_configs_replaces_everything_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a", configs=[{"name": "retention.ms", "value": "5"}])
        configs = [{"name": "segment.ms", "value": "77"}]
        answer = await broker.call(
            alter_configs,
            version,
            resources=[
                {"resource_type": TOPIC, "resource_name": "a", "configs": configs},
                {"resource_type": TOPIC, "resource_name": "no", "configs": configs},
                {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": []},
            ],
        )
        assert [int(each.error_code) for each in answer.responses] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]
        assert broker.image.topics["a"].configs == {"segment.ms": "77"}
        (changed,) = broker.deltas[-1].topic_configs_changed
        assert changed is broker.image.topics["a"]

    with_broker(scenario)


@pytest.mark.parametrize("version", versions(incremental_alter_configs))
def test_single_configs_are_changed_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        before = [{"name": "retention.ms", "value": "5"}, {"name": "segment.ms", "value": "6"}]
        await broker.create(create_topics, "a", configs=before)
        changes = [
            {"name": "retention.ms", "config_operation": DELETE, "value": None},
            {"name": "cleanup.policy", "config_operation": APPEND, "value": "compact"},
            {"name": "max.message.bytes", "config_operation": SET, "value": "9000"},
        ]
        answer = await broker.call(
            incremental_alter_configs,
            version,
            resources=[{"resource_type": TOPIC, "resource_name": "a", "configs": changes}],
        )
        assert int(answer.responses[0].error_code) == 0
        assert broker.image.topics["a"].configs == {
            "segment.ms": "6",
            "cleanup.policy": "delete,compact",
            "max.message.bytes": "9000",
        }

    with_broker(scenario)


@pytest.mark.parametrize("handler", [alter_configs, incremental_alter_configs])
def test_validate_only_changes_nothing(handler: Any) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        for value, code in (("5", 0), ("soon", ErrorCode.INVALID_CONFIG)):
            change = {"name": "retention.ms", "value": value}
            answer = await broker.call(
                handler,
                1,
                resources=[{"resource_type": TOPIC, "resource_name": "a", "configs": [change]}],
                validate_only=True,
            )
            assert int(answer.responses[0].error_code) == code
        assert broker.image.topics["a"].configs == {}

    with_broker(scenario)


def test_a_resource_given_twice_is_refused() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        same = {"resource_type": TOPIC, "resource_name": "a", "configs": []}
        answer = await broker.call(incremental_alter_configs, 1, resources=[same, same])
        assert [int(each.error_code) for each in answer.responses] == [ErrorCode.INVALID_REQUEST]

    with_broker(scenario)


def test_a_refused_change_leaves_the_other_resources_of_the_request_alone() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a", "b")
        good = [{"name": "segment.ms", "config_operation": SET, "value": "77"}]
        bad = [*good, {"name": "nonsense", "config_operation": SET, "value": "1"}]
        answer = await broker.call(
            incremental_alter_configs,
            1,
            resources=[
                {"resource_type": TOPIC, "resource_name": "a", "configs": bad},
                {"resource_type": TOPIC, "resource_name": "b", "configs": good},
            ],
        )
        codes = [int(each.error_code) for each in answer.responses]
        assert codes == [ErrorCode.INVALID_CONFIG, 0]
        assert broker.image.topics["a"].configs == {}
        assert broker.image.topics["b"].configs == {"segment.ms": "77"}

    with_broker(scenario)


def test_broker_configs_take_effect_by_layer() -> None:
    name = "log.retention.ms"

    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        assert await alter(broker, BROKER, "", (name, SET, "1000")) == 0
        assert broker.config.log_retention_ms == 1000
        config = (await describe(broker, BROKER, "1", name))[name]
        assert (config.value, config.config_source) == ("1000", DYNAMIC_DEFAULT)
        topic = (await describe(broker, TOPIC, "a", "retention.ms"))["retention.ms"]
        assert (topic.value, topic.config_source) == ("1000", DYNAMIC_DEFAULT)

        assert await alter(broker, BROKER, "1", (name, SET, "2000")) == 0
        assert broker.config.log_retention_ms == 2000
        config = (await describe(broker, BROKER, "1", name))[name]
        assert (config.value, config.config_source) == ("2000", DYNAMIC_BROKER)
        defaults = await describe(broker, BROKER, "")
        assert {each.name: each.value for each in defaults.values()} == {name: "1000"}

        assert await alter(broker, BROKER, "1", (name, DELETE, None)) == 0
        assert broker.config.log_retention_ms == 1000

    with_broker(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "op", "code"),
    [
        (BROKER, "1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "5"), ErrorCode.INVALID_REQUEST),
        (BROKER, "9", ("log.retention.ms", SET, "5"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", ("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", ("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "x y", ("retention.ms", SET, "5"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("x", SET, "5"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    kind: int, name: str, op: tuple[str, int, Any], code: ErrorCode
) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        revision = broker.image.revision
        assert await alter(broker, kind, name, op) == code
        assert broker.image.revision == revision

    with_broker(scenario)


def test_changes_survive_a_restart() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        await alter(broker, TOPIC, "a", ("retention.ms", SET, "5"))
        await alter(broker, BROKER, "1", ("log.retention.ms", SET, "6"))
        again = FakeBroker({}, broker.fs, 1)
        await again.start()
        assert again.image.topics["a"].configs == {"retention.ms": "5"}
        assert again.image.dynamic_configs(1) == ({"log.retention.ms": "6"}, {})
        await again.stop()

    with_broker(scenario)


# ------------------------------------------------------------------------------------- loggers


@pytest.fixture
def level_restored() -> Any:
    logger = logging.getLogger("ottla.broker")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_a_loggers_level_is_described_set_and_deleted(level_restored: logging.Logger) -> None:
    async def scenario(broker: FakeBroker) -> None:
        assert await alter(broker, BROKER_LOGGER, "1", ("ottla.broker", SET, "DEBUG")) == 0
        assert level_restored.level == logging.DEBUG
        loggers = await describe(broker, BROKER_LOGGER, "1")
        entry = loggers["ottla.broker"]
        assert (entry.value, entry.config_source, entry.read_only) == (
            "DEBUG",
            DYNAMIC_LOGGER,
            False,
        )
        assert "root" in loggers
        others = {"root", "kafka.authorizer.logger"}
        assert all(name in others or name.startswith("ottla") for name in loggers)
        assert await alter(broker, BROKER_LOGGER, "1", ("ottla.broker", DELETE, None)) == 0
        assert level_restored.level == logging.NOTSET

    with_broker(scenario)


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (("ottla.broker", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("ottla.broker", SET, None), ErrorCode.INVALID_CONFIG),
        (("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("ottla.broker", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_change_of_a_logger_changes_none_of_them(
    level_restored: logging.Logger, op: tuple[str, int, Any], code: ErrorCode
) -> None:
    async def scenario(broker: FakeBroker) -> None:
        level_restored.setLevel(logging.ERROR)
        changes = [("ottla.broker", SET, "DEBUG"), op]
        assert await alter(broker, BROKER_LOGGER, "1", *changes) == code
        assert level_restored.level == logging.ERROR

    with_broker(scenario)


# ------------------------------------------------------------------------------------- listing


def test_version_0_lists_client_metrics_of_which_there_are_none() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(list_config_resources, 0)
        assert (int(answer.error_code), answer.config_resources) == (0, ())

    with_broker(scenario)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], [("a", TOPIC), ("1", BROKER), ("1", BROKER_LOGGER)]),
        ([BROKER], [("1", BROKER)]),
        ([GROUP, TOPIC], [("a", TOPIC)]),
    ],
)
def test_what_has_configs_is_listed_by_kind(kinds: list[int], expected: Any) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(list_config_resources, 1, resource_types=kinds)
        listed = [(each.resource_name, each.resource_type) for each in answer.config_resources]
        assert (int(answer.error_code), listed) == (0, expected)

    with_broker(scenario)


def test_an_unknown_kind_cannot_be_listed() -> None:
    async def scenario(broker: FakeBroker) -> None:
        for kind in (0, 99):
            answer = await broker.call(list_config_resources, 1, resource_types=[TOPIC, kind])
            assert int(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION

    with_broker(scenario)
