"""Settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.config.broker import BrokerConfig

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker configs that the transaction coordinator uses."""

    max_timeout_ms: int = 15 * MINUTE_MS
    id_expiration_ms: int = 7 * 24 * 60 * MINUTE_MS

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
        )
