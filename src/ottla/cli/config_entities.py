"""What `kafka-configs` works on: `--entity-type topics --entity-name orders`, or `--topic orders`;
and the properties it is told to set."""

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
"""Option -> the type that it is short for."""
SHORT_DEFAULTS = {
    "broker_defaults": "brokers",
    "user_defaults": "users",
    "client_defaults": "clients",
    "ip_defaults": "ips",
}

_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"


@dataclass(frozen=True)
class Entity:
    type: str
    name: str | None
    """None: all of the type; "": the default of the type."""

    @property
    def singular(self) -> str:
        return self.type.removesuffix("s") if self.type != "client-metrics" else "client-metric"


def parse_entities(
    types: Iterable[str],
    named: Iterable[tuple[str, str]],
    short: Mapping[str, str | None],
    short_defaults: Mapping[str, bool],
) -> list[Entity]:
    """`named`: ("name", value) and ("default", "") in the order they were given, which is the order
    of the types that they belong to."""
    values = list(named)
    entities = []
    for position, kind in enumerate(types):
        name = values[position][1] if position < len(values) else None
        entities.append(Entity(kind, name))
    if len(values) > len(entities):
        raise click.UsageError("--entity-name and --entity-default each need an --entity-type.")
    entities += [Entity(SHORT[each], name) for each, name in short.items() if name is not None]
    entities += [
        Entity(SHORT_DEFAULTS[each], "") for each, given in short_defaults.items() if given
    ]
    _check(entities)
    return entities


def _check(entities: list[Entity]) -> None:
    if not entities:
        raise click.UsageError("Say what to configure: --topic, --broker, … or --entity-type.")
    kinds = [each.type for each in entities]
    for entity in entities:
        if entity.type not in TYPES:
            raise click.UsageError(f"--entity-type is one of {', '.join(TYPES)}.")
        if entity.name == "" and entity.type not in WITH_DEFAULTS:
            raise click.UsageError(f"There is no default for {entity.type}.")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise click.UsageError("Only users and clients can be given together.")


def parse_additions(text: str) -> dict[str, str]:
    """Of `--add-config`: `a=1,b=[x,y]`; brackets keep commas together."""
    found: dict[str, str] = {}
    for part in re.split("," + _OUTSIDE_BRACKETS, text):
        pair = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, part)
        if len(pair) != 2:
            raise click.UsageError(f"--add-config: {part!r} must look like name=value.")
        found[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    check_names(found)
    return found


def check_names(names: Iterable[str]) -> None:
    for name in names:
        if _KEY.fullmatch(name) is None:
            raise click.UsageError(f"{name!r} cannot be the name of a property.")
