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
    group_id: str = prop(ConfigType.STRING, "", "The group to be a member of; empty: none.")
    group_instance_id: str = prop(
        ConfigType.STRING, "", "A name that outlives this process: restarts cause no rebalance."
    )
    group_protocol: str = prop(
        ConfigType.STRING, "auto",
        "consumer (KIP-848), classic, or auto: consumer where the broker has it.",
        OneOf(("auto", "classic", "consumer"), ignore_case=True),
    )  # fmt: skip
    group_remote_assignor: str = prop(
        ConfigType.STRING, "", "The broker's assignor to ask for (consumer protocol)."
    )
    partition_assignment_strategy: list[str] = prop(
        ConfigType.LIST, [],
        "Assignors of the classic protocol, by name or Java's class; "
        "empty: range, cooperative-sticky.",
    )  # fmt: skip
    session_timeout_ms: int = milliseconds(
        DEFAULT_SESSION_TIMEOUT_MS, "Silent for so long, a member is out (classic protocol).", 1
    )
    heartbeat_interval_ms: int = milliseconds(
        DEFAULT_HEARTBEAT_INTERVAL_MS, "Between two signs of life (classic protocol).", 1
    )
    max_poll_interval_ms: int = milliseconds(
        300_000, "A member that does not poll for so long leaves its group.", 1
    )
    max_poll_records: int = prop(
        ConfigType.INT, 500, "The most records that one poll hands out.", Between(1, INT_MAX)
    )
    auto_offset_reset: str = prop(
        ConfigType.STRING, "latest", "Where to begin without a committed offset.",
        OneOf(("earliest", "latest", "none"), ignore_case=True),
    )  # fmt: skip
    enable_auto_commit: bool = prop(
        ConfigType.BOOLEAN, True, "Commit what was handed out, now and then, by itself."
    )
    auto_commit_interval_ms: int = milliseconds(5_000, "Between two commits of its own.")
    isolation_level: str = prop(
        ConfigType.STRING, "read_uncommitted", "Whether to read open and aborted transactions.",
        OneOf(("read_uncommitted", "read_committed"), ignore_case=True),
    )  # fmt: skip
    fetch_min_bytes: int = prop(
        ConfigType.INT, 1, "A broker waits for so much before it answers.", Between(0, INT_MAX)
    )
    fetch_max_bytes: int = prop(
        ConfigType.INT, 50 * 1024 * 1024,
        "The most that one answer holds, and that is kept for later polls.", Between(0, INT_MAX),
    )  # fmt: skip
    fetch_max_wait_ms: int = milliseconds(500, "How long a broker waits for fetch.min.bytes.")
    max_partition_fetch_bytes: int = prop(
        ConfigType.INT, 1024 * 1024, "The most that one answer holds of a partition.",
        Between(0, INT_MAX),
    )  # fmt: skip
    check_crcs: bool = prop(ConfigType.BOOLEAN, True, "Compare what was read with its checksum.")
    allow_auto_create_topics: bool = prop(
        ConfigType.BOOLEAN, True, "Subscribing to a topic may create it, if the broker allows it."
    )
    exclude_internal_topics: bool = prop(
        ConfigType.BOOLEAN, True, "A pattern does not match internal topics."
    )
    priority_levels: int = prop(
        ConfigType.INT, 1,
        "So many priorities share a topic's partitions; higher ones are handed out first.",
        Between(1, INT_MAX),
    )  # fmt: skip

    def check(self) -> None:
        CommonConfig.check(self)
        for name in self.partition_assignment_strategy:
            if name not in ASSIGNOR_NAMES:
                raise InvalidConfig(
                    f"There is no assignor {name!r} for partition.assignment.strategy; "
                    "there are range, roundrobin, sticky and cooperative-sticky."
                )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidConfig(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be less than "
                f"session.timeout.ms ({self.session_timeout_ms})."
            )
        if self.group_protocol.lower() == "consumer" and self.names_classic_settings:
            raise InvalidConfig(
                "group.protocol=consumer leaves partition.assignment.strategy, session.timeout.ms "
                "and heartbeat.interval.ms to the broker: do not set them."
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
