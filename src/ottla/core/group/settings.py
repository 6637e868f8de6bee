"""Settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.config.broker import BrokerConfig

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker configs that the group coordinator uses."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """Session timeout of a new member until its first rebalance is complete. It sends no heartbeats
    until then, so a client that has gone is noticed only after this time."""
    max_pending_joins: int = 10_000
    """Maximum number of member ids of a group that were issued and have not joined yet."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """Minimum interval between two target assignments of a consumer group."""
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The available assignors; the first one is the default."""
    can_upgrade: bool = True
    """Whether a classic group becomes a consumer group when a consumer protocol member joins."""
    can_downgrade: bool = True
    """Whether a consumer group becomes a classic group when only classic members are left."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        policy = config.group_consumer_migration_policy.lower()
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=tuple(config.group_consumer_assignors),
            can_upgrade=policy in ("upgrade", "bidirectional"),
            can_downgrade=policy in ("downgrade", "bidirectional"),
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        )
