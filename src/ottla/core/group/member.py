"""A member of a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.coordinator import Token
from ottla.core.group.events import Protocols
from ottla.core.group.records import MemberMetadata

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupResponseDict
    from ottla.wire.messages.sync_group import SyncGroupResponseDict


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: Token[JoinGroupResponseDict] | None = None
        """A delayed JoinGroup, to be answered when the rebalance is complete."""
        self.sync_token: Token[SyncGroupResponseDict] | None = None
        """A delayed SyncGroup, to be answered when the leader has assigned."""
        self.is_new = False
        """Whether the member is in its first rebalance; its session can then expire even while its
        JoinGroup is delayed."""

    @classmethod
    def recorded(cls, member: MemberMetadata, protocol_name: str | None) -> ClassicMember:
        return cls(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            ((protocol_name or "", member.subscription),),
            member.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_known_alive(self) -> bool:
        """Whether a request of the member is delayed, so that no heartbeats are expected."""
        if self.is_new:
            return False
        return self.join_token is not None or self.sync_token is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol_name), b"")
