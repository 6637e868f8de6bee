"""Topics and partitions: list, describe, create, delete, add partitions, elect leaders.

CreateTopics 2+, DeleteTopics 1+ (by ID: 6+), CreatePartitions 0+    to the controller
Metadata 1+ (by ID: 10+), DescribeTopicPartitions 0+                 to any broker
ElectLeaders 0+                                                      to the controller"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.base import notebook
from ottla.base.cluster import ElectionType
from ottla.base.errors import ErrorCode
from ottla.base.types import (
    ZERO_UUID,
    TopicPartition,
    format_uuid,
    parse_uuid,
    partitions_by_topic,
)
from ottla.client.admin.dispatch import (
    AtBrokers,
    AtController,
    Listing,
    Results,
    dispatch,
    raise_for,
)
from ottla.client.cluster import ANY_NODE, Cluster
from ottla.client.errors import ClientError, UnknownTopic, UnsupportedVersion, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.create_partitions import CreatePartitionsTopicDict
    from ottla.wire.messages.create_topics import CreatableTopicDict, CreatableTopicResult
    from ottla.wire.messages.delete_topics import DeleteTopicsRequestDict
    from ottla.wire.messages.describe_topic_partitions import (
        CursorRequestDict,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )
    from ottla.wire.messages.elect_leaders import ElectLeadersResponse
    from ottla.wire.messages.metadata import (
        MetadataRequestTopicDict,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

BROKER_DEFAULT = -1
"""Number of partitions or replicas that stands for the broker's configured default."""
PARTITIONS_PER_PAGE = 2_000


@dataclass(frozen=True)
class NewTopic:
    """Topic to create with `Admin.create_topics`."""

    name: str
    """Name of the topic."""
    partitions: int = BROKER_DEFAULT
    """Number of partitions; -1 takes the broker's `num.partitions`."""
    replication_factor: int = BROKER_DEFAULT
    """Number of replicas; -1 takes the broker's `default.replication.factor`."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Configuration of the topic, such as `{"retention.ms": "60000"}`."""
    replica_assignment: Sequence[Sequence[int]] = ()
    """Broker IDs of each partition, the preferred leader first, in place of the two numbers."""


class CreatedTopic(NamedTuple):
    """Topic that was created."""

    topic_id: str | None
    """ID of the topic; None if the broker does not report it."""
    partitions: int
    """Number of partitions. This and the next are -1 if the broker, before Kafka 2.4, does not
    report them."""
    replication_factor: int
    """Number of replicas."""
    configs: Mapping[str, str | None]
    """Configuration of the topic, by name of the property."""


class TopicListing(NamedTuple):
    """Topic of a cluster."""

    name: str
    """Name of the topic."""
    topic_id: str | None
    """ID of the topic; None if the broker does not report it."""
    is_internal: bool
    """Whether the topic stores the cluster's own state."""


class PartitionDescription(NamedTuple):
    """Partition of a topic."""

    partition: int
    """Number of the partition."""
    leader: int | None
    """Broker ID of the leader, or None if there is none."""
    leader_epoch: int
    """Epoch of the leader."""
    replicas: tuple[int, ...]
    """Broker IDs of the replicas, the preferred leader first."""
    isr: tuple[int, ...]
    """Broker IDs of the in-sync replicas."""
    offline_replicas: tuple[int, ...]
    """Broker IDs of replicas that are offline."""
    eligible_leader_replicas: tuple[int, ...] | None
    """Eligible leader replicas. This and the next are None if the broker does not report them."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None
    """Replicas that were eligible last."""


@dataclass(frozen=True)
class TopicDescription:
    """Topic with its partitions."""

    name: str
    """Name of the topic."""
    topic_id: str | None
    """ID of the topic; None if the broker does not report it."""
    is_internal: bool
    """Whether the topic stores the cluster's own state."""
    partitions: tuple[PartitionDescription, ...]
    """The partitions, ordered by number."""

    @property
    def replication_factor(self) -> int:
        """Number of replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    def _repr_html_(self) -> str:
        headings = ("partition", "leader", "replicas", "isr", "offline replicas")
        rows = [
            (each.partition, each.leader, each.replicas, each.isr, each.offline_replicas)
            for each in self.partitions
        ]
        caption = f"Topic {self.name}, replication factor {self.replication_factor}"
        return notebook.table(headings, rows, caption=caption)


# ------------------------------------------------------------------------------ create, delete


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool
) -> Results[str, CreatedTopic]:
    by_name = {topic.name: topic for topic in topics}

    async def ask(node: int, names: list[str]) -> dict[str, CreatedTopic | ClientError]:
        request = rpc.create_topics(
            topics=[_creatable(by_name[name]) for name in names],
            timeout_ms=cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await cluster.call(request, node=node)
        return {
            entry.name: error_for(entry.error_code, entry.error_message)
            if entry.error_code
            else _created(entry)
            for entry in response.topics
        }

    return await dispatch(AtController(cluster), by_name, ask, what="creating topics")


def _creatable(topic: NewTopic) -> CreatableTopicDict:
    assigned = bool(topic.replica_assignment)
    return {
        "name": topic.name,
        "num_partitions": BROKER_DEFAULT if assigned else topic.partitions,
        "replication_factor": BROKER_DEFAULT if assigned else topic.replication_factor,
        "assignments": [
            {"partition_index": number, "broker_ids": list(brokers)}
            for number, brokers in enumerate(topic.replica_assignment)
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _created(entry: CreatableTopicResult) -> CreatedTopic:
    configs = {config.name: config.value for config in entry.configs or ()}
    return CreatedTopic(
        _uuid(entry.topic_id), entry.num_partitions, entry.replication_factor, configs
    )


async def delete_topics(
    cluster: Cluster, names: Iterable[str], *, by_id: bool = False
) -> Results[str, None]:
    """Delete topics by name or, with `by_id`, by topic ID in Kafka's text form."""

    async def ask(node: int, keys: list[str]) -> dict[str, ClientError | None]:
        body: DeleteTopicsRequestDict = {"timeout_ms": cluster.config.request_timeout_ms}
        if by_id:
            body["topics"] = [{"name": None, "topic_id": parse_uuid(key)} for key in keys]
        else:
            body["topics"] = [{"name": key, "topic_id": ZERO_UUID} for key in keys]
            body["topic_names"] = keys
        response = await cluster.call(
            rpc.delete_topics(**body), node=node, min_version=6 if by_id else 0
        )
        return {
            format_uuid(entry.topic_id) if by_id else entry.name or "": _failure(
                entry.error_code, entry.error_message, None if by_id else entry.name
            )
            for entry in response.responses
        }

    return await dispatch(AtController(cluster), names, ask, what="deleting topics")


async def create_partitions(
    cluster: Cluster,
    counts: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]],
    *,
    validate_only: bool,
) -> Results[str, None]:
    async def ask(node: int, names: list[str]) -> dict[str, ClientError | None]:
        request = rpc.create_partitions(
            topics=[_enlarged(name, counts[name], assignments.get(name)) for name in names],
            timeout_ms=cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await cluster.call(request, node=node)
        return {
            entry.name: _failure(entry.error_code, entry.error_message, entry.name)
            for entry in response.results
        }

    return await dispatch(AtController(cluster), counts, ask, what="adding partitions")


def _enlarged(
    name: str, count: int, assignment: Sequence[Sequence[int]] | None
) -> CreatePartitionsTopicDict:
    return {
        "name": name,
        "count": count,
        "assignments": [{"broker_ids": list(each)} for each in assignment] if assignment else None,
    }


def _failure(code: int, message: str | None, topic: str | None) -> ClientError | None:
    if not code:
        return None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        return UnknownTopic(f"topic {topic!r} does not exist", topic=topic)
    return error_for(code, message) if message else error_for(code, topic=topic)


# ------------------------------------------------------------------------------ list, describe


async def list_topics(cluster: Cluster) -> Listing[str, TopicListing]:
    async def ask() -> Listing[str, TopicListing]:
        response = await cluster.call(rpc.metadata(topics=None), min_version=1)
        return Listing({
            topic.name: TopicListing(topic.name, _uuid(topic.topic_id), topic.is_internal)
            for topic in sorted(response.topics, key=lambda topic: str(topic.name))
            if topic.name
        })  # fmt: skip

    return await cluster.retrying(ask, what="listing topics")


async def describe_topics(cluster: Cluster, names: Iterable[str]) -> Results[str, TopicDescription]:
    async def ask(node: int, keys: list[str]) -> dict[str, TopicDescription | ClientError]:
        try:
            return await _describe_in_pages(cluster, keys)
        except UnsupportedVersion:  # before Kafka 3.8
            return await _describe_by_metadata(cluster, [{"name": key} for key in keys])

    return await dispatch(_at_any_broker(cluster), names, ask, what="describing topics")


async def describe_topics_by_id(
    cluster: Cluster, topic_ids: Iterable[str]
) -> Results[str, TopicDescription]:
    async def ask(node: int, keys: list[str]) -> dict[str, TopicDescription | ClientError]:
        wanted: list[MetadataRequestTopicDict] = [
            {"name": None, "topic_id": parse_uuid(key)} for key in keys
        ]
        found = await _describe_by_metadata(cluster, wanted, by_id=True)
        for key in keys:
            found.setdefault(key, UnknownTopic(f"topic with ID {key} does not exist"))
        return found

    return await dispatch(_at_any_broker(cluster), topic_ids, ask, what="describing topics")


def _at_any_broker(cluster: Cluster) -> AtBrokers[str]:
    return AtBrokers(cluster, lambda key: ANY_NODE)


async def _describe_in_pages(
    cluster: Cluster, names: list[str]
) -> dict[str, TopicDescription | ClientError]:
    wanted = sorted(names)
    found: dict[str, TopicDescription | ClientError] = {}
    cursor: CursorRequestDict | None = None
    while True:
        request = rpc.describe_topic_partitions(
            topics=[{"name": name} for name in wanted],
            response_partition_limit=PARTITIONS_PER_PAGE,
            cursor=cursor,
        )
        response = await cluster.call(request)
        for entry in response.topics:
            _add_page(found, entry)
        following = response.next_cursor
        if following is None:
            return found
        after: CursorRequestDict = {
            "topic_name": following.topic_name,
            "partition_index": following.partition_index,
        }
        if after == cursor:
            raise ClientError("the broker keeps returning the same page of topics")
        cursor = after
        wanted = [name for name in wanted if name >= following.topic_name]


def _add_page(
    found: dict[str, TopicDescription | ClientError], entry: DescribeTopicPartitionsResponseTopic
) -> None:
    name = entry.name or ""
    before = found.get(name)
    if entry.error_code:
        found[name] = _failure(entry.error_code, None, name) or ClientError()
    elif isinstance(before, TopicDescription):
        page = _description(entry)
        found[name] = TopicDescription(
            page.name, page.topic_id, page.is_internal, before.partitions + page.partitions
        )
    else:
        found[name] = _description(entry)


async def _describe_by_metadata(
    cluster: Cluster, topics: list[MetadataRequestTopicDict], *, by_id: bool = False
) -> dict[str, TopicDescription | ClientError]:
    request = rpc.metadata(topics=topics, allow_auto_topic_creation=False)
    # Requests have topic IDs since version 10, but brokers support them only since 12.
    response = await cluster.call(request, min_version=12 if by_id else 4)
    found: dict[str, TopicDescription | ClientError] = {}
    for entry in response.topics:
        key = format_uuid(entry.topic_id) if by_id else entry.name or ""
        if entry.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            found[key] = _description(entry)
        elif entry.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            found[key] = UnknownTopic(f"topic with ID {key} does not exist")
        else:
            found[key] = _failure(entry.error_code, None, entry.name) or ClientError()
    return found


def _description(
    entry: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic,
) -> TopicDescription:
    partitions: Sequence[MetadataResponsePartition | DescribeTopicPartitionsResponsePartition] = (
        entry.partitions
    )
    return TopicDescription(
        entry.name or "",
        _uuid(entry.topic_id),
        entry.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
                _tuple_or_none(getattr(each, "eligible_leader_replicas", None)),
                _tuple_or_none(getattr(each, "last_known_elr", None)),
            )
            for each in sorted(partitions, key=lambda each: each.partition_index)
        ),
    )


def _tuple_or_none(values: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _uuid(raw: bytes) -> str | None:
    return None if raw == ZERO_UUID else format_uuid(raw)


# ------------------------------------------------------------------------------- elect leaders


async def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[TopicPartition] | None
) -> Results[TopicPartition, None]:
    """Elect leaders, of all partitions if none are given.

    A partition that already has the right leader counts as a success."""
    wanted = None if partitions is None else partitions_by_topic(partitions)
    results: Results[TopicPartition, None] = Results()

    async def ask() -> ElectLeadersResponse:
        request = rpc.elect_leaders(
            election_type=int(kind),
            topic_partitions=None
            if wanted is None
            else [{"topic": topic, "partitions": each} for topic, each in wanted.items()],
            timeout_ms=cluster.config.request_timeout_ms,
        )
        response = await cluster.call_controller(request)
        raise_for(response.error_code)
        return response

    response = await cluster.retrying(ask, what="electing leaders")
    for topic in response.replica_election_results:
        for entry in topic.partition_result:
            key = TopicPartition(topic.topic, entry.partition_id)
            if entry.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                results[key] = None
            else:
                results.errors[key] = error_for(
                    entry.error_code, entry.error_message, topic=key.topic, partition=key.partition
                )
    return results
