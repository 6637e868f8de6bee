"""Topic and broker configs in the form that DescribeConfigs and CreateTopics report them.

Most topics have no overrides, so the description of each set of overrides is cached until the
metadata image changes (`ClusterImage.views`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from ottla.broker.topic_views import TopicPorts

if TYPE_CHECKING:
    from ottla.wire.messages.create_topics import CreatableTopicConfigsDict


def topic_entries(broker: TopicPorts, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    key = ("topic configs", frozenset(overrides.items()))
    entries: list[ConfigEntry] | None = broker.image.views.get(key)
    if entries is None:
        own, default_configs = broker.image.dynamic_configs(broker.node_id)
        entries = describe_topic(broker.config, own, default_configs, overrides)
        broker.image.views[key] = entries
    return entries


def created_topic_configs(
    broker: TopicPorts, overrides: Mapping[str, str]
) -> list[CreatableTopicConfigsDict]:
    """Return a new topic's configs as CreateTopics reports them."""
    key = ("created topic configs", frozenset(overrides.items()))
    configs: list[CreatableTopicConfigsDict] | None = broker.image.views.get(key)
    if configs is None:
        configs = [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.is_sensitive,
            }
            for entry in topic_entries(broker, overrides)
        ]
        broker.image.views[key] = configs
    return configs


def broker_entries(broker: TopicPorts) -> list[ConfigEntry]:
    own, default_configs = broker.image.dynamic_configs(broker.node_id)
    return describe_broker(broker.config, own, default_configs)


def broker_default_entries(broker: TopicPorts) -> list[ConfigEntry]:
    return describe_broker_default(broker.image.broker_configs.get("", {}))
