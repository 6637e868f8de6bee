"""Configuration of topics, brokers, their loggers, and groups.

    DescribeConfigs 1+, IncrementalAlterConfigs 0+, ListConfigResources 0+

Requests about a broker's own configuration or its loggers go to that broker, all others to any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.base.config.definition import ConfigType
from ottla.base.config.resource import AlterOp, ConfigSource, ConfigSynonym, ResourceType
from ottla.base.errors import ErrorCode
from ottla.client.admin.dispatch import AtBrokers, Results, dispatch, raise_for
from ottla.client.cluster import ANY_NODE, Cluster
from ottla.client.errors import ClientError, InvalidConfig, UnknownTopic, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.describe_configs import DescribeConfigsResourceResult


class ConfigResource(NamedTuple):
    """Resource that has a configuration."""

    type: ResourceType
    """Type of the resource."""
    name: str
    """Name of the resource; empty for the default of all brokers."""

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', '-')} {self.name or '(default)'}"


@dataclass(frozen=True)
class ConfigEntry:
    """Property of a resource."""

    name: str
    """Name of the property."""
    value: str | None
    """Current value, or None if it is sensitive."""
    source: ConfigSource
    """Source of the value."""
    is_sensitive: bool
    """Whether the value is secret."""
    is_read_only: bool
    """Whether a change needs a restart."""
    type: ConfigType
    """Type of the value."""
    synonyms: tuple[ConfigSynonym, ...]
    """All sources that define the value, in order of precedence."""
    documentation: str | None
    """Description of the property, if it was requested."""

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class ConfigChange(NamedTuple):
    """Change of one property."""

    name: str
    """Name of the property."""
    value: str | None = None
    """Value of the change; None to delete."""
    op: AlterOp = AlterOp.SET
    """Operation on the property."""

    @classmethod
    def set(cls, name: str, value: object) -> ConfigChange:
        """Return a change that sets a value."""
        return cls(name, str(value), AlterOp.SET)

    @classmethod
    def delete(cls, name: str) -> ConfigChange:
        """Return a change that restores the default."""
        return cls(name, None, AlterOp.DELETE)

    @classmethod
    def append(cls, name: str, value: object) -> ConfigChange:
        """Return a change that adds an item to a list."""
        return cls(name, str(value), AlterOp.APPEND)

    @classmethod
    def subtract(cls, name: str, value: object) -> ConfigChange:
        """Return a change that removes an item from a list."""
        return cls(name, str(value), AlterOp.SUBTRACT)


async def describe_configs(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    *,
    names: Iterable[str] | None,
    include_synonyms: bool,
    include_documentation: bool,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    keys = None if names is None else list(names)

    async def ask(
        node: int, wanted: list[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | ClientError]:
        request = rpc.describe_configs(
            resources=[
                {
                    "resource_type": int(resource.type),
                    "resource_name": resource.name,
                    "configuration_keys": keys,
                }
                for resource in wanted
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        response = await cluster.call(request, node=node)
        return {
            _resource(entry): _failure(entry)
            if entry.error_code
            else {config.name: _entry(config) for config in entry.configs}
            for entry in response.results
        }

    return await dispatch(_by_broker(cluster), resources, ask, what="describing configs")


async def alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool,
) -> Results[ConfigResource, None]:
    async def ask(
        node: int, wanted: list[ConfigResource]
    ) -> dict[ConfigResource, ClientError | None]:
        request = rpc.incremental_alter_configs(
            resources=[
                {
                    "resource_type": int(resource.type),
                    "resource_name": resource.name,
                    "configs": [
                        {"name": name, "config_operation": int(op), "value": value}
                        for name, value, op in changes[resource]
                    ],
                }
                for resource in wanted
            ],
            validate_only=validate_only,
        )
        response = await cluster.call(request, node=node)
        return {
            _resource(entry): _failure(entry) if entry.error_code else None
            for entry in response.responses
        }

    return await dispatch(_by_broker(cluster), changes, ask, what="changing configs")


async def list_config_resources(
    cluster: Cluster, types: Iterable[ResourceType]
) -> list[ConfigResource]:
    """Return the resources that have their own configuration, of all types if none is given."""
    wanted = [int(each) for each in types]

    async def ask() -> list[ConfigResource]:
        # Version 0 supports client metrics only.
        min_version = 0 if wanted == [ResourceType.CLIENT_METRICS] else 1
        request = rpc.list_config_resources(resource_types=wanted)
        response = await cluster.call(request, min_version=min_version)
        raise_for(response.error_code)
        return sorted(_resource(entry) for entry in response.config_resources)

    return await cluster.retrying(ask, what="listing configs")


def _by_broker(cluster: Cluster) -> AtBrokers[ConfigResource]:
    def place(resource: ConfigResource) -> int:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        if not own:
            return ANY_NODE
        try:
            return int(resource.name)
        except ValueError:
            raise InvalidConfig(
                f"Broker {resource.name!r} does not exist: broker IDs are numbers."
            ) from None

    return AtBrokers(cluster, place)


class _Entry(Protocol):
    resource_type: int
    resource_name: str


class _Result(_Entry, Protocol):
    error_code: int
    error_message: str | None


def _resource(entry: _Entry) -> ConfigResource:
    return ConfigResource(_enum(ResourceType, entry.resource_type), entry.resource_name)


def _failure(entry: _Result) -> ClientError:
    if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        name = entry.resource_name
        return UnknownTopic(f"topic {name!r} does not exist", topic=name)
    return error_for(entry.error_code, entry.error_message)


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        _enum(ConfigSource, entry.config_source),
        entry.is_sensitive,
        entry.read_only,
        _enum(ConfigType, entry.config_type),
        tuple(
            ConfigSynonym(each.name, each.value, _enum(ConfigSource, each.source))
            for each in entry.synonyms
        ),
        entry.documentation,
    )


CodeT = TypeVar("CodeT", ResourceType, ConfigSource, ConfigType)


def _enum(kind: type[CodeT], code: int) -> CodeT:
    """Return the enum member, or UNKNOWN for a code of a newer broker."""
    try:
        return kind(code)
    except ValueError:
        return kind.UNKNOWN


def as_changes(
    changes: Iterable[ConfigChange] | Mapping[str, str | None],
) -> list[ConfigChange]:
    if not isinstance(changes, Mapping):
        return list(changes)
    return [
        ConfigChange.delete(name) if value is None else ConfigChange.set(name, value)
        for name, value in changes.items()
    ]
