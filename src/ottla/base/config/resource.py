"""Resources that have a configuration, and the sources and changes of their values.

The numbers are Kafka's codes in DescribeConfigs, IncrementalAlterConfigs and ListConfigResources.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ResourceType(IntEnum):
    """Type of a resource."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Origin of a configuration value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """Property from which a value may be derived."""

    name: str
    """Name of the property."""
    value: str | None
    """Value of the property, or None if it is sensitive."""
    source: ConfigSource
    """Source of the value."""


class AlterOp(IntEnum):
    """Operation on one property."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
