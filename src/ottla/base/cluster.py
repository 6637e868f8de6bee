"""The elements of a cluster as values: topics, partitions and brokers.

Values are immutable. A change creates a new value, so references to the old one stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that the cluster uses itself. Metadata marks them so that clients can hide them."""

METADATA_TOPIC = "__cluster_metadata"
"""Name of Apache Kafka's metadata log. Clients cannot create or delete a topic of this name."""


class ElectionType(IntEnum):
    """Kind of a leader election that an administrator requests, with Kafka's codes."""

    PREFERRED = 0
    UNCLEAN = 1


class PartitionState(NamedTuple):
    """The replicas and the leader of a partition. `partition_epoch` grows with every change."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    partition_epoch: int = 0
    isr_incarnations: tuple[int, ...] = ()
    """The broker epoch with which each broker joined `isr`, in the same order."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    """The values that are set on the topic itself, without defaults."""
    partitions: tuple[PartitionState, ...]
    version: int = 0
    views: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Cache for code that describes this topic; it lives as long as this value."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Number of replicas of the first partition, without those being removed."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing)


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that has registered with the cluster."""

    id: int
    incarnation: int
    """Broker epoch; it grows each time the broker registers."""
    endpoints: Mapping[str, Endpoint]
    """Addresses that clients connect to, by listener name."""
    rack: str | None = None
    fenced: bool = False
    """Whether the broker is not alive: it registered once, but has no session now."""
    clean_from: int = 0
    """Oldest incarnation that is linked to the current one by clean shutdowns alone.

    Everything that an incarnation from then on had written is still present.
    """

    def continues(self, incarnation: int) -> bool:
        """Return whether the broker still has everything that `incarnation` had written."""
        return self.clean_from <= incarnation <= self.incarnation


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def metric_name(name: str) -> str:
    """Return the name of a topic in metrics, where `.` becomes `_`.

    Topics with the same metric name would share their metrics.
    """
    return name.replace(".", "_")


class ClusterView(Protocol):
    """The state of a cluster on which decisions depend. The metadata image implements it."""

    @property
    def topics(self) -> Mapping[str, TopicImage]: ...

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicImage]: ...

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]: ...

    def colliding_topic(self, name: str) -> str | None:
        """Return an existing topic whose name differs from `name` only in `.` and `_`, or None."""

    @property
    def live_brokers(self) -> Sequence[BrokerRegistration]:
        """The brokers that are not fenced, ordered by ID."""
