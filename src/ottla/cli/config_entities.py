"""Entities and properties on the command line of `kafka-configs`.

An entity is `--entity-type topics --entity-name orders`, or `--topic orders` for short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click

TYPES = (
    "topics",
    "brokers",
    "broker-loggers",
    "groups",
    "client-metrics",
    "users",
    "clients",
    "ips",
)
OF_QUOTAS = ("users", "clients", "ips")
WITH_DEFAULTS = ("brokers", *OF_QUOTAS)
SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "group": "groups",
    "client_metrics": "client-metrics",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
"""Entity type that each short option stands for."""
SHORT_DEFAULTS = {
    "broker_defaults": "brokers",
    "user_defaults": "users",
    "client_defaults": "clients",
    "ip_defaults": "ips",
}

SCRAM_EXPECTED = (
    "A SCRAM credential must look like SCRAM-SHA-512=[iterations=8192,password=secret]."
)
_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"


@dataclass(frozen=True)
class Entity:
    """A topic, broker, user, … whose configuration is shown or changed."""

    type: str
    name: str | None
    """Name of the entity; None for all entities of the type, "" for the default of the type."""

    @property
    def singular(self) -> str:
        return self.type.removesuffix("s") if self.type != "client-metrics" else "client-metric"


def parse_entities(
    types: Iterable[str],
    named: Iterable[tuple[str, str]],
    short: Mapping[str, str | None],
    short_defaults: Mapping[str, bool],
) -> list[Entity]:
    """Return the entities of a command line.

    Args:
        types: Values of `--entity-type`.
        named: ("name", value) for each `--entity-name` and ("default", "") for each
            `--entity-default`, in the order of the command line. Each belongs to the type at the
            same position.
        short: Values of the short options such as `--topic`.
        short_defaults: Whether each of the options such as `--broker-defaults` is given.

    Raises:
        click.UsageError: The options do not name a valid set of entities.
    """
    values = list(named)
    entities = []
    for position, kind in enumerate(types):
        name = values[position][1] if position < len(values) else None
        entities.append(Entity(kind, name))
    if len(values) > len(entities):
        raise click.UsageError("--entity-name and --entity-default each require an --entity-type.")
    entities += [Entity(SHORT[each], name) for each, name in short.items() if name is not None]
    entities += [
        Entity(SHORT_DEFAULTS[each], "") for each, is_set in short_defaults.items() if is_set
    ]
    _check(entities)
    return entities


def _check(entities: list[Entity]) -> None:
    if not entities:
        raise click.UsageError("Name an entity with --topic, --broker, … or --entity-type.")
    kinds = [each.type for each in entities]
    for entity in entities:
        if entity.type not in TYPES:
            raise click.UsageError(
                f"--entity-type {entity.type} is unknown. Use one of {', '.join(TYPES)}."
            )
        if entity.name == "" and entity.type not in WITH_DEFAULTS:
            raise click.UsageError(f"Entities of type {entity.type} have no default.")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise click.UsageError("Only a user and a client can be combined.")


def parse_additions(text: str) -> dict[str, str]:
    """Parse the value of `--add-config`, such as `a=1,b=[x,y]`. Brackets protect commas."""
    found: dict[str, str] = {}
    for part in re.split("," + _OUTSIDE_BRACKETS, text):
        pair = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, part)
        if "SCRAM" in text.upper() and (len(pair) != 2 or _KEY.fullmatch(pair[0].strip()) is None):
            # The parts may be pieces of a password, so the error does not show them.
            raise click.UsageError(f"--add-config: {SCRAM_EXPECTED}")
        if len(pair) != 2:
            raise click.UsageError(f"--add-config: {part!r} must look like name=value.")
        found[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    check_names(found)
    return found


def check_names(names: Iterable[str]) -> None:
    for name in names:
        if _KEY.fullmatch(name) is None:
            raise click.UsageError(f"{name!r} is not a valid property name.")
