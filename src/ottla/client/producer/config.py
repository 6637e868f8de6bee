"""Properties of the producer, with Kafka's names and defaults."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ottla.base.config.definition import INT_MAX, LONG_MAX
from ottla.client.config import (
    AtLeast,
    Between,
    CommonConfig,
    ConfigType,
    OneOf,
    milliseconds,
    prop,
)
from ottla.client.errors import InvalidConfig
from ottla.wire.records import compression

ALL = -1
MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Number of batches per producer that brokers remember. With more in flight, a retried batch might
not be recognized as a duplicate."""

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(CommonConfig):
    arguments: ClassVar[tuple[str, ...]] = (
        *CommonConfig.arguments, "key_serializer", "value_serializer", "partitioner",
    )  # fmt: skip
    acks: str = prop(
        ConfigType.STRING, "all", "Who must have a record before it counts: all, 1 or 0.",
        OneOf(tuple(_ACKS)),
    )  # fmt: skip
    enable_idempotence: bool | None = prop(
        ConfigType.BOOLEAN, None,
        "Retries never write a record twice, nor out of order. On unless acks, retries or "
        "max.in.flight.requests.per.connection exclude it.",
    )  # fmt: skip
    transactional_id: str = prop(
        ConfigType.STRING, "", "The name under which transactions go on after a restart."
    )
    transaction_timeout_ms: int = milliseconds(
        60_000, "A transaction open for longer is aborted by the broker.", 1
    )
    batch_size: int = prop(
        ConfigType.INT, 16_384, "Bytes of records that go together, per partition.", AtLeast(0)
    )
    linger_ms: int = milliseconds(5, "How long a batch that is not full waits for more.")
    buffer_memory: int = prop(
        ConfigType.LONG, 33_554_432, "Bytes of records that may wait; then `send` waits.",
        Between(1, LONG_MAX),
    )  # fmt: skip
    max_block_ms: int = milliseconds(
        60_000, "How long `send` may wait for memory or for a topic to be known."
    )
    max_request_size: int = prop(
        ConfigType.INT, 1_048_576, "The largest request, and so record.", Between(1, INT_MAX)
    )  # fmt: skip
    max_in_flight_requests_per_connection: int = prop(
        ConfigType.INT, 5, "Requests that wait for an answer at a time.", Between(1, INT_MAX)
    )
    delivery_timeout_ms: int = milliseconds(
        120_000, "After so long a record that is not acknowledged has failed."
    )
    retries: int = prop(
        ConfigType.INT, INT_MAX, "Attempts after the first, within delivery.timeout.ms.",
        Between(0, INT_MAX),
    )  # fmt: skip
    compression_type: str = prop(
        ConfigType.STRING, "none", "How batches are compressed.", OneOf(compression.NAMES)
    )
    compression_gzip_level: int = prop(ConfigType.INT, -1, "1 to 9; -1 is the default.")
    compression_lz4_level: int = prop(ConfigType.INT, 9, "1 to 17.", Between(1, 17))
    compression_zstd_level: int = prop(ConfigType.INT, 3, "-131072 to 22.", Between(-131072, 22))
    partitioner_ignore_keys: bool = prop(
        ConfigType.BOOLEAN, False, "Treat records with keys as if they had none."
    )
    partitioner_adaptive_partitioning_enable: bool = prop(
        ConfigType.BOOLEAN, True, "Records without keys go rather where fewer wait."
    )
    request_timeout_ms: int = milliseconds(30_000, "How long to wait for an answer.", 1)

    @property
    def required_acks(self) -> int:
        return _ACKS[self.acks]

    @property
    def compression_codec(self) -> int:
        return compression.codec_id(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is None:
            return self._why_not_idempotent() is None
        return self.enable_idempotence

    def check(self) -> None:
        CommonConfig.check(self)
        if self.compression_gzip_level not in (-1, *range(1, 10)):
            raise InvalidConfig("compression.gzip.level must be 1 to 9, or -1 for the default.")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidConfig(
                "delivery.timeout.ms must be at least linger.ms + request.timeout.ms "
                f"({self.linger_ms} + {self.request_timeout_ms})."
            )
        reason = self._why_not_idempotent()
        if self.enable_idempotence and reason is not None:
            raise InvalidConfig(f"enable.idempotence=true needs {reason}.")
        if self.transactional_id and (reason is not None or not self.is_idempotent):
            raise InvalidConfig(f"transactional.id needs {reason or 'enable.idempotence=true'}.")

    def _why_not_idempotent(self) -> str | None:
        if self.required_acks != ALL:
            return "acks=all"
        if self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_IDEMPOTENT:
            return f"max.in.flight.requests.per.connection of at most {MAX_IN_FLIGHT_IDEMPOTENT}"
        if self.retries == 0:
            return "retries"
        return None
