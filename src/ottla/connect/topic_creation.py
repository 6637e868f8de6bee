"""Settings of the topics that the worker creates for sources: `topic.creation.*` (KIP-158).

    topic.creation.enable                        worker property; false: create no topics
    topic.creation.groups                        names of groups, in order of precedence
    topic.creation.GROUP.include, .exclude       patterns that match whole topic names
    topic.creation.GROUP.replication.factor, .partitions     -1: the broker's default
    topic.creation.GROUP.ANYTHING                a topic config

A topic belongs to the first group that includes and does not exclude it, otherwise to `default`.
That group always exists and must set both numbers, which the other groups inherit; its own patterns
are ignored. An existing topic is not changed.

Deviations from Kafka: `PUT …/config/validate` reports all errors in these properties, whereas Kafka
validates only `topic.creation.groups` and reports the rest when the connector starts. A connector
without any of these properties gets topics with the broker's defaults; Kafka does so only with
`auto.create.topics.enable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.base.config.definition import (
    ConfigError,
    ConfigKey,
    ConfigType,
    Importance,
    split_list,
)
from ottla.base.config.validator import Value
from ottla.connect.definition import Definition, key, with_prefix
from ottla.connect.topics import BROKERS_DEFAULT

PREFIX = "topic.creation."
ENABLE = f"{PREFIX}enable"
GROUPS = f"{PREFIX}groups"
DEFAULT = "default"
_PATTERNS = ("include", "exclude")
_NUMBERS = ("replication.factor", "partitions")
_KAFKA_MESSAGES = {
    "replication.factor": "Replication factor must be positive and not larger than the number of "
    "brokers in the Kafka cluster, or -1 to use the broker's default",
    "partitions": "Number of partitions must be positive, or -1 to use the broker's default",
}
"""Kafka's messages for invalid numbers."""
_LOW = Importance.LOW

GROUPS_KEY = key(
    GROUPS,
    ConfigType.LIST,
    [],
    "Groups of topics that are created with the same settings.",
    None,
    _LOW,
)


@dataclass(frozen=True)
class TopicGroup:
    """Settings of the topics in a group."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    include: re.Pattern[str] | None = None
    """Pattern of the topics in the group; None matches all."""
    exclude: re.Pattern[str] | None = None

    def takes(self, topic: str) -> bool:
        if self.exclude is not None and self.exclude.fullmatch(topic):
            return False
        return self.include is None or self.include.fullmatch(topic) is not None


@dataclass(frozen=True)
class TopicCreation:
    groups: tuple[TopicGroup, ...] = (TopicGroup(DEFAULT),)
    """Groups in order of precedence; the last one matches all topics. Empty: create no topics."""

    def shares(self, topics: Iterable[str]) -> list[tuple[TopicGroup, list[str]]]:
        """Return the topics of each group; empty if the worker creates no topics."""
        shared: dict[str, list[str]] = {}
        for topic in topics if self.groups else ():
            found = next(each for each in self.groups if each.takes(topic))
            shared.setdefault(found.name, []).append(topic)
        return [(each, shared[each.name]) for each in self.groups if each.name in shared]


def is_enabled(worker: Mapping[str, str]) -> bool:
    """Return whether the worker creates topics; its properties must be valid."""
    return worker.get(ENABLE, "true").strip().lower() != "false"


def is_used(properties: Mapping[str, str]) -> bool:
    return any(name.startswith(PREFIX) for name in properties)


def definitions(properties: Mapping[str, str]) -> list[tuple[str, str, Definition]]:
    """Return (group, prefix, properties) for each group of a connector, `default` first."""
    numbers = _default_numbers(properties)
    found = [(DEFAULT, f"{PREFIX}{DEFAULT}.", _definition((), numbers, required=_NUMBERS))]
    return found + [
        (name, f"{PREFIX}{name}.", _definition(_PATTERNS, numbers)) for name in _names(properties)
    ]


def problems(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the errors that the definitions do not detect, by property, in Kafka's words."""
    found = {}
    listed = [each.strip() for each in properties.get(GROUPS, "").split(",")]
    if len(listed) > len(set(listed)):
        found[GROUPS] = _invalid(GROUPS, f"[{', '.join(listed)}]", "Duplicate alias provided.")
    for group, prefix, definition in definitions(properties):
        for part in _NUMBERS:
            number = _number(definition.table[part], properties.get(prefix + part))
            if number is not None and number < 1 and number != BROKERS_DEFAULT:
                found[prefix + part] = _invalid(prefix + part, number, _KAFKA_MESSAGES[part])
        for part in _PATTERNS if group != DEFAULT else ():
            text = properties.get(prefix + part, "")
            try:
                _pattern(text)
            except re.error as error:
                message = f"Syntax error in regular expression: {error}"
                found[prefix + part] = _invalid(prefix + part, f"[{text}]", message)
    return found


def topic_creation(properties: Mapping[str, str], worker: Mapping[str, str]) -> TopicCreation:
    """Return the topic settings of a connector whose properties are valid."""
    if not is_enabled(worker):
        return TopicCreation(())
    if not is_used(properties):
        return TopicCreation()
    made = [_group(properties, *each) for each in definitions(properties)]
    return TopicCreation((*made[1:], made[0]))


def _group(
    properties: Mapping[str, str], name: str, prefix: str, definition: Definition
) -> TopicGroup:
    own = with_prefix(properties, prefix)
    settings = definition.settings(own)
    configs = {
        each: value for each, value in own.items() if each not in (*_PATTERNS, *_NUMBERS)
    }  # fmt: skip
    include, exclude = (_pattern(own.get(each, "")) for each in _PATTERNS)
    is_default = name == DEFAULT
    return TopicGroup(
        name,
        settings["partitions"],
        settings["replication.factor"],
        configs,
        None if is_default else include,
        None if is_default else exclude,
    )


def _names(properties: Mapping[str, str]) -> list[str]:
    return [each for each in split_list(properties.get(GROUPS, "")) if each and each != DEFAULT]


def _definition(
    patterns: Iterable[str], numbers: Mapping[str, Value], required: Iterable[str] = ()
) -> Definition:
    factor, count = (numbers[each] for each in _NUMBERS)
    keys = [
        key("include", ConfigType.LIST, [], "Regular expressions of the topics in the group.", None,
            _LOW),
        key("exclude", ConfigType.LIST, [], "Regular expressions of the topics not in the group.",
            None, _LOW),
        key("replication.factor", ConfigType.SHORT, factor,
            "Replication factor of new topics; -1 for the brokers' default.", None, _LOW),
        key("partitions", ConfigType.INT, count,
            "Number of partitions of new topics; -1 for the brokers' default.", None, _LOW),
    ]  # fmt: skip
    wanted = (*patterns, *_NUMBERS)
    # The empty prefix allows any other property: it is a config of the group's topics.
    return Definition([each for each in keys if each.name in wanted], required, prefixes=[""])


def _default_numbers(properties: Mapping[str, str]) -> dict[str, Value]:
    """Return the numbers of the default group, which other groups inherit."""
    plain = _definition((), dict.fromkeys(_NUMBERS))
    return {
        part: _number(plain.table[part], properties.get(f"{PREFIX}{DEFAULT}.{part}"))
        for part in _NUMBERS
    }


def _number(defined: ConfigKey, text: str | None) -> int | None:
    """Return the parsed number, or None if it is missing or invalid."""
    try:
        found = None if text is None else defined.parse(text)
    except ConfigError:
        return None
    assert found is None or isinstance(found, int)
    return found


def _pattern(text: str) -> re.Pattern[str]:
    """Compile a list of patterns. An empty list matches no topic, as none has an empty name."""
    return re.compile("|".join(split_list(text)))


def _invalid(name: str, value: object, message: str) -> str:
    return f"Invalid value {value} for configuration {name}: {message}"
