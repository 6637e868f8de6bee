"""The state of a cluster as `ottla cluster status` shows it, computed from the cluster's metadata.

A broker is `down` if the cluster lists it as fenced (DescribeCluster version 2), or if it hosts
replicas and is not among the live brokers. Apache Kafka before 4.0 lists live brokers only, so
a dead broker of such a cluster is shown only if it hosts replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ottla.client.errors import UnsupportedVersion

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ClusterDescription, LogDirDescription

UP, DOWN = "up", "down"
EXPIRES_SOON = timedelta(days=30)


@dataclass(frozen=True)
class BrokerStatus:
    id: int
    endpoint: str | None
    """HOST:PORT, or None for a broker that the cluster no longer lists."""
    rack: str | None
    state: str
    """`up` or `down`."""
    leaders: int
    """Number of partitions that the broker leads."""
    replicas: int
    """Number of partitions that have a replica on the broker."""
    certificate_expires: str | None
    """Time when the certificate of the listener expires that the command has connected to; None
    without TLS."""


@dataclass(frozen=True)
class ClusterStatus:
    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerStatus]
    under_replicated: list[str]
    """Partitions that have replicas outside the ISR."""
    offline: list[str]
    """Partitions without a leader."""
    refusing_writes: list[str]
    """Log directories that cannot be written to, with their broker and free space."""
    expiring_certificates: list[str]
    """Brokers whose certificates expire within 30 days."""


def cluster_status(admin: Admin) -> ClusterStatus:
    """Return the brokers, leaders and unhealthy partitions of the cluster.

    Args:
        admin: A client that is connected to the cluster.
    """
    described = _describe(admin)
    names = sorted(admin.list_topics(include_internal=True))
    topics = admin.describe_topics(*names, return_errors=True) if names else {}
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    under_replicated: list[str] = []
    offline: list[str] = []
    for name in sorted(topics):
        for partition in topics[name].partitions:
            key = f"{name}-{partition.partition}"
            if partition.leader is None or partition.leader < 0:
                offline.append(key)
            else:
                leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
            if len(partition.isr) < len(partition.replicas):
                under_replicated.append(key)
            for replica in partition.replicas:
                replicas[replica] = replicas.get(replica, 0) + 1
    live = [id for id, node in described.nodes.items() if not node.is_fenced]
    directories = admin.describe_log_dirs(live, partitions=[], return_errors=True)
    expiry: Mapping[int, datetime | None] = {}
    if directories:  # only brokers that answer, so that nothing waits for the others again
        expiry = admin.certificate_expiry(directories, return_errors=True)
    brokers = []
    for id in sorted({*described.nodes, *replicas}):
        node = described.nodes.get(id)
        brokers.append(
            BrokerStatus(
                id,
                None if node is None else str(node),
                None if node is None else node.rack,
                DOWN if node is None or node.is_fenced else UP,
                leaders.get(id, 0),
                replicas.get(id, 0),
                _text(expiry.get(id)),
            )
        )
    return ClusterStatus(
        described.cluster_id,
        described.controller,
        brokers,
        under_replicated,
        offline,
        _refusing_writes(directories),
        [
            f"broker {id}: {_text(expires)}"
            for id, expires in sorted(expiry.items())
            if expires is not None and expires < datetime.now(UTC) + EXPIRES_SOON
        ],
    )


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")


def _describe(admin: Admin) -> ClusterDescription:
    try:
        return admin.describe_cluster(include_fenced=True)
    except UnsupportedVersion:  # Apache Kafka before 4.0
        return admin.describe_cluster()


def _refusing_writes(found: Mapping[int, Mapping[str, LogDirDescription]]) -> list[str]:
    return [
        f"broker {broker}: {path} ({directory.error.code.name}, "
        f"{directory.usable_bytes} of {directory.total_bytes} bytes usable)"
        for broker, directories in sorted(found.items())
        for path, directory in directories.items()
        if directory.error is not None
    ]
