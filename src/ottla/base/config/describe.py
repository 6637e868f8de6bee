"""The entries of a DescribeConfigs response: the value of each property and its sources.

The synonyms of an entry are all sources of a value, by descending priority: the override of the
topic, then, for each layer of the broker's configuration, every name under which the property can
be set. Kafka omits the synonyms before the property's own name, so a topic whose retention is set
only by `log.retention.hours` shows no synonyms and the source DEFAULT_CONFIG. Ottla does the same.

A property that is in no table may hold a secret, so its value is not returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_table import BROKER, broker_key, broker_synonyms
from ottla.base.config.definition import ConfigKey, ConfigType, UpdateMode, format_value
from ottla.base.config.group import GROUP
from ottla.base.config.resource import ConfigSource, ConfigSynonym
from ottla.base.config.topic import topic_defaults
from ottla.base.config.topic_table import TOPIC


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A property in a DescribeConfigs response."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    synonyms: list[ConfigSynonym]
    type: ConfigType
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    broker_config: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    overrides: Mapping[str, str],
) -> list[ConfigEntry]:
    """Return all properties of a topic, sorted by name. The overrides must be valid."""
    broker = broker_config.with_dynamic(dynamic_default, dynamic_broker)
    defaults = topic_defaults(broker)
    entries = []
    for key in TOPIC:
        override = overrides.get(key.name)
        if key.internal and override is None:
            continue
        value = defaults[key.name] if override is None else key.parse(override)
        text = format_value(value)
        synonyms = _broker_layers(broker, key.synonyms[0].name) if key.synonyms else []
        if override is not None:
            synonyms.insert(0, ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        entries.append(_entry(key, text, synonyms, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all properties of a group, sorted by name. The overrides must be valid."""
    entries = []
    for key in GROUP:
        default = key.synonyms[0].name
        text = overrides.get(key.name, broker.text(default))
        synonyms = _broker_layers(broker, default)
        if key.name in overrides:
            synonyms.insert(0, ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(_entry(key, text, synonyms, read_only=False))
    return sorted(entries, key=lambda entry: entry.name)


def describe_broker(
    broker_config: BrokerConfig,
    dynamic_broker: Mapping[str, str],
    dynamic_default: Mapping[str, str],
) -> list[ConfigEntry]:
    """Return all properties of a broker, sorted by name."""
    broker = broker_config.with_dynamic(dynamic_default, dynamic_broker)
    names = {*broker.static, *dynamic_default, *dynamic_broker}
    entries = [
        _entry(key, broker.text(key.name), _broker_layers(broker, key.name))
        for key in BROKER
        if not key.internal or key.name in names
    ]
    entries.extend(_other_entry(name, broker) for name in names if name not in BROKER)
    return sorted(entries, key=lambda entry: entry.name)


def describe_broker_default(dynamic_default: Mapping[str, str]) -> list[ConfigEntry]:
    """Return the properties that were changed at run time for all brokers, sorted by name."""
    entries = []
    for name in sorted(dynamic_default):
        key = broker_key(name) or _unknown_key(name)
        text = None if key.sensitive else dynamic_default[name]
        synonym = ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        entries.append(_entry(key, text, [synonym]))
    return entries


def _entry(
    key: ConfigKey,
    text: str | None,
    synonyms: list[ConfigSynonym],
    *,
    read_only: bool | None = None,
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else text,
        read_only=key.mode is UpdateMode.READ_ONLY if read_only is None else read_only,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=key.sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=key.doc,
    )


def _broker_layers(broker: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """Return all sources of a property in the broker's configuration, by descending priority."""
    names = broker_synonyms(name)
    found = []
    for source, layer in (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, broker.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER_CONFIG, _with_both_ids(broker.static)),
    ):
        for each in names:
            if each in layer:
                key = broker_key(each)
                text = layer[each].strip() if key is not None and not key.sensitive else None
                found.append(ConfigSynonym(each, text, source))
    for each in names:
        key = BROKER.get(each)
        if key is not None and key.default is not None and not key.internal:
            default = format_value(key.default)
            found.append(ConfigSynonym(each, default, ConfigSource.DEFAULT_CONFIG))
    first = next((i for i, each in enumerate(found) if each.name == name), len(found))
    return found[first:]


def _with_both_ids(static: Mapping[str, str]) -> Mapping[str, str]:
    """Return the static layer with both `node.id` and `broker.id`, which are one property."""
    node_id = static.get("node.id", static.get("broker.id"))
    return static if node_id is None else {**static, "node.id": node_id, "broker.id": node_id}


def _other_entry(name: str, broker: BrokerConfig) -> ConfigEntry:
    """Return the entry of an override for a listener, or of an unknown property."""
    layers = _broker_layers(broker, name)
    return _entry(broker_key(name) or _unknown_key(name), layers[0].value, layers)


def _unknown_key(name: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.UNKNOWN, None, "")
