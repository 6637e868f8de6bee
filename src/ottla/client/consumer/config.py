"""Properties of the consumer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ottla.client.config import Between, CommonConfig, ConfigType, OneOf, milliseconds, prop
from ottla.client.errors import InvalidConfig

INT_MAX = 2**31 - 1
DEFAULT_SESSION_TIMEOUT_MS = 45_000
DEFAULT_HEARTBEAT_INTERVAL_MS = 3_000
DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")

ASSIGNOR_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
}
"""Names of assignors in the protocol, by the same name or by Java's class name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(CommonConfig):
    arguments: ClassVar[tuple[str, ...]] = (
        *CommonConfig.arguments, "topics", "listener", "key_deserializer", "value_deserializer",
    )  # fmt: skip
    group_id: str = prop(ConfigType.STRING, "", "ID of the consumer group; empty for none.")
    group_instance_id: str = prop(
        ConfigType.STRING, "", "ID of a static member, which may restart without a rebalance."
    )
    group_protocol: str = prop(
        ConfigType.STRING, "auto",
        "Group protocol: consumer (KIP-848), classic, or auto to prefer consumer if supported.",
        OneOf(("auto", "classic", "consumer"), ignore_case=True),
    )  # fmt: skip
    group_remote_assignor: str = prop(
        ConfigType.STRING, "", "Assignor of the broker to use (consumer protocol)."
    )
    partition_assignment_strategy: list[str] = prop(
        ConfigType.LIST, [],
        "Assignors of the classic protocol, by name or Java class; "
        "range and cooperative-sticky if empty.",
    )  # fmt: skip
    session_timeout_ms: int = milliseconds(
        DEFAULT_SESSION_TIMEOUT_MS,
        "Time without a heartbeat until a member is removed (classic protocol).",
        1,
    )
    heartbeat_interval_ms: int = milliseconds(
        DEFAULT_HEARTBEAT_INTERVAL_MS, "Interval between heartbeats (classic protocol).", 1
    )
    max_poll_interval_ms: int = milliseconds(
        300_000, "Maximum time between polls before the member leaves its group.", 1
    )
    max_poll_records: int = prop(
        ConfigType.INT, 500, "Maximum number of records that one poll returns.", Between(1, INT_MAX)
    )
    auto_offset_reset: str = prop(
        ConfigType.STRING, "latest",
        "Start position if no offset is committed: earliest, latest or none.",
        OneOf(("earliest", "latest", "none"), ignore_case=True),
    )  # fmt: skip
    enable_auto_commit: bool = prop(
        ConfigType.BOOLEAN, True, "Commit the offsets of returned records periodically."
    )
    auto_commit_interval_ms: int = milliseconds(5_000, "Interval between automatic commits.")
    isolation_level: str = prop(
        ConfigType.STRING, "read_uncommitted",
        "Whether to return records of open and aborted transactions.",
        OneOf(("read_uncommitted", "read_committed"), ignore_case=True),
    )  # fmt: skip
    fetch_min_bytes: int = prop(
        ConfigType.INT,
        1,
        "Minimum bytes per fetch response; the broker waits for them.",
        Between(0, INT_MAX),
    )
    fetch_max_bytes: int = prop(
        ConfigType.INT, 50 * 1024 * 1024,
        "Maximum bytes per fetch response and of buffered data.", Between(0, INT_MAX),
    )  # fmt: skip
    fetch_max_wait_ms: int = milliseconds(
        500, "Maximum time that the broker waits for fetch.min.bytes."
    )
    max_partition_fetch_bytes: int = prop(
        ConfigType.INT, 1024 * 1024, "Maximum bytes per partition in a fetch response.",
        Between(0, INT_MAX),
    )  # fmt: skip
    check_crcs: bool = prop(ConfigType.BOOLEAN, True, "Verify the CRC of fetched batches.")
    allow_auto_create_topics: bool = prop(
        ConfigType.BOOLEAN, True, "Allow the broker to create subscribed topics that do not exist."
    )
    exclude_internal_topics: bool = prop(
        ConfigType.BOOLEAN, True, "Exclude internal topics from pattern subscriptions."
    )
    priority_levels: int = prop(
        ConfigType.INT, 1,
        "Number of priority levels that share a topic's partitions; higher ones come first.",
        Between(1, INT_MAX),
    )  # fmt: skip

    def check(self) -> None:
        CommonConfig.check(self)
        for name in self.partition_assignment_strategy:
            if name not in ASSIGNOR_NAMES:
                raise InvalidConfig(
                    f"Assignor {name!r} in partition.assignment.strategy does not exist. "
                    "Use range, roundrobin, sticky or cooperative-sticky."
                )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfig(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be less than "
                f"session.timeout.ms ({self.session_timeout_ms})."
            )
        if self.group_protocol.lower() == "consumer" and self.names_classic_settings:
            raise InvalidConfig(
                "partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms "
                "cannot be set with group.protocol=consumer: the broker controls them."
            )

    @property
    def names_classic_settings(self) -> bool:
        """Whether a property is set that only the classic protocol supports."""
        return bool(
            self.partition_assignment_strategy
            or self.session_timeout_ms != DEFAULT_SESSION_TIMEOUT_MS
            or self.heartbeat_interval_ms != DEFAULT_HEARTBEAT_INTERVAL_MS
        )

    @property
    def assignors(self) -> tuple[str, ...]:
        """Assignors by their names in the protocol, in order of preference."""
        names = self.partition_assignment_strategy or DEFAULT_ASSIGNORS
        return tuple(dict.fromkeys(ASSIGNOR_NAMES[name] for name in names))

    @property
    def isolation(self) -> int:
        return 1 if self.isolation_level.lower() == "read_committed" else 0
