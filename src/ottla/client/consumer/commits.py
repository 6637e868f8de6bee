"""Committed offsets of a group (OffsetFetch, OffsetCommit).

Versions with topic IDs (10 and later) are not used: users pass names, which all brokers accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import LOST_COORDINATOR, Cluster, CoordinatorType
from ottla.client.consumer.offsets import by_topic
from ottla.client.consumer.record import GroupMetadata, OffsetAndMetadata
from ottla.client.errors import ClientError, CommitFailed, error_for
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import (
        OffsetCommitRequestPartitionDict,
        OffsetCommitRequestTopicDict,
    )
    from ottla.wire.messages.offset_fetch import (
        OffsetFetchRequestTopicsDict,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )

T = TypeVar("T")

MAX_VERSION = 9
_MOVED_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class _StaleEpoch(ClientError):
    """The member's epoch was bumped; the member learns the new one with its next heartbeat."""

    @property
    def retriable(self) -> bool:
        return True


class GroupOffsets:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: int | None = None,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets. Partitions without one are omitted."""
        topics = by_topic(partitions)
        if not topics:
            return {}
        requested: list[OffsetFetchRequestTopicsDict] = [
            {"name": name, "partition_indexes": indexes} for name, indexes in topics
        ]
        request = rpc.offset_fetch(
            group_id=self._group_id,
            topics=requested,
            groups=[{"group_id": self._group_id, "topics": requested}],
            require_stable=require_stable,
        )
        return await self._cluster.retrying(
            lambda: self._fetch_once(request),
            timeout_ms=timeout_ms,
            what=f"fetching the committed offsets of group {self._group_id}",
        )

    async def _fetch_once(
        self, request: Request[OffsetFetchResponse]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        response = await self._call(request)
        group: OffsetFetchResponse | OffsetFetchResponseGroup = (
            response.groups[0] if response.groups else response
        )
        self._raise(group.error_code)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in group.topics:
            for partition in topic.partitions:
                self._raise(partition.error_code, topic.name, partition.partition_index)
                if partition.committed_offset >= 0:
                    found[TopicPartition(topic.name, partition.partition_index)] = (
                        OffsetAndMetadata(
                            partition.committed_offset,
                            partition.metadata or "",
                            partition.committed_leader_epoch,
                        )
                    )
        return found

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: Callable[[], GroupMetadata],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets.

        Args:
            offsets: Offsets to commit.
            member: Returns the member's identity. It is called before each attempt, because the
                member epoch may change.
            timeout_ms: Time limit; `default.api.timeout.ms` by default.

        Raises:
            CommitFailed: The group has rebalanced without this member.
        """
        if not offsets:
            return
        topics: list[OffsetCommitRequestTopicDict] = [
            {
                "name": topic,
                "partitions": [
                    _committed(partition, offsets[TopicPartition(topic, partition)])
                    for partition in partitions
                ],
            }
            for topic, partitions in by_topic(offsets)
        ]
        await self._cluster.retrying(
            lambda: self._commit_once(topics, member()),
            timeout_ms=timeout_ms,
            what=f"committing offsets of group {self._group_id}",
        )

    async def _commit_once(
        self, topics: list[OffsetCommitRequestTopicDict], member: GroupMetadata
    ) -> None:
        request = rpc.offset_commit(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            retention_time_ms=-1,
            topics=topics,
        )
        response = await self._call(request)
        for topic in response.topics:
            for partition in topic.partitions:
                self._raise(partition.error_code, topic.name, partition.partition_index)

    async def _call(self, request: Request[T]) -> T:
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP, self._group_id, request, max_version=MAX_VERSION
        )

    def _raise(self, code: int, topic: str | None = None, partition: int | None = None) -> None:
        if not code:
            return
        if code in LOST_COORDINATOR:
            self._cluster.forget_coordinator(CoordinatorType.GROUP, self._group_id)
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            raise _StaleEpoch(
                f"the member epoch in group {self._group_id} has changed", code=ErrorCode(code)
            )
        if code in _MOVED_ON:
            raise CommitFailed(
                f"group {self._group_id} has rebalanced ({ErrorCode(code).name}); "
                "this member no longer owns the partitions",
                code=ErrorCode(code), topic=topic, partition=partition,
            )  # fmt: skip
        raise error_for(code, topic=topic, partition=partition)


def _committed(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartitionDict:
    return {
        "partition_index": partition,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "committed_metadata": offset.metadata,
    }
