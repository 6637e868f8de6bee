"""Validation of config changes for topics, brokers and groups.

Each resource is accepted or rejected as a whole.

| condition | error |
|---|---|
| the resource appears twice, or resources of its type have no configs here | INVALID_REQUEST |
| the topic does not exist | UNKNOWN_TOPIC_OR_PARTITION |
| the broker name is not a number | INVALID_REQUEST |
| the broker has never registered | BROKER_ID_NOT_REGISTERED |
| a name, operation or value is invalid | see `ottla.base.config.alter` |
| the resulting configs contradict each other | INVALID_CONFIG (topic), INVALID_REQUEST (broker) |

The controller also checks that it can use its own TLS settings (`broker.controller`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.base.cluster import ClusterView, TopicImage
from ottla.base.config.alter import alter
from ottla.base.config.broker import BROKER, BrokerConfig
from ottla.base.config.group import GROUP, group_config
from ottla.base.config.resource import ResourceType
from ottla.base.config.topic import TOPIC, topic_config
from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.controller.topic_names import validate_topic_name


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """Requested config changes of one resource."""

    resource_type: int
    resource_name: str
    alterations: Sequence[tuple[str, int, str | None]]
    """The changes, as (name, operation, value)."""
    replace_all: bool = False
    """Whether configs that are not listed are reset to their defaults (AlterConfigs)."""


@dataclass(frozen=True, slots=True)
class ConfigDecision:
    """The new configs of a resource, or the error that prevents the change."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str] | None = None
    """All configs that are set on the resource after the change."""
    topic: TopicImage | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class Configs:
    """Current configs that a decision is based on."""

    of_brokers: Mapping[str, Mapping[str, str]]
    """Dynamic configs by resource name: a broker id, or '' for the cluster-wide default."""
    of_this_broker: BrokerConfig
    node_id: int
    of_groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def decide_alter_configs(
    view: ClusterView, present: Configs, requested: Sequence[ConfigRequest]
) -> list[ConfigDecision]:
    """Validate the requested config changes and compute the resulting configs.

    Args:
        view: The cluster's current metadata.
        present: The configs that are set now.
        requested: The changes to make, one per resource.

    Returns:
        One decision per resource, with either the new configs or an error.
    """
    counts = Counter((each.resource_type, each.resource_name) for each in requested)
    decisions = []
    for request in {(each.resource_type, each.resource_name): each for each in requested}.values():
        kind, name = request.resource_type, request.resource_name
        try:
            if counts[kind, name] > 1:
                raise _invalid("Each resource must appear at most once.")
            topic, configs = _decide_resource(view, present, request)
        except KafkaError as error:
            decisions.append(ConfigDecision(kind, name, error=error))
        else:
            decisions.append(ConfigDecision(kind, name, configs, topic))
    return decisions


def _decide_resource(
    view: ClusterView, present: Configs, request: ConfigRequest
) -> tuple[TopicImage | None, Mapping[str, str]]:
    if request.resource_type == ResourceType.TOPIC:
        return _decide_topic(view, present, request)
    if request.resource_type == ResourceType.BROKER:
        return None, _decide_broker(view, present, request)
    if request.resource_type == ResourceType.GROUP:
        return None, _decide_group(present, request)
    raise _invalid(f"Configs of resource type {request.resource_type} cannot be altered.")


def _decide_topic(
    view: ClusterView, present: Configs, request: ConfigRequest
) -> tuple[TopicImage, Mapping[str, str]]:
    name = request.resource_name
    validate_topic_name(name)
    topic = view.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
    current = {} if request.replace_all else topic.configs
    configs = alter(TOPIC, current, request.alterations)
    topic_config(present.of_this_broker, configs)
    return topic, configs


def _decide_broker(
    view: ClusterView, present: Configs, request: ConfigRequest
) -> Mapping[str, str]:
    name = canonical_broker_name(request.resource_name)
    if name and int(name) not in view.brokers:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered."
        )
    current = {} if request.replace_all else present.of_brokers.get(name, {})
    configs = alter(BROKER, current, request.alterations, for_all_brokers=not name)
    own = str(present.node_id)
    if name in ("", own):
        after = {**present.of_brokers, name: configs}
        present.of_this_broker.with_dynamic(after.get("", {}), after.get(own, {}))
    return configs


def _decide_group(present: Configs, request: ConfigRequest) -> Mapping[str, str]:
    # A group can be configured before it exists.
    name = request.resource_name
    if not name:
        raise _invalid("Default group resources are not allowed.")
    current = {} if request.replace_all else present.of_groups.get(name, {})
    configs = alter(GROUP, current, request.alterations)
    group_config(present.of_this_broker, configs)
    return configs


def canonical_broker_name(name: str) -> str:
    """Return the canonical resource name of a broker.

    Args:
        name: The name in the request: a broker id, or '' for all brokers.

    Returns:
        The id without leading zeros, or '' for all brokers.

    Raises:
        KafkaError: INVALID_REQUEST if the name is not a number.
    """
    if not name:
        return ""
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise _invalid(f"The broker ID must be a number, but the request names broker '{name}'.")
    return str(int(name))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
