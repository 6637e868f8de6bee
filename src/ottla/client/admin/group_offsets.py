"""Committed offsets of groups: list, alter, delete, and the lag.

    OffsetFetch 1+ (several groups at once: 8+), OffsetCommit 2+, OffsetDelete 0+, to the
    coordinators

Versions that identify topics by ID are not used, because offsets may outlive their topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.base import notebook
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.admin.dispatch import AtCoordinators, Listing, Results, dispatch
from ottla.client.admin.partitions import IsolationLevel, OffsetSpec, list_offsets
from ottla.client.cluster import Cluster, CoordinatorType
from ottla.client.consumer.record import OffsetAndMetadata
from ottla.client.errors import ClientError, UnsupportedVersion, error_for
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import (
        OffsetCommitRequestPartitionDict,
        OffsetCommitResponse,
    )
    from ottla.wire.messages.offset_delete import OffsetDeleteResponse
    from ottla.wire.messages.offset_fetch import (
        OffsetFetchRequestTopicsDict,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )

BY_NAME_MAX_VERSION = 9
"""Last version of OffsetFetch and OffsetCommit that identifies topics by name."""


Committed = dict[TopicPartition, OffsetAndMetadata]


class PartitionLag(NamedTuple):
    """Lag of a group in one partition."""

    committed_offset: int
    """Offset that the group has committed."""
    end_offset: int | None
    """High watermark, or None if the partition no longer exists or has no leader."""

    @property
    def lag(self) -> int | None:
        """Number of offsets between the committed offset and the end, or None if unknown."""
        if self.end_offset is None:
            return None
        return max(self.end_offset - self.committed_offset, 0)


class GroupLag(Listing[TopicPartition, PartitionLag]):
    """Lag of a group, by partition."""

    @property
    def total(self) -> int:
        """Total lag of all partitions whose end is known."""
        return sum(each.lag or 0 for each in self.values())

    def __str__(self) -> str:
        return f"{self.total:,}"

    def _repr_html_(self) -> str:
        rows = [
            (*key, each.committed_offset, each.end_offset, each.lag) for key, each in self.items()
        ]
        headings = ("topic", "partition", "committed offset", "end offset", "lag")
        return notebook.table(headings, rows, caption=f"Total lag {self.total:,}")


async def list_group_offsets(
    cluster: Cluster,
    wanted: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool,
) -> Results[str, Committed]:
    """Return the committed offsets of groups; None in place of partitions means all."""
    topics = {
        group: None if partitions is None else partitions_by_topic(partitions)
        for group, partitions in wanted.items()
    }

    async def ask(node: int, groups: list[str]) -> dict[str, Committed | ClientError]:
        request = rpc.offset_fetch(
            groups=[{"group_id": each, "topics": _topics(topics[each])} for each in groups],
            require_stable=require_stable,
        )
        try:
            response = await cluster.call(
                request, node=node, min_version=8, max_version=BY_NAME_MAX_VERSION
            )
        except UnsupportedVersion:  # before Kafka 3.0
            return {each: await ask_about_one(node, each) for each in groups}
        return {group.group_id: _committed(group) for group in response.groups}

    async def ask_about_one(node: int, group: str) -> Committed | ClientError:
        request = rpc.offset_fetch(
            group_id=group, topics=_topics(topics[group]), require_stable=require_stable
        )
        response = await cluster.call(
            request,
            node=node,
            min_version=7 if require_stable else 2,
            max_version=BY_NAME_MAX_VERSION,
        )
        return _committed(response)

    lookup = AtCoordinators(cluster, CoordinatorType.GROUP)
    return await dispatch(lookup, topics, ask, what="listing groups' offsets")


def _topics(
    partitions: Mapping[str, list[int]] | None,
) -> list[OffsetFetchRequestTopicsDict] | None:
    if partitions is None:
        return None
    return [{"name": name, "partition_indexes": each} for name, each in partitions.items()]


def _committed(entry: OffsetFetchResponse | OffsetFetchResponseGroup) -> Committed | ClientError:
    if entry.error_code:
        return error_for(entry.error_code)
    found: Committed = {}
    for topic in entry.topics:
        for each in topic.partitions:
            if each.error_code:
                return error_for(each.error_code, topic=topic.name, partition=each.partition_index)
            if each.committed_offset >= 0:
                key = TopicPartition(topic.name, each.partition_index)
                found[key] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return dict(sorted(found.items()))


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Results[TopicPartition, None]:
    """Set the committed offsets of a group, which must have no members."""
    topics: dict[str, list[OffsetCommitRequestPartitionDict]] = {}
    for (topic, partition), committed in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            }
        )
    request = rpc.offset_commit(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": name, "partitions": each} for name, each in topics.items()],
    )
    response = await _change(cluster, group_id, request, max_version=BY_NAME_MAX_VERSION)
    return _results(response)


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> Results[TopicPartition, None]:
    """Delete committed offsets of topics to which no member of the group subscribes."""
    request = rpc.offset_delete(
        group_id=group_id,
        topics=[
            {"name": topic, "partitions": [{"partition_index": each} for each in indexes]}
            for topic, indexes in partitions_by_topic(partitions).items()
        ],
    )
    return _results(await _change(cluster, group_id, request))


ChangeT = TypeVar("ChangeT", "OffsetCommitResponse", "OffsetDeleteResponse")


async def _change(
    cluster: Cluster, group_id: str, request: Request[ChangeT], max_version: int | None = None
) -> ChangeT:
    async def ask(node: int, keys: list[str]) -> dict[str, ChangeT | ClientError]:
        response = await cluster.call(request, node=node, max_version=max_version)
        return {group_id: _group_failure(response) or response}

    lookup = AtCoordinators(cluster, CoordinatorType.GROUP)
    responses = await dispatch(lookup, [group_id], ask, what=f"changing offsets of {group_id}")
    return responses.checked(False)[group_id]


def _results(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> Results[TopicPartition, None]:
    results: Results[TopicPartition, None] = Results()
    for topic in response.topics:
        for entry in topic.partitions:
            key = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                results.errors[key] = error_for(
                    entry.error_code, topic=key.topic, partition=key.partition
                )
            else:
                results[key] = None
    return results


_OF_THE_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Codes that OffsetCommit reports for each partition, but that concern the whole group."""


def _group_failure(response: OffsetCommitResponse | OffsetDeleteResponse) -> ClientError | None:
    code: int = getattr(response, "error_code", 0)  # OffsetCommit has none
    if code:
        return error_for(code)
    for code in (entry.error_code for topic in response.topics for entry in topic.partitions):
        if code in _OF_THE_GROUP:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                return error_for(
                    code, "the group has active members, which commit its offsets; stop them first"
                )
            return error_for(code)
    return None


async def list_group_lag(cluster: Cluster, group_ids: Iterable[str]) -> Results[str, GroupLag]:
    """Return the lag of groups: their committed offsets compared with the ends of partitions."""
    committed = await list_group_offsets(
        cluster, dict.fromkeys(group_ids), require_stable=False
    )  # fmt: skip
    wanted = {key for offsets in committed.values() for key in offsets}
    ends = await list_offsets(
        cluster,
        dict.fromkeys(sorted(wanted), OffsetSpec.LATEST),
        IsolationLevel.READ_UNCOMMITTED,
    )
    results: Results[str, GroupLag] = Results()
    results.errors.update(committed.errors)
    for group_id, offsets in committed.items():
        results[group_id] = GroupLag(
            (key, PartitionLag(each.offset, ends[key].offset if key in ends else None))
            for key, each in sorted(offsets.items())
        )
    return results
