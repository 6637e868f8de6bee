"""What the decisions about groups are configured with."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.config.broker import BrokerConfig

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a new member may wait for the rebalance that takes it in: until then it has no
    session, and nobody notices that its client has gone."""
    max_pending_joins: int = 10_000
    """How many members of a group may have been given an id and not have come back with it."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        )
