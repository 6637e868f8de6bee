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
        ConfigType.STRING, "all", "Acknowledgements required from replicas: all, 1 or 0.",
        OneOf(tuple(_ACKS)),
    )  # fmt: skip
    enable_idempotence: bool | None = prop(
        ConfigType.BOOLEAN, None,
        "Write each record exactly once and in order despite retries. Enabled by default unless "
        "acks, retries or max.in.flight.requests.per.connection conflict with it.",
    )  # fmt: skip
    transactional_id: str = prop(
        ConfigType.STRING,
        "",
        "Transactional ID; keep it across restarts to fence earlier instances.",
    )
    transaction_timeout_ms: int = milliseconds(
        60_000, "Maximum duration of a transaction before the coordinator aborts it.", 1
    )
    batch_size: int = prop(
        ConfigType.INT, 16_384, "Maximum size of a batch of one partition, in bytes.", AtLeast(0)
    )
    linger_ms: int = milliseconds(
        5, "Time to wait for more records before sending an incomplete batch."
    )
    buffer_memory: int = prop(
        ConfigType.LONG, 33_554_432,
        "Memory for records not sent yet, in bytes; `send` blocks when it is full.",
        Between(1, LONG_MAX),
    )  # fmt: skip
    max_block_ms: int = milliseconds(
        60_000, "Maximum time that `send` blocks for buffer memory or topic metadata."
    )
    max_request_size: int = prop(
        ConfigType.INT, 1_048_576, "Maximum size of a request, and thus of a record, in bytes.",
        Between(1, INT_MAX),
    )  # fmt: skip
    max_in_flight_requests_per_connection: int = prop(
        ConfigType.INT,
        5,
        "Maximum number of unacknowledged requests per connection.",
        Between(1, INT_MAX),
    )
    delivery_timeout_ms: int = milliseconds(
        120_000, "Maximum time for a record to be acknowledged, retries included."
    )
    retries: int = prop(
        ConfigType.INT, INT_MAX, "Maximum number of retries within delivery.timeout.ms.",
        Between(0, INT_MAX),
    )  # fmt: skip
    compression_type: str = prop(
        ConfigType.STRING, "none", "Compression codec of batches.", OneOf(compression.NAMES)
    )
    compression_gzip_level: int = prop(
        ConfigType.INT, -1, "Compression level of gzip, 1 to 9; -1 selects zlib's default."
    )
    compression_lz4_level: int = prop(
        ConfigType.INT, 9, "Compression level of lz4, 1 to 17.", Between(1, 17)
    )
    compression_zstd_level: int = prop(
        ConfigType.INT, 3, "Compression level of zstd, -131072 to 22.", Between(-131072, 22)
    )
    partitioner_ignore_keys: bool = prop(
        ConfigType.BOOLEAN, False, "Ignore record keys when choosing the partition."
    )
    partitioner_adaptive_partitioning_enable: bool = prop(
        ConfigType.BOOLEAN,
        True,
        "Prefer partitions with fewer queued records for records without a key.",
    )
    request_timeout_ms: int = milliseconds(30_000, "Maximum time to wait for a response.", 1)

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
            return self._idempotence_conflict() is None
        return self.enable_idempotence

    def check(self) -> None:
        CommonConfig.check(self)
        if self.compression_gzip_level not in (-1, *range(1, 10)):
            raise InvalidConfig(
                "compression.gzip.level must be between 1 and 9, or -1 for the default."
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidConfig(
                "delivery.timeout.ms must be at least linger.ms + request.timeout.ms "
                f"({self.linger_ms} + {self.request_timeout_ms})."
            )
        reason = self._idempotence_conflict()
        if self.enable_idempotence and reason is not None:
            raise InvalidConfig(f"enable.idempotence=true requires {reason}.")
        if self.transactional_id and (reason is not None or not self.is_idempotent):
            raise InvalidConfig(f"transactional.id requires {reason or 'enable.idempotence=true'}.")

    def _idempotence_conflict(self) -> str | None:
        if self.required_acks != ALL:
            return "acks=all"
        if self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_IDEMPOTENT:
            return f"max.in.flight.requests.per.connection <= {MAX_IN_FLIGHT_IDEMPOTENT}"
        if self.retries == 0:
            return "retries > 0"
        return None
