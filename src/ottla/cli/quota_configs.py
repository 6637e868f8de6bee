"""Users, clients and IP addresses in `kafka-configs`: quotas, and SCRAM credentials of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.cli import scram_configs
from ottla.cli.config_entities import Entity
from ottla.cli.output import Output

if TYPE_CHECKING:
    from ottla.client.admin import Admin, QuotaEntity

KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
QUOTAS, SCRAM = "client quotas", "SCRAM credentials"

T = TypeVar("T")


def describe(admin: Admin, entities: Sequence[Entity], output: Output) -> None:
    first = entities[0]
    has_users = len(entities) == 1 and first.type == "users" and first.name != ""
    quotas = _describe_quotas(admin, entities, optional=has_users)
    users: scram_configs.Credentials = {}
    if has_users:
        users = _require_support(SCRAM, lambda: scram_configs.describe(admin, first.name))
    output.show(
        {
            "quotas": [
                {"entity": dict(entity.parts), "quotas": values}
                for entity, values in quotas.items()
            ],
            "scram_users": scram_configs.as_json(users),
        },
        lambda: [
            *(f"Quota configs for {_describe_entity(entity)} are {_pairs(values)}"
              for entity, values in quotas.items()),
            *scram_configs.as_text(users),
        ],
    )  # fmt: skip


def _describe_quotas(
    admin: Admin, entities: Sequence[Entity], *, optional: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of entities. If they are `optional`, brokers need not support quotas."""
    parts = [(KINDS[each.type], each.name) for each in entities]
    try:
        return _require_support(QUOTAS, lambda: admin.describe_client_quotas(*parts))
    except UserError:
        if not optional:
            raise
        return {}


def alter(
    admin: Admin, entities: Sequence[Entity], changes: Mapping[str, str | None], output: Output
) -> None:
    from ottla.client.admin import QuotaEntity

    if any(each.name is None for each in entities):
        raise click.UsageError("--alter requires a name or the default for each entity.")
    first = entities[0]
    scram = {name: value for name, value in changes.items() if scram_configs.is_mechanism(name)}
    if scram and (len(scram) != len(changes) or len(entities) != 1 or first.type != "users"):
        raise click.UsageError(
            "SCRAM credentials require a single --user and cannot be combined with quotas."
        )
    if scram and first.name:
        user = first.name
        _require_support(SCRAM, lambda: scram_configs.alter(admin, user, scram))
    elif scram:
        raise click.UsageError("SCRAM credentials have no default. Name the user with --user.")
    else:
        entity = QuotaEntity.ordered((KINDS[each.type], each.name or None) for each in entities)
        numbers = {name: _number(name, value) for name, value in changes.items()}
        _require_support(QUOTAS, lambda: admin.alter_client_quotas(entity, numbers))
    whom = (
        f"config for {first.singular} {first.name}"
        if first.name
        else f"default config for {first.type} in the cluster"
    )
    output.show(
        {"entities": [[each.type, each.name] for each in entities], "changed": sorted(changes)},
        lambda: [f"Completed updating {whom}."],
    )


def _number(name: str, value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        raise click.UsageError(f"The quota {name} must be a number, not {value!r}.") from None


def _require_support(what: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise UserError(f"The brokers do not support {what} ({error}).") from error


def _describe_entity(entity: QuotaEntity) -> str:
    shown = []
    for kind, name in entity.parts:
        kind = SHOWN.get(kind, kind)
        shown.append(f"the default {kind}" if name is None else f"{kind} '{name}'")
    return ", ".join(shown)


def _pairs(values: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
