"""DescribeConfigs (key 32), versions 1–4.

Behaviours
- Resources: topics (2), this broker by its ID (4), the defaults of all brokers by an empty name
  (4), this broker's loggers (8), groups (32), whether they exist or not. A null or empty list of
  keys requests all of them.
- Synonyms (KIP-226) and, from version 3, types and documentation (KIP-569) on request.
- An unknown topic is UNKNOWN_TOPIC_OR_PARTITION. Any other broker is INVALID_REQUEST, because only
  that broker knows its configs.
- With an authorizer, the client needs DESCRIBE_CONFIGS: on the topic (without it the resource is
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not), on the group (GROUP_AUTHORIZATION_FAILED),
  or on the cluster for brokers, loggers and client metrics (CLUSTER_AUTHORIZATION_FAILED).

Deviations
- Client metrics (16) have no configs yet: INVALID_REQUEST."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.base.config.describe import ConfigEntry, describe_group
from ottla.base.config.resource import ResourceType
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.described_configs import broker_default_entries, broker_entries, topic_entries
from ottla.broker.loggers import logger_levels
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.alter_configs import canonical_broker_name
from ottla.core.controller.topic_names import validate_topic_name
from ottla.core.security.permissions import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)

if TYPE_CHECKING:
    from ottla.wire.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResultDict,
        DescribeConfigsResponseDict,
        DescribeConfigsResultDict,
    )

_DYNAMIC_BROKER_LOGGER_CONFIG = 6
_OF_CLUSTER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)


def handle(
    broker: TopicPorts, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponseDict:
    return {
        "throttle_time_ms": 0,
        "results": [_result(broker, context, each, request) for each in request.resources],
    }


def _result(
    broker: TopicPorts,
    context: RequestContext,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResultDict:
    error: KafkaError | None = None
    configs: list[DescribeConfigsResourceResultDict] = []
    try:
        _check_may_describe(context, resource)
        configs = _configs(broker, resource, request)
    except KafkaError as caught:
        error = caught
    return {
        **error_fields(error),
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }


def _check_may_describe(context: RequestContext, resource: DescribeConfigsResource) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        context.check(DESCRIBE_TOPIC_CONFIGS, name)
    elif kind == ResourceType.GROUP:
        context.check(DESCRIBE_GROUP_CONFIGS, name)
    elif kind in _OF_CLUSTER:
        context.check(DESCRIBE_CLUSTER_CONFIGS)


def _configs(
    broker: TopicPorts, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResultDict]:
    kind, name = resource.resource_type, resource.resource_name
    keys = set(resource.configuration_keys or ())

    def wanted(key: str) -> bool:
        return not keys or key in keys

    if kind == ResourceType.TOPIC:
        return _described(_topic(broker, name), wanted, request)
    if kind == ResourceType.BROKER and not name:
        return _described(broker_default_entries(broker), wanted, request)
    if kind == ResourceType.BROKER:
        _check_broker(broker, name)
        return _described(broker_entries(broker), wanted, request)
    if kind == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
        own = broker.image.group_configs.get(name, {})
        return _described(describe_group(broker.config, own), wanted, request)
    if kind == ResourceType.BROKER_LOGGER:
        _check_broker(broker, name)
        return [_logger(*each) for each in logger_levels().items() if wanted(each[0])]
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {kind} has no configs.")


def _topic(broker: TopicPorts, name: str) -> list[ConfigEntry]:
    validate_topic_name(name)
    topic = broker.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    return topic_entries(broker, topic.configs)


def _check_broker(broker: TopicPorts, name: str) -> None:
    if canonical_broker_name(name) != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {broker.node_id}, but the request is for broker '{name}'.",
        )


def _described(
    entries: Iterable[ConfigEntry], wanted: Callable[[str], bool], request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResultDict]:
    return [_entry(entry, request) for entry in entries if wanted(entry.name)]


def _entry(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResultDict:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source} for each in synonyms
        ],
        "config_type": entry.type,
        "documentation": entry.documentation if request.include_documentation else None,
    }


def _logger(name: str, level: str) -> DescribeConfigsResourceResultDict:
    return {
        "name": name,
        "value": level,
        "read_only": False,
        "config_source": _DYNAMIC_BROKER_LOGGER_CONFIG,
        "is_sensitive": False,
    }
