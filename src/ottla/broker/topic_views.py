"""Topics, partitions and brokers in the form that Metadata and DescribeTopicPartitions report them.

With ten thousand partitions these responses are large, and clients ask often, so the parts are
cached: per topic in `TopicImage.views`, until the topic changes; for all topics together and for
configs in `ClusterImage.views`, until anything changes. Callers must not modify what they get.

How a partition is reported depends on the live brokers, on the client's listener and on the version
of the request. A broker whose lease has expired is not alive, even if its session still is:

| the leader | from version 6 | before |
|---|---|---|
| none, or not alive | LEADER_NOT_AVAILABLE | LEADER_NOT_AVAILABLE |
| alive without this listener | LISTENER_NOT_FOUND | LEADER_NOT_AVAILABLE |

Version 0 leaves out replicas that are not alive, and reports REPLICA_NOT_AVAILABLE then."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

from ottla.base.acl import AclResourceType
from ottla.base.cluster import INTERNAL_TOPICS, NO_LEADER, PartitionState, TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext
from ottla.broker.controller import Controller
from ottla.broker.ports import Configuration, Metadata, NodeId
from ottla.core.security.authorizer import OPERATIONS
from ottla.core.security.permissions import (
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
)
from ottla.metadata.image import ClusterImage

if TYPE_CHECKING:
    from ottla.wire.messages.metadata import (
        MetadataResponsePartitionDict,
        MetadataResponseTopicDict,
    )

NOT_REQUESTED = -(2**31)
"""Value of a field of authorized operations that the client did not request."""

TOPIC_OPERATIONS = sum(1 << code for code in OPERATIONS[AclResourceType.TOPIC])
"""All operations on topics, which anyone may perform on a broker without an authorizer. Each
operation code is a bit."""

MAX_VIEWS_PER_TOPIC = 16


class TopicPorts(Configuration, Metadata, NodeId, Protocol):
    """The parts of a broker that the handlers for topics and configs use."""

    @property
    def controller(self) -> Controller: ...


class Style(Enum):
    """How unavailable leaders and replicas are reported; see the table above."""

    VERSION_0 = 0
    BEFORE_6 = 1
    NEWEST = 6

    @classmethod
    def of_metadata(cls, version: int) -> Style:
        if version == 0:
            return cls.VERSION_0
        return cls.BEFORE_6 if version < 6 else cls.NEWEST


def described_topic(
    image: ClusterImage, topic: TopicImage, listener: str, style: Style, operations: int
) -> MetadataResponseTopicDict:
    key = (image.brokers_revision, image.presumed_dead, listener, style, operations)
    view: MetadataResponseTopicDict | None = topic.views.get(key)
    if view is None:
        view = {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": described_partitions(image, topic, listener, style),
            "topic_authorized_operations": operations,
        }
        if len(topic.views) >= MAX_VIEWS_PER_TOPIC:
            topic.views.clear()
        topic.views[key] = view
    return view


def described_topics(
    image: ClusterImage, listener: str, style: Style, operations: int
) -> list[MetadataResponseTopicDict]:
    """Return all topics, in the order of their creation."""
    key = ("topics", listener, style, operations)
    views: list[MetadataResponseTopicDict] | None = image.views.get(key)
    if views is None:
        views = [
            described_topic(image, topic, listener, style, operations)
            for topic in image.topics.values()
        ]
        image.views[key] = views
    return views


def unknown_topic(
    error: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopicDict:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": NOT_REQUESTED,
    }


def denied_topic(name: str) -> MetadataResponseTopicDict:
    """Describe a topic that the client may not describe: nothing shows whether it exists."""
    return {**unknown_topic(DESCRIBE_TOPIC.error, name), "is_internal": False}


def described_partitions(
    image: ClusterImage, topic: TopicImage, listener: str, style: Style
) -> list[MetadataResponsePartitionDict]:
    reachable = {
        broker.id
        for broker in image.live_brokers
        if listener in broker.endpoints and broker.id not in image.presumed_dead
    }
    return [
        _described_partition(image, index, state, reachable, style)
        for index, state in enumerate(topic.partitions)
    ]


def _described_partition(
    image: ClusterImage, index: int, state: PartitionState, reachable: set[int], style: Style
) -> MetadataResponsePartitionDict:
    error = ErrorCode.NONE
    leader, replicas, isr = state.leader, state.replicas, state.isr
    offline = (
        [] if reachable.issuperset(replicas) else [id for id in replicas if id not in reachable]
    )
    if style is Style.VERSION_0 and offline:
        error = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas = tuple(id for id in replicas if id in reachable)
        isr = tuple(id for id in isr if id in reachable)
    if leader not in reachable:
        leader, error = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        is_alive = image.is_alive(state.leader) and state.leader not in image.presumed_dead
        if style is Style.NEWEST and is_alive:
            error = ErrorCode.LISTENER_NOT_FOUND
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": offline,
    }


class ErrorFields(TypedDict):
    """The fields of a result that has an error, or none."""

    error_code: int
    error_message: str | None


class ReachableBroker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


def reachable_brokers(broker: Metadata, listener: str) -> list[ReachableBroker]:
    """Return the brokers that are alive and have the listener."""
    found, image = [], broker.image
    for each in image.live_brokers:
        if listener in each.endpoints and each.id not in image.presumed_dead:
            host, port = each.endpoints[listener]
            found.append(ReachableBroker(each.id, host, port, each.rack))
    return found


def authorized_cluster_operations(context: RequestContext) -> int:
    """Return what the client may do in the cluster, as bits; 0 if it may not describe it."""
    return context.operations(AclResourceType.CLUSTER) if context.may(DESCRIBE_CLUSTER) else 0


def may_create_topic(context: RequestContext, name: str) -> bool:
    """Return whether the client may create a topic."""
    return context.may(CREATE_IN_CLUSTER, is_audited=False) or context.may(CREATE_TOPIC, name)


def error_fields(error: KafkaError | None) -> ErrorFields:
    """Return `error_code` and `error_message` for a KafkaError, or for success if it is None."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}
