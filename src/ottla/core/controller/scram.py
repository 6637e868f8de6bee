"""Validation of changes of SCRAM credentials (KIP-554).

The changes of each user are accepted or rejected as a whole.

| condition | error |
|---|---|
| the name is empty or ANONYMOUS, or the name or the salt is too long | UNACCEPTABLE_CREDENTIAL |
| the number of iterations is not between 4096 and 16384 | UNACCEPTABLE_CREDENTIAL |
| the mechanism is unknown | UNSUPPORTED_SASL_MECHANISM |
| a credential to delete does not exist | RESOURCE_NOT_FOUND |
| a user and mechanism are altered twice in the request | DUPLICATE_RESOURCE |
| the request alters more than 1000 credentials | POLICY_VIOLATION, for every user |

Error messages never contain salts or keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import ANONYMOUS
from ottla.base.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    derive_credential,
)

MAX_ALTERATIONS = 1000
MAX_NAME_BYTES = 512
MAX_SALT_BYTES = 256
"""Limits that Kafka does not have. All changes of a request are one transaction, whose size is
limited by ZooKeeper."""

Credentials = Mapping[ScramMechanism, ScramCredential]


class ScramDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int
    """Kafka's code of the mechanism, which may be unknown."""


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential to create or replace. The representation contains no secrets."""

    user: str
    mechanism: int
    """Kafka's code of the mechanism, which may be unknown."""
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScramDecision:
    """The new credentials of a user, or the error that prevents the change."""

    user: str
    credentials: Credentials | None = None
    """All credentials of the user after the change."""
    error: KafkaError | None = None


def decide_alter_scram(
    current: Mapping[str, Credentials],
    deletions: Sequence[ScramDeletion],
    upsertions: Sequence[ScramUpsertion],
) -> list[ScramDecision]:
    """Validate changes of SCRAM credentials and compute the resulting ones.

    Args:
        current: The credentials of each user.
        deletions: The credentials to delete.
        upsertions: The credentials to create or replace.

    Returns:
        One decision per user, in the order in which the request names them.
    """
    changes = _by_user([*deletions, *upsertions])
    if len(deletions) + len(upsertions) > MAX_ALTERATIONS:
        error = KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"A request can alter at most {MAX_ALTERATIONS} credentials.",
        )
        return [ScramDecision(user, error=error) for user in changes]
    decisions = []
    for user, of_user in changes.items():
        try:
            credentials = _altered(user, current.get(user, {}), of_user)
        except KafkaError as error:
            decisions.append(ScramDecision(user, error=error))
        else:
            decisions.append(ScramDecision(user, credentials))
    return decisions


def _by_user(
    changes: Iterable[ScramDeletion | ScramUpsertion],
) -> dict[str, list[ScramDeletion | ScramUpsertion]]:
    found: dict[str, list[ScramDeletion | ScramUpsertion]] = {}
    for change in changes:
        found.setdefault(change.user, []).append(change)
    return found


def _altered(
    user: str, current: Credentials, changes: Sequence[ScramDeletion | ScramUpsertion]
) -> Credentials:
    if not user:
        raise _unacceptable("The name of a user must not be empty.")
    if user == ANONYMOUS.name:
        raise _unacceptable(f"{user} is the name of clients without authentication.")
    if len(user.encode()) > MAX_NAME_BYTES:
        raise _unacceptable(f"The name of a user must not exceed {MAX_NAME_BYTES} bytes.")
    counts = Counter(each.mechanism for each in changes)
    credentials = dict(current)
    for change in changes:
        mechanism = _mechanism(change.mechanism)
        if counts[change.mechanism] > 1:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request.",
            )
        if isinstance(change, ScramUpsertion):
            credentials[mechanism] = _derived(mechanism, change)
        elif credentials.pop(mechanism, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"User '{user}' has no {mechanism.sasl_name} credential.",
            )
    return credentials


def _mechanism(code: int) -> ScramMechanism:
    try:
        return ScramMechanism(code)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SCRAM mechanism {code} is unknown."
        ) from None


def _derived(mechanism: ScramMechanism, change: ScramUpsertion) -> ScramCredential:
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        raise _unacceptable(
            f"The number of iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, not "
            f"{change.iterations}."
        )
    if len(change.salt) > MAX_SALT_BYTES:
        raise _unacceptable(f"The salt must not exceed {MAX_SALT_BYTES} bytes.")
    return derive_credential(mechanism, change.salted_password, change.salt, change.iterations)


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
