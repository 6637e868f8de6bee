"""Requests of a classic group's member, for any protocol type.

Groups that distribute something other than partitions use these directly. Each method sends one
request; the caller handles the error codes in the response."""

from __future__ import annotations

from typing import Any

from ottla.client.cluster import Cluster, CoordinatorType
from ottla.wire.api import Api


class GroupRequests:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id

    async def join(self, body: dict[str, Any], *, timeout_ms: int) -> Any:
        return await self._call(Api.JOIN_GROUP, body, timeout_ms)

    async def sync(self, body: dict[str, Any], *, timeout_ms: int) -> Any:
        return await self._call(Api.SYNC_GROUP, body, timeout_ms)

    async def heartbeat(self, member_id: str, generation: int, *, timeout_ms: int) -> Any:
        body = {"generation_id": generation, "member_id": member_id}
        return await self._call(Api.HEARTBEAT, body, timeout_ms)

    async def leave(self, member_id: str, reason: str, *, timeout_ms: int) -> Any:
        member = {"member_id": member_id, "reason": reason}
        return await self._call(
            Api.LEAVE_GROUP, {"member_id": member_id, "members": [member]}, timeout_ms
        )

    def forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorType.GROUP, self._group_id)

    async def _call(self, api: Api, body: dict[str, Any], timeout_ms: int) -> Any:
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP,
            self._group_id,
            api,
            {"group_id": self._group_id, **body},
            timeout_ms=timeout_ms,
        )
