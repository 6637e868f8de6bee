"""Configs of topics and brokers."""

from __future__ import annotations

from tests.integration.scenarios.given import Given, Scenarios, topic_config
from tests.raw_client import Api


def describe_configs(given: Given, version: int) -> None:
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configuration_keys": ["segment.bytes"]},
        {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "nobody", "configuration_keys": None},
    ]
    answer = given.client.call(
        Api.DESCRIBE_CONFIGS,
        version,
        resources=resources,
        include_synonyms=True,
        include_documentation=True,
    )
    topic, broker, unknown = answer.results
    assert (topic.error_code, topic.resource_type, topic.resource_name) == (0, 2, given.topic)
    (config,) = topic.configs
    assert (config.name, config.value, config.config_source) == ("segment.bytes", "1073741824", 5)
    assert [each.name for each in config.synonyms] == ["log.segment.bytes"]
    if version >= 3:
        assert config.config_type == 3
        assert config.documentation
    assert broker.error_code == 0
    assert {"num.partitions", "log.dirs", "node.id"} <= {each.name for each in broker.configs}
    assert (unknown.error_code, list(unknown.configs)) == (3, [])


def alter_configs(given: Given, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "60000"}]
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configs": configs},
        {"resource_type": 2, "resource_name": "nobody", "configs": configs},
    ]
    answer = given.client.call(Api.ALTER_CONFIGS, version, resources=resources)
    assert [each.error_code for each in answer.responses] == [0, 3]
    assert topic_config(given, "retention.ms") == "60000"


def incremental_alter_configs(given: Given, version: int) -> None:
    changes = [
        {"name": "retention.ms", "config_operation": 0, "value": "60000"},
        {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
    ]
    wrong = [{"name": "no.such.config", "config_operation": 0, "value": "1"}]
    resources = [
        {"resource_type": 2, "resource_name": given.topic, "configs": changes},
        {"resource_type": 2, "resource_name": f"{given.topic}-x", "configs": wrong},
    ]
    answer = given.client.call(Api.INCREMENTAL_ALTER_CONFIGS, version, resources=resources)
    assert [each.error_code for each in answer.responses] == [0, 3]
    assert topic_config(given, "retention.ms") == "60000"
    assert topic_config(given, "cleanup.policy") == "delete,compact"


def list_config_resources(given: Given, version: int) -> None:
    answer = given.client.call(Api.LIST_CONFIG_RESOURCES, version, resource_types=[2, 4])
    found = {(each.resource_type, each.resource_name) for each in answer.config_resources}
    assert answer.error_code == 0
    assert found >= ({(2, given.topic), (4, "1")} if version >= 1 else set())


SCENARIOS: Scenarios = {
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.ALTER_CONFIGS: alter_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
}
