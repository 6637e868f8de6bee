"""The parts of a broker that several of its components and handlers use, one protocol for each.

No component knows the class `Broker`. It declares what it needs as a protocol of its own, next to
its class or handler, and composes it from these:

    class Ports(PartitionLookup, Protocol):
        @property
        def logs(self) -> Checkpoints: ...

`Broker` provides all of them, and a test provides the few that its subject uses. The modules that
this one imports must not use ports themselves, or their imports form a cycle."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from ottla.base.config.broker import BrokerConfig
from ottla.base.metadata import MetadataStore
from ottla.base.ports import Clock
from ottla.base.types import TopicPartition
from ottla.broker.authorization import Authorization
from ottla.broker.flusher import Flusher
from ottla.broker.log_limit import LogLimiter
from ottla.broker.partition import Partition
from ottla.broker.quotas import ClientQuotas
from ottla.core.group.events import GroupEvent
from ottla.core.security.peers import PeerRule
from ottla.core.txn.events import TransactionEvent
from ottla.metadata.image import ClusterImage
from ottla.net.connection import Authenticate

T = TypeVar("T")


class NodeId(Protocol):
    """The ID of this broker."""

    @property
    def node_id(self) -> int: ...


class Configuration(Protocol):
    """The configuration of this broker, including its dynamic part."""

    @property
    def config(self) -> BrokerConfig: ...


class Metadata(Protocol):
    """The metadata of the cluster, as this broker knows it."""

    @property
    def image(self) -> ClusterImage: ...


class Store(Protocol):
    """The metadata store."""

    @property
    def store(self) -> MetadataStore: ...


class TimeSource(Protocol):
    """Wall-clock and monotonic time."""

    @property
    def clock(self) -> Clock: ...


class Threads(Protocol):
    """Threads for work that may wait for a disk."""

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run a function in a thread, and return its result."""


class Tasks(Protocol):
    """Tasks that are cancelled when the broker stops."""

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...


class HostedPartitions(Protocol):
    """The partitions that have a replica on this broker."""

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]: ...


class PartitionLookup(Protocol):
    """The partitions that this broker leads."""

    def find_partition(self, key: tuple[str, int]) -> Partition:
        """Return a partition. Raises KafkaError if this broker does not lead it."""


class PartitionLeaders(Protocol):
    """The leaders of all partitions of the cluster."""

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the leader's ID, or None if the partition does not exist."""


class LeadershipProofs(Protocol):
    """Proofs that this broker still leads a partition, for when it has no lease."""

    def check_can_prove_leadership(self, partition: Partition) -> None:
        """Raise KafkaError if leadership cannot be proved."""

    def leadership_proof(self, partition: Partition) -> asyncio.Future[None] | None:
        """Return a future that completes when leadership is proved, or None if a lease proves
        it."""


class Flushing(Protocol):
    """The syncing of logs to disk."""

    @property
    def flusher(self) -> Flusher: ...


class PeerEndpoints(NodeId, Protocol):
    """The addresses of the other brokers."""

    def peer_endpoint(self, broker_id: int) -> tuple[str, int]:
        """Return host and port of a broker. Raises ConnectionLost if they are unknown."""

    def peer_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections between brokers, or None for plain text."""

    def peer_authenticator(self) -> Authenticate | None:
        """Return the function that authenticates connections to other brokers, or None if they do
        not use SASL."""


class PeerRecognition(Protocol):
    """The distinction between brokers of this cluster and clients."""

    @property
    def peer_rule(self) -> PeerRule: ...

    @property
    def client_log(self) -> LogLimiter:
        """Rate-limited log for client behaviour that an operator should know about."""


class Authorizing(Protocol):
    """The authorizer of this broker."""

    @property
    def authorization(self) -> Authorization | None:
        """None if clients may do everything."""


class Quotas(Protocol):
    """The client quotas."""

    @property
    def quotas(self) -> ClientQuotas: ...


class GroupSubmitter(Protocol):
    """A group coordinator that decides on events."""

    def submit(self, event: GroupEvent) -> None:
        """Submit an event about a group. Its token gets the response or the error."""


class GroupRequests(Protocol):
    """Requests to the group coordinator of this broker."""

    @property
    def group_coordinator(self) -> GroupSubmitter: ...


class TransactionSubmitter(Protocol):
    """A transaction coordinator that decides on events."""

    def submit(self, event: TransactionEvent) -> None:
        """Submit an event about a transactional ID. Its token gets the response or the error."""


class TransactionRequests(Protocol):
    """Requests to the transaction coordinator of this broker."""

    @property
    def transaction_coordinator(self) -> TransactionSubmitter: ...
