"""Users with SCRAM credentials.

    DescribeUserScramCredentials 0+                                      to any broker
    AlterUserScramCredentials 0+                                         to the controller

Passwords are never sent: the client sends salted passwords, from which the brokers derive keys."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.base import scram
from ottla.base.errors import ErrorCode
from ottla.client.admin.dispatch import AtBrokers, AtController, Results, dispatch, raise_for
from ottla.client.cluster import ANY_NODE, Cluster
from ottla.client.errors import ClientError, InvalidConfig, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.alter_user_scram_credentials import (
        ScramCredentialDeletionDict,
        ScramCredentialUpsertionDict,
    )
    from ottla.wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsResult,
    )

SALT_BYTES = 24
DEFAULT_SCRAM_ITERATIONS = 4096


class ScramMechanism(IntEnum):
    """SCRAM mechanism, with Kafka's codes."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """Name of the mechanism as Kafka writes it: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @classmethod
    def of_code(cls, code: int) -> ScramMechanism:
        """Return the mechanism of a code; UNKNOWN for one that this version does not know."""
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class ScramCredentialInfo(NamedTuple):
    """SCRAM credential of a user, without salt and keys."""

    mechanism: ScramMechanism
    """The mechanism."""
    iterations: int
    """Number of iterations."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Password of a user to set for one mechanism. The representation does not contain it."""

    user: str
    """Name of the user."""
    mechanism: ScramMechanism
    """The mechanism."""
    password: str = field(repr=False)
    """The password."""
    iterations: int = DEFAULT_SCRAM_ITERATIONS
    """Number of iterations, from 4096 to 16384. More make stolen credentials harder to crack."""
    salt: bytes | None = field(default=None, repr=False)
    """The salt; None generates a random one."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Credential of a user to delete."""

    user: str
    """Name of the user."""
    mechanism: ScramMechanism
    """The mechanism."""


UserScramCredentialAlteration: TypeAlias = (
    UserScramCredentialUpsertion | UserScramCredentialDeletion
)


async def describe_user_scram_credentials(
    cluster: Cluster, users: Iterable[str]
) -> Results[str, list[ScramCredentialInfo]]:
    """Return the credentials of users, of all users if none are given."""
    wanted = list(users)
    if not wanted:
        return await cluster.retrying(lambda: _describe_all(cluster), what="describing users")

    async def ask(
        node: int, users: list[str]
    ) -> dict[str, list[ScramCredentialInfo] | ClientError]:
        named = rpc.describe_user_scram_credentials(users=[{"name": user} for user in users])
        response = await cluster.call(named, node=node)
        raise_for(response.error_code, response.error_message)
        return {
            each.user: error_for(each.error_code, each.error_message)
            if each.error_code
            else _infos(each)
            for each in response.results
        }

    lookup: AtBrokers[str] = AtBrokers(cluster, lambda user: ANY_NODE)
    return await dispatch(lookup, wanted, ask, what="describing users")


async def _describe_all(cluster: Cluster) -> Results[str, list[ScramCredentialInfo]]:
    response = await cluster.call(rpc.describe_user_scram_credentials(users=None))
    raise_for(response.error_code, response.error_message)
    results: Results[str, list[ScramCredentialInfo]] = Results()
    for each in response.results:
        raise_for(each.error_code, each.error_message)
        results[each.user] = _infos(each)
    return results


def _infos(result: DescribeUserScramCredentialsResult) -> list[ScramCredentialInfo]:
    return [
        ScramCredentialInfo(ScramMechanism.of_code(info.mechanism), info.iterations)
        for info in result.credential_infos
    ]


async def alter_user_scram_credentials(
    cluster: Cluster, alterations: Sequence[UserScramCredentialAlteration]
) -> Results[str, None]:
    """Set and delete credentials. Those of one user are altered together or not at all."""
    of_users: dict[str, list[UserScramCredentialAlteration]] = {}
    for each in alterations:
        of_users.setdefault(each.user, []).append(each)
    salted = await asyncio.to_thread(_salted_all, of_users)

    async def ask(node: int, users: list[str]) -> dict[str, ClientError | None]:
        request = rpc.alter_user_scram_credentials(
            deletions=[
                _deletion(each)
                for user in users
                for each in of_users[user]
                if isinstance(each, UserScramCredentialDeletion)
            ],
            upsertions=[each for user in users for each in salted[user]],
        )
        response = await cluster.call(request, node=node)
        return {
            each.user: error_for(each.error_code, each.error_message) if each.error_code else None
            for each in response.results
        }

    return await dispatch(AtController(cluster), of_users, ask, what="changing users")


def _deletion(deletion: UserScramCredentialDeletion) -> ScramCredentialDeletionDict:
    return {"name": deletion.user, "mechanism": int(deletion.mechanism)}


def _salted_all(
    of_users: Mapping[str, Sequence[UserScramCredentialAlteration]],
) -> dict[str, list[ScramCredentialUpsertionDict]]:
    """Salt all passwords, which takes milliseconds for each."""
    return {
        user: [_salted(each) for each in of_user if isinstance(each, UserScramCredentialUpsertion)]
        for user, of_user in of_users.items()
    }


def _salted(new: UserScramCredentialUpsertion) -> ScramCredentialUpsertionDict:
    if not new.password:
        raise InvalidConfig(f"The password of {new.user} must not be empty.")
    if not scram.MIN_ITERATIONS <= new.iterations <= scram.MAX_ITERATIONS:
        raise ClientError(
            f"The number of iterations must be between {scram.MIN_ITERATIONS} and "
            f"{scram.MAX_ITERATIONS}, not {new.iterations}.",
            code=ErrorCode.UNACCEPTABLE_CREDENTIAL,
        )
    if new.mechanism is ScramMechanism.UNKNOWN:
        raise ClientError(
            f"The mechanism of a credential of {new.user} is unknown.",
            code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    salt = secrets.token_bytes(SALT_BYTES) if new.salt is None else new.salt
    mechanism = scram.ScramMechanism(int(new.mechanism))
    return {
        "name": new.user,
        "mechanism": int(new.mechanism),
        "iterations": new.iterations,
        "salt": salt,
        "salted_password": scram.salt_password(mechanism, new.password, salt, new.iterations),
    }
