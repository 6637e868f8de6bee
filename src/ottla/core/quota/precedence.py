"""The quota that applies to a client, in Kafka's order of precedence.

Each key is looked up on its own, so a quota for a user's `producer_byte_rate` does not hide the
default `consumer_byte_rate`. The first entity that has the key decides, and also which clients
share the quota:

| entity | shared by |
|---|---|
| user and client ID | connections with the user and the client ID |
| user and default client ID | connections with the user and the same client ID |
| user | all connections of the user |
| default user and client ID | connections with the same user and the client ID |
| default user and default client ID | connections with the same user and the same client ID |
| default user | all connections of the same user |
| client ID | all connections with the client ID |
| default client ID | all connections with the same client ID |

An IP address has a quota of its own or the default one, for itself alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.quota import DEFAULT, IP_KEYS, QuotaEntity, QuotaKey


class Quota(NamedTuple):
    """A quota of a client."""

    key: QuotaKey
    limit: float
    owner: QuotaEntity
    """The connections that share it: a user, a client ID, both, or an address."""


class QuotaTable:
    """The quotas of all entities. It does not change; a change creates a new one."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> None:
        self._quotas = quotas
        keys = {key for values in quotas.values() for key in values}
        self.limits_clients = not keys.isdisjoint(set(QuotaKey) - set(IP_KEYS))
        """Whether any user or client ID has a quota."""
        self.limits_addresses = not keys.isdisjoint(IP_KEYS)
        """Whether any address has a quota."""

    def of_client(self, key: QuotaKey, user: str, client_id: str) -> Quota | None:
        """Return a quota of a client, or None if it is not limited.

        Args:
            key: What is limited.
            user: Name of the principal.
            client_id: The client ID, or '' if the client has none.
        """
        quotas = self._quotas
        both, of_user = QuotaEntity(user, client_id), QuotaEntity(user)
        of_id = QuotaEntity(client_id=client_id)
        for entity, owner in (
            (both, both),
            (QuotaEntity(user, DEFAULT), both),
            (of_user, of_user),
            (QuotaEntity(DEFAULT, client_id), both),
            (QuotaEntity(DEFAULT, DEFAULT), both),
            (QuotaEntity(DEFAULT), of_user),
            (of_id, of_id),
            (QuotaEntity(client_id=DEFAULT), of_id),
        ):
            values = quotas.get(entity)
            if values is not None and key in values:
                return Quota(key, values[key], owner)
        return None

    def of_address(self, key: QuotaKey, ip: str) -> Quota | None:
        """Return a quota of an address, or None if it is not limited."""
        owner = QuotaEntity(ip=ip)
        for entity in (owner, QuotaEntity(ip=DEFAULT)):
            values = self._quotas.get(entity)
            if values is not None and key in values:
                return Quota(key, values[key], owner)
        return None
