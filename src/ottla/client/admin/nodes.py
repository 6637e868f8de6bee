"""The cluster: brokers, certificates, controller, features, API versions and log directories.

DescribeCluster 0+ (before Kafka 2.8: Metadata), ApiVersions, DescribeLogDirs 1+"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.admin.dispatch import AtBrokers, Results, dispatch, raise_for
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, UnsupportedVersion, error_for
from ottla.net.connection import VersionRange
from ottla.wire import rpc, schema

if TYPE_CHECKING:
    from ottla.wire.messages.describe_log_dirs import DescribeLogDirsResult
    from ottla.wire.messages.metadata import MetadataResponse


class BrokerNode(NamedTuple):
    """Broker of a cluster."""

    id: int
    """Broker ID."""
    host: str
    """Host that clients connect to."""
    port: int
    """Port that clients connect to."""
    rack: str | None
    """Rack of the broker, or None."""
    is_fenced: bool
    """Whether the broker is registered but serves no clients."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ClusterDescription:
    """Brokers of a cluster."""

    cluster_id: str | None
    """ID of the cluster; None if the broker does not report it."""
    controller: int | None
    """Broker ID of the controller; None if there is none now."""
    nodes: Mapping[int, BrokerNode]
    """The brokers, by broker ID."""


class FinalizedFeature(NamedTuple):
    """Range of versions of a feature that the cluster has agreed on."""

    min_version_level: int
    """Smallest version level."""
    max_version_level: int
    """Largest version level."""


@dataclass(frozen=True)
class Features:
    """Features of a cluster."""

    finalized: Mapping[str, FinalizedFeature]
    """Features that the cluster has agreed on, by name."""
    supported: Mapping[str, VersionRange]
    """Versions that the broker supports, by name of the feature."""
    finalized_epoch: int | None
    """Epoch of the finalized features; None if the broker does not report it."""


class ApiVersions(NamedTuple):
    """Versions of one API that a broker and this client support."""

    name: str
    """Name of the API as Kafka writes it: `ListOffsets`."""
    minimum: int
    """Oldest version that the broker supports."""
    maximum: int
    """Newest version that the broker supports."""
    client_minimum: int | None
    """Bounds of this client; both are None for an API that it does not know."""
    client_maximum: int | None
    """Newest version that this client supports."""

    @property
    def usable(self) -> int | None:
        """Newest version that both sides support, or None."""
        if self.client_minimum is None or self.client_maximum is None:
            return None
        newest = min(self.maximum, self.client_maximum)
        return newest if newest >= max(self.minimum, self.client_minimum) else None


class ReplicaInfo(NamedTuple):
    """Replica in a log directory."""

    size_bytes: int
    """Size of the log, in bytes."""
    offset_lag: int
    """Number of offsets by which the log is behind the leader or the current log."""
    is_future: bool
    """Whether the log replaces the current one once it has caught up."""


@dataclass(frozen=True)
class LogDirDescription:
    """Log directory of a broker."""

    error: ClientError | None
    """Why the directory cannot be used, or None."""
    replicas: Mapping[TopicPartition, ReplicaInfo]
    """Replicas in the directory, by partition."""
    total_bytes: int | None
    """Size of the volume; this and `usable_bytes` are None if the broker does not report them."""
    usable_bytes: int | None
    """Free space on the volume, in bytes."""


async def describe_cluster(cluster: Cluster, *, include_fenced: bool) -> ClusterDescription:
    async def ask() -> ClusterDescription:
        request = rpc.describe_cluster(include_fenced_brokers=include_fenced)
        try:
            response = await cluster.call(request, min_version=2 if include_fenced else 0)
        except UnsupportedVersion:
            if include_fenced:
                raise
            return _from_metadata(await cluster.call(rpc.metadata(topics=[]), min_version=1))
        raise_for(response.error_code, response.error_message)
        nodes = {
            each.broker_id: BrokerNode(
                each.broker_id, each.host, each.port, each.rack, each.is_fenced
            )
            for each in sorted(response.brokers, key=lambda each: int(each.broker_id))
        }
        return ClusterDescription(response.cluster_id, _or_none(response.controller_id), nodes)

    return await cluster.retrying(ask, what="describing the cluster")


def _from_metadata(response: MetadataResponse) -> ClusterDescription:
    nodes = {
        each.node_id: BrokerNode(each.node_id, each.host, each.port, each.rack, False)
        for each in sorted(response.brokers, key=lambda each: int(each.node_id))
    }
    return ClusterDescription(response.cluster_id, _or_none(response.controller_id), nodes)


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


async def describe_features(cluster: Cluster) -> Features:
    async def ask() -> Features:
        from ottla import __version__

        response = await cluster.call(
            rpc.api_versions(client_software_name="ottla", client_software_version=__version__)
        )
        raise_for(response.error_code)
        epoch = response.finalized_features_epoch
        return Features(
            {
                each.name: FinalizedFeature(each.min_version_level, each.max_version_level)
                for each in sorted(response.finalized_features, key=lambda each: str(each.name))
            },
            {
                each.name: VersionRange(each.min_version, each.max_version)
                for each in sorted(response.supported_features, key=lambda each: str(each.name))
            },
            _or_none(epoch),
        )

    return await cluster.retrying(ask, what="describing features")


async def api_versions(
    cluster: Cluster, brokers: Iterable[int]
) -> Results[int, dict[int, ApiVersions]]:
    """Return the versions that each broker supports, by API key."""

    async def ask(node: int, keys: list[int]) -> dict[int, dict[int, ApiVersions] | ClientError]:
        connection = await cluster.connection(node)
        ranges = sorted(connection.api_versions.items())
        return {node: {key: _api_versions(key, versions) for key, versions in ranges}}

    lookup: AtBrokers[int] = AtBrokers(cluster, lambda broker: broker)
    return await dispatch(lookup, brokers, ask, what="fetching API versions")


def _api_versions(api_key: int, theirs: VersionRange) -> ApiVersions:
    try:
        name, ours = schema.api_name(api_key), schema.versions(api_key)
    except KeyError:
        return ApiVersions("UNKNOWN", *theirs, None, None)
    camel = "".join(word.capitalize() for word in name.split("_"))
    return ApiVersions(camel, *theirs, ours[0], ours[-1])


async def describe_log_dirs(
    cluster: Cluster, brokers: Iterable[int], partitions: Iterable[TopicPartition] | None
) -> Results[int, dict[str, LogDirDescription]]:
    """Return log directories by broker and path, with all partitions if none are given."""
    wanted = None if partitions is None else partitions_by_topic(partitions)

    async def ask(
        node: int, keys: list[int]
    ) -> dict[int, dict[str, LogDirDescription] | ClientError]:
        request = rpc.describe_log_dirs(
            topics=None
            if wanted is None
            else [{"topic": topic, "partitions": each} for topic, each in wanted.items()]
        )
        response = await cluster.call(request, node=node)
        raise_for(response.error_code)
        return {node: {ranges.log_dir: _log_dir(ranges) for ranges in response.results}}

    lookup: AtBrokers[int] = AtBrokers(cluster, lambda broker: broker)
    return await dispatch(lookup, brokers, ask, what="describing log directories")


async def certificate_expiry(
    cluster: Cluster, brokers: Iterable[int]
) -> Results[int, datetime | None]:
    """Return when the certificates of brokers expire; None without TLS."""

    async def ask(node: int, keys: list[int]) -> dict[int, datetime | ClientError | None]:
        expires_at = (await cluster.connection(node)).certificate_expires_at
        return {node: None if expires_at is None else datetime.fromtimestamp(expires_at, UTC)}

    lookup: AtBrokers[int] = AtBrokers(cluster, lambda broker: broker)
    return await dispatch(lookup, brokers, ask, what="connecting to brokers")


def _log_dir(entry: DescribeLogDirsResult) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in entry.topics
        for each in topic.partitions
    }
    return LogDirDescription(
        error_for(entry.error_code) if entry.error_code else None,
        dict(sorted(replicas.items())),
        _or_none(entry.total_bytes),
        _or_none(entry.usable_bytes),
    )


__all__ = [
    "ApiVersions",
    "BrokerNode",
    "ClusterDescription",
    "Features",
    "FinalizedFeature",
    "LogDirDescription",
    "ReplicaInfo",
    "api_versions",
    "certificate_expiry",
    "describe_cluster",
    "describe_features",
    "describe_log_dirs",
]
