"""SCRAM credentials of users in `kafka-configs`. Passwords never appear in output or errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from ottla.base.errors import ErrorCode, UserError
from ottla.cli.config_entities import SCRAM_EXPECTED

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ScramCredentialInfo, ScramMechanism

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_CREDENTIAL = re.compile(r"(?:iterations=(\d{1,9}),)?password=(.+)", re.DOTALL)

Credentials = Mapping[str, "list[ScramCredentialInfo]"]


def is_mechanism(name: str) -> bool:
    """Return whether a property is a SCRAM mechanism.

    Raises:
        click.UsageError: The name looks like a mechanism, but there is no such mechanism.
    """
    if name not in MECHANISMS and name.upper().startswith("SCRAM"):
        raise click.UsageError(
            f"{name} is not a SCRAM mechanism. Use one of {', '.join(MECHANISMS)}."
        )
    return name in MECHANISMS


def describe(admin: Admin, user: str | None) -> Credentials:
    """Return the credentials of a user, or of all users. A user without any is left out."""
    if user is None:
        return admin.describe_user_scram_credentials()
    found = admin.describe_user_scram_credentials(user, return_errors=True)
    for error in found.errors.values():
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise error
    return found


def as_json(credentials: Credentials) -> dict[str, dict[str, int]]:
    return {
        user: {each.mechanism.text: each.iterations for each in infos}
        for user, infos in credentials.items()
    }


def as_text(credentials: Credentials) -> Iterator[str]:
    for user, infos in credentials.items():
        shown = ", ".join(f"{each.mechanism.text}=iterations={each.iterations}" for each in infos)
        yield f"SCRAM credential configs for user-principal '{user}' are {shown}"


def alter(admin: Admin, user: str, changes: Mapping[str, str | None]) -> None:
    """Set the passwords of a user, or delete credentials (None), by the mechanism's name."""
    from ottla.client.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion

    alterations: list[UserScramCredentialUpsertion | UserScramCredentialDeletion] = []
    for name, text in changes.items():
        mechanism = _mechanism(name)
        if text is None:
            alterations.append(UserScramCredentialDeletion(user, mechanism))
        else:
            iterations, password = parse_credential(text)
            alterations.append(UserScramCredentialUpsertion(user, mechanism, password, iterations))
    failed = admin.alter_user_scram_credentials(alterations, return_errors=True).errors
    for error in failed.values():
        if error.code is ErrorCode.RESOURCE_NOT_FOUND:
            deleted = ", ".join(name for name, text in changes.items() if text is None)
            raise UserError(f"User '{user}' has no {deleted} credential that could be deleted.")
        raise error


def parse_credential(text: str) -> tuple[int, str]:
    """Parse `iterations=8192,password=secret` into iterations and password."""
    from ottla.client.admin import DEFAULT_SCRAM_ITERATIONS

    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise click.UsageError(SCRAM_EXPECTED)
    return int(found[1] or DEFAULT_SCRAM_ITERATIONS), found[2]


def _mechanism(name: str) -> ScramMechanism:
    from ottla.client.admin import ScramMechanism

    return ScramMechanism[name.replace("-", "_")]
