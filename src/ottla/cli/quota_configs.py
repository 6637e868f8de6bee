"""Quotas and SCRAM credentials of `kafka-configs`: users, clients and IP addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.cli.config_entities import Entity
from ottla.cli.output import Output

if TYPE_CHECKING:
    from ottla.client.admin import Admin, QuotaEntity, ScramMechanism

KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_CREDENTIAL = re.compile(r"(?:iterations=(\d+),)?password=(.+)")


def describe(admin: Admin, entities: Sequence[Entity], output: Output) -> None:
    parts = [(KINDS[each.type], each.name) for each in entities]
    quotas = _require_support(lambda: admin.describe_client_quotas(*parts))
    users: dict[str, Any] = {}
    first = entities[0]
    if len(entities) == 1 and first.type == "users" and first.name != "":
        names = None if first.name is None else [first.name]
        users = _require_support(lambda: admin.describe_scram_users(names))
    output.show(
        {
            "quotas": [
                {"entity": dict(entity.parts), "quotas": values}
                for entity, values in quotas.items()
            ],
            "scram_users": {
                user: {each.mechanism.text: each.iterations for each in credentials}
                for user, credentials in users.items()
            },
        },
        lambda: [
            *(f"Quota configs for {_describe_entity(entity)} are {_pairs(values)}"
              for entity, values in quotas.items()),
            *(
                f"SCRAM credential configs for user-principal '{user}' are "
                + ", ".join(f"{each.mechanism.text}=iterations={each.iterations}" for each in found)
                for user, found in users.items()
            ),
        ],
    )  # fmt: skip


def alter(
    admin: Admin, entities: Sequence[Entity], changes: Mapping[str, str | None], output: Output
) -> None:
    from ottla.client.admin import QuotaEntity

    if any(each.name is None for each in entities):
        raise click.UsageError("--alter requires a name or the default for each entity.")
    first = entities[0]
    scram = {name: value for name, value in changes.items() if name in SCRAM}
    if scram and (len(scram) != len(changes) or len(entities) != 1 or first.type != "users"):
        raise click.UsageError(
            "SCRAM credentials require a single --user and cannot be combined with quotas."
        )
    if scram and first.name:
        user = first.name
        passwords = {_mechanism(name): parse_password(value) for name, value in scram.items()}
        _require_support(lambda: admin.alter_scram_user(user, passwords))
    elif scram:
        raise click.UsageError("SCRAM credentials have no default. Name the user with --user.")
    else:
        entity = QuotaEntity.ordered((KINDS[each.type], each.name or None) for each in entities)
        numbers = {name: _number(name, value) for name, value in changes.items()}
        _require_support(lambda: admin.alter_client_quotas(entity, numbers))
    whom = (
        f"config for {first.singular} {first.name}"
        if first.name
        else f"default config for {first.type} in the cluster"
    )
    output.show(
        {"entities": [[each.type, each.name] for each in entities], "changed": sorted(changes)},
        lambda: [f"Completed updating {whom}."],
    )


def parse_password(text: str | None) -> tuple[int, str] | None:
    """Parse a SCRAM credential, `iterations=8192,password=secret`, into iterations and password."""
    from ottla.client.admin import DEFAULT_SCRAM_ITERATIONS

    if text is None:
        return None
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise click.UsageError(
            "A SCRAM credential must look like [iterations=8192,password=secret]."
        )
    return int(found[1] or DEFAULT_SCRAM_ITERATIONS), found[2]


def _mechanism(name: str) -> ScramMechanism:
    from ottla.client.admin import ScramMechanism

    return ScramMechanism[name.replace("-", "_")]


def _number(name: str, value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        raise click.UsageError(f"The quota {name} must be a number, not {value!r}.") from None


def _require_support(call: Any) -> Any:
    try:
        return call()
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise UserError(
            f"The brokers do not support client quotas and SCRAM credentials ({error})."
        ) from error


def _describe_entity(entity: QuotaEntity) -> str:
    shown = []
    for kind, name in entity.parts:
        kind = SHOWN.get(kind, kind)
        shown.append(f"the default {kind}" if name is None else f"{kind} '{name}'")
    return ", ".join(shown)


def _pairs(values: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
