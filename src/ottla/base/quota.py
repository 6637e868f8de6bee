"""Client quotas: the entities that have them, and their keys (KIP-13, 124, 546, 599, 612)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

DEFAULT = ""
"""Name of the default entity, whose quota applies to entities without one of their own."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"


class QuotaEntity(NamedTuple):
    """A user, a client ID, both, or an IP address. A part that is None does not belong to it."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The names by entity type, in Kafka's order."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return {kind: name for kind, name in named if name is not None}

    @classmethod
    def of(cls, parts: dict[str, str]) -> QuotaEntity:
        """Return the entity with these names by entity type."""
        return cls(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))


class QuotaKey(StrEnum):
    """The resource that a quota limits."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"

    @property
    def is_integral(self) -> bool:
        """Whether the value must be a whole number."""
        return self not in (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)


CLIENT_KEYS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
"""The keys of users and client IDs."""
IP_KEYS = (QuotaKey.CONNECTION_CREATION_RATE,)
"""The keys of IP addresses."""
