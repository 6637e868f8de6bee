"""Client quotas.

    DescribeClientQuotas 0+                                              to any broker
    AlterClientQuotas 0+                                                 to the controller

Brokers of Ottla before 0.2 have no quotas: the calls raise UnsupportedVersion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.admin.dispatch import raise_for
from ottla.client.cluster import Cluster
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.alter_client_quotas import EntryDataRequestDict

_EXACTLY, _DEFAULT, _ANY = 0, 1, 2


class QuotaEntity(NamedTuple):
    """Entity to which a quota applies: a user, a client ID, an IP address, or a combination.

    The name None stands for the default, which applies to entities without a quota of their own."""

    parts: tuple[tuple[str, str | None], ...]
    """Pairs of an entity type (`user`, `client-id` or `ip`) and a name."""

    @classmethod
    def of(cls, **names: str | None) -> QuotaEntity:
        """Return an entity: `QuotaEntity.of(user="alice", client_id=None)`."""
        return cls.ordered((kind.replace("_", "-"), name) for kind, name in names.items())

    @classmethod
    def ordered(cls, parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
        """Return an entity that does not depend on the order of its parts."""
        return cls(tuple(sorted(parts, key=lambda part: (part[0] != "user", part[0]))))


async def describe_client_quotas(
    cluster: Cluster, parts: Iterable[tuple[str, str | None]], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return quotas by entity.

    Args:
        cluster: The cluster.
        parts: Entity types and names to match; "" matches the default, None any name.
        strict: Return only entities that have no other parts.
    """
    request = rpc.describe_client_quotas(
        components=[
            {
                "entity_type": kind,
                "match_type": _ANY if name is None else _EXACTLY if name else _DEFAULT,
                "match": name or None,
            }
            for kind, name in parts
        ],
        strict=strict,
    )

    async def ask() -> dict[QuotaEntity, dict[str, float]]:
        response = await cluster.call(request)
        raise_for(response.error_code, response.error_message)
        return {
            QuotaEntity.ordered((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    return await cluster.retrying(ask, what="describing quotas")


async def alter_client_quotas(
    cluster: Cluster, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> None:
    """Set quotas of an entity. The value None removes a quota."""

    async def ask() -> None:
        entry: EntryDataRequestDict = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.parts],
            "ops": [
                {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                for key, value in changes.items()
            ],
        }
        response = await cluster.call_controller(rpc.alter_client_quotas(entries=[entry]))
        for result in response.entries:
            raise_for(result.error_code, result.error_message)

    await cluster.retrying(ask, what="changing quotas")
