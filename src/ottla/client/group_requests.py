"""Requests of a classic group's member, for any protocol type.

Groups that distribute something other than partitions use these directly. Each method sends one
request; the caller handles the error codes in the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.client.cluster import Cluster, CoordinatorType
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.heartbeat import HeartbeatResponse
    from ottla.wire.messages.join_group import JoinGroupResponse
    from ottla.wire.messages.leave_group import LeaveGroupResponse
    from ottla.wire.messages.sync_group import SyncGroupResponse

JoinedGroup: TypeAlias = "JoinGroupResponse"
"""Response to `GroupRequests.join`."""

T = TypeVar("T")


class GroupRequests:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id

    async def join(
        self,
        member_id: str,
        protocol_type: str,
        protocols: Mapping[str, bytes],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        timeout_ms: int,
    ) -> JoinedGroup:
        """Join the group, with the member's metadata by the name of the protocol."""
        request = rpc.join_group(
            group_id=self._group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": each} for name, each in protocols.items()],
        )
        return await self._call(request, timeout_ms)

    async def sync(
        self,
        member_id: str,
        generation: int,
        protocol_type: str,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
        *,
        timeout_ms: int,
    ) -> SyncGroupResponse:
        """Wait for the assignment; the leader sends those of all members, by member ID."""
        request = rpc.sync_group(
            group_id=self._group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                {"member_id": member, "assignment": each} for member, each in assignments.items()
            ],
        )
        return await self._call(request, timeout_ms)

    async def heartbeat(
        self, member_id: str, generation: int, *, timeout_ms: int
    ) -> HeartbeatResponse:
        request = rpc.heartbeat(
            group_id=self._group_id, generation_id=generation, member_id=member_id
        )
        return await self._call(request, timeout_ms)

    async def leave(self, member_id: str, reason: str, *, timeout_ms: int) -> LeaveGroupResponse:
        request = rpc.leave_group(
            group_id=self._group_id,
            member_id=member_id,
            members=[{"member_id": member_id, "reason": reason}],
        )
        return await self._call(request, timeout_ms)

    def forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorType.GROUP, self._group_id)

    async def _call(self, request: Request[T], timeout_ms: int) -> T:
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP, self._group_id, request, timeout_ms=timeout_ms
        )
