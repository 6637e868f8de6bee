"""Client quotas, and SCRAM credentials of users.

    DescribeClientQuotas 0+, DescribeUserScramCredentials 0+             to any broker
    AlterClientQuotas 0+, AlterUserScramCredentials 0+                   to the controller

Ottla's brokers do not support these APIs yet: the calls raise UnsupportedVersion."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.client.admin.dispatch import raise_for
from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidConfig
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.alter_client_quotas import EntryDataRequestDict
    from ottla.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertionDict

SALT_BYTES = 24
DEFAULT_SCRAM_ITERATIONS = 4096
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


class ScramMechanism(IntEnum):
    """SCRAM mechanism, with Kafka's codes."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """Name of the mechanism as Kafka writes it: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")


class ScramCredential(NamedTuple):
    """SCRAM credential of a user, without the password."""

    mechanism: ScramMechanism
    """The mechanism."""
    iterations: int
    """Number of iterations."""


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


async def describe_scram_users(
    cluster: Cluster, users: Iterable[str] | None
) -> dict[str, list[ScramCredential]]:
    """Return the credentials of users, of all if `users` is None. Unknown users are omitted."""
    request = rpc.describe_user_scram_credentials(
        users=None if users is None else [{"name": user} for user in users]
    )

    async def ask() -> dict[str, list[ScramCredential]]:
        response = await cluster.call(request)
        raise_for(response.error_code, response.error_message)
        found: dict[str, list[ScramCredential]] = {}
        for entry in response.results:
            if entry.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_for(entry.error_code, entry.error_message)
            found[entry.user] = [
                ScramCredential(_mechanism(info.mechanism), info.iterations)
                for info in entry.credential_infos
            ]
        return found

    return await cluster.retrying(ask, what="describing SCRAM users")


async def alter_scram_user(
    cluster: Cluster,
    user: str,
    passwords: Mapping[ScramMechanism, tuple[int, str] | None],
) -> None:
    """Set passwords with a number of iterations, or remove them (None). Only hashes are sent."""
    request = rpc.alter_user_scram_credentials(
        deletions=[
            {"name": user, "mechanism": int(each)}
            for each, password in passwords.items()
            if password is None
        ],
        upsertions=[
            _salted(user, each, *password)
            for each, password in passwords.items()
            if password is not None
        ],
    )

    async def ask() -> None:
        response = await cluster.call_controller(request)
        for entry in response.results:
            raise_for(entry.error_code, entry.error_message)

    await cluster.retrying(ask, what="changing SCRAM users")


def _salted(
    user: str, mechanism: ScramMechanism, iterations: int, password: str
) -> ScramCredentialUpsertionDict:
    if not password:
        raise InvalidConfig(f"The password of {user} must not be empty.")
    salt = secrets.token_bytes(SALT_BYTES)
    digest = mechanism.text.removeprefix("SCRAM-").replace("-", "").lower()
    return {
        "name": user,
        "mechanism": int(mechanism),
        "iterations": iterations,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations),
    }


def _mechanism(code: int) -> ScramMechanism:
    try:
        return ScramMechanism(code)
    except ValueError:
        return ScramMechanism.UNKNOWN
