"""What a cluster consists of, as values: topics, partitions and brokers.

Values are never changed in place: a change makes a new one, so whoever holds one may keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that the cluster keeps for itself; metadata marks them so that clients hide them."""

METADATA_TOPIC = "__cluster_metadata"
"""Apache Kafka's metadata log has this name; nobody may create or delete a topic called so."""


class PartitionState(NamedTuple):
    """Who holds a partition, and who leads it. `partition_epoch` grows with every change."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    partition_epoch: int = 0
    isr_incarnations: tuple[int, ...] = ()
    """The incarnation in which each broker of `isr` joined it, in the same order."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    """The values set on the topic itself, not the effective ones."""
    partitions: tuple[PartitionState, ...]
    version: int = 0
    views: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache for whoever describes this topic; it lives as long as this value is current."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Without replicas that are on their way out."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing)


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    incarnation: int
    """Grows each time the broker registers."""
    endpoints: Mapping[str, Endpoint]
    """By listener name; what clients are told to connect to."""
    rack: str | None = None
    fenced: bool = False
    """Not alive: it has registered once, but holds no session now."""
    clean_from: int = 0
    """The oldest incarnation that is linked to the present one by clean shutdowns alone. What an
    incarnation in that range had, this one has too."""

    def continues(self, incarnation: int) -> bool:
        return self.clean_from <= incarnation <= self.incarnation


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def metric_name(name: str) -> str:
    """Metrics write `.` as `_`; topics whose names are equal then would share their metrics."""
    return name.replace(".", "_")


class ClusterView(Protocol):
    """What decisions read of a cluster's state; the image of the metadata store is one."""

    @property
    def topics(self) -> Mapping[str, TopicImage]: ...

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicImage]: ...

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]: ...

    def colliding_topic(self, name: str) -> str | None:
        """An existing topic whose name differs from this one only by `.` against `_`."""

    @property
    def live_brokers(self) -> Sequence[BrokerRegistration]:
        """Those not fenced, in the order of their ids."""
