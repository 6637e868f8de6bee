"""What `ottla cluster status` tells, worked out from a cluster's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.admin import Admin


@dataclass(frozen=True)
class BrokerStatus:
    id: int
    endpoint: str
    rack: str | None
    state: str
    leaders: int
    replicas: int


@dataclass(frozen=True)
class ClusterStatus:
    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerStatus]
    under_replicated: list[str]
    """Partitions some of whose replicas are not in sync."""
    offline: list[str]
    """Partitions without a leader."""
    refusing_writes: list[str]
    """Log directories that cannot be written to, with their broker and free space."""


def cluster_status(admin: Admin) -> ClusterStatus:
    described = admin.describe_cluster(include_fenced=True)
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
    brokers = [
        BrokerStatus(
            id,
            str(node),
            node.rack,
            "down" if node.is_fenced else "up",
            leaders.get(id, 0),
            replicas.get(id, 0),
        )
        for id, node in sorted(described.nodes.items())
    ]
    return ClusterStatus(
        described.cluster_id,
        described.controller,
        brokers,
        under_replicated,
        offline,
        _refusing_writes(admin, [each.id for each in brokers if each.state == "up"]),
    )


def _refusing_writes(admin: Admin, brokers: list[int]) -> list[str]:
    found = admin.describe_log_dirs(*brokers, partitions=[], return_errors=True)
    return [
        f"broker {broker}: {path} ({directory.error.code.name}, "
        f"{directory.usable_bytes} of {directory.total_bytes} bytes usable)"
        for broker, directories in sorted(found.items())
        for path, directory in directories.items()
        if directory.error is not None
    ]
