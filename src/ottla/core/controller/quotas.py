"""Validation of changes of client quotas, and the filters that describe them (KIP-546, KIP-612).

The changes of each entity are accepted or rejected as a whole. Errors are INVALID_REQUEST:

- An entity without parts, with an unknown type or twice the same type, or with an empty name; an IP
  address together with a user or a client ID, or one that is not an address.
- A key that the entity cannot have, unless it is removed, or that is named twice.
- A value that is not greater than 0, is not finite or too large, or has a fraction although the key
  requires a whole number.

Deviations from Kafka
- Host names of IP entities are not resolved. Kafka accepts them, and limits only the address that
  they had when the quota was set.
- Limits on the length of names, and on the number of entities in a request (POLICY_VIOLATION).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import isfinite
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.quota import (
    CLIENT_ID,
    CLIENT_KEYS,
    DEFAULT,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    QuotaKey,
)

MAX_ALTERATIONS = 1000
MAX_NAME_BYTES = 512
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

Quotas = Mapping[QuotaEntity, Mapping[QuotaKey, float]]


class QuotaChange(NamedTuple):
    """A change of one quota."""

    key: str
    value: float | None
    """None removes the quota."""


class QuotaAlteration(NamedTuple):
    """Changes of the quotas of one entity, as a client sends them."""

    parts: Sequence[tuple[str, str | None]]
    """Types and names of the entity; the name None stands for the default."""
    changes: Sequence[QuotaChange]


class QuotaDecision(NamedTuple):
    """The new quotas of an entity, or the error that prevents the change."""

    alteration: QuotaAlteration
    entity: QuotaEntity | None = None
    values: Mapping[QuotaKey, float] | None = None
    """All quotas of the entity after the change."""
    error: KafkaError | None = None


def decide_alter_quotas(
    current: Quotas, alterations: Sequence[QuotaAlteration]
) -> list[QuotaDecision]:
    """Validate changes of quotas and compute the resulting ones.

    Args:
        current: The quotas of all entities.
        alterations: The changes. Later ones see the effect of earlier ones.

    Returns:
        One decision per alteration.
    """
    if len(alterations) > MAX_ALTERATIONS:
        error = KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"A request can alter the quotas of at most {MAX_ALTERATIONS} entities.",
        )
        return [QuotaDecision(each, error=error) for each in alterations]
    decisions = []
    altered: dict[QuotaEntity, Mapping[QuotaKey, float]] = {}
    for each in alterations:
        try:
            entity = _entity(each.parts)
            before = altered.get(entity, current.get(entity, {}))
            values = altered[entity] = _altered(entity, before, each.changes)
        except KafkaError as error:
            decisions.append(QuotaDecision(each, error=error))
        else:
            decisions.append(QuotaDecision(each, entity, values))
    return decisions


def _entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    if not parts:
        raise _invalid("Invalid empty client quota entity.")
    found: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}.")
        if kind in found:
            raise _invalid(f"The entity type {kind} cannot appear more than once in an entity.")
        if name == "":
            raise _invalid(f"Empty {kind} not supported.")
        if name is not None and len(name.encode()) > MAX_NAME_BYTES:
            raise _invalid(f"The name of a {kind} must not exceed {MAX_NAME_BYTES} bytes.")
        found[kind] = DEFAULT if name is None else name
    address = found.get(IP)
    if address is not None and len(found) > 1:
        raise _invalid("An IP address cannot be combined with a user or a client ID.")
    if address:
        found[IP] = _canonical_address(address)
    return QuotaEntity.of(found)


def _canonical_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _invalid(f"{text} is not a valid IP address.") from None


def _altered(
    entity: QuotaEntity, before: Mapping[QuotaKey, float], changes: Sequence[QuotaChange]
) -> Mapping[QuotaKey, float]:
    allowed = {key.value: key for key in (CLIENT_KEYS if entity.ip is None else IP_KEYS)}
    values, seen = dict(before), set()
    for name, value in changes:
        if name in seen:
            raise _invalid(f"Duplicate quota key {name}.")
        seen.add(name)
        key = allowed.get(name)
        if value is not None:
            if key is None:
                raise _invalid(f"Invalid configuration key {name}.")
            values[key] = _checked(key, value)
        elif key is not None:
            values.pop(key, None)
    return values


def _checked(key: QuotaKey, value: float) -> float:
    if not value > 0:  # neither is NaN
        raise _invalid(f"Quota {key.value} must be greater than 0.")
    largest = INT_MAX if key is QuotaKey.CONNECTION_CREATION_RATE else LONG_MAX
    if not isfinite(value) or value > largest:
        raise _invalid(f"Proposed value for {key.value} is too large.")
    if key.is_integral and value != int(value):
        raise _invalid(f"{key.value} cannot be a fractional value.")
    return value


# ------------------------------------------------------------------------------- descriptions


class MatchType(IntEnum):
    """Which names a component of a filter matches."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class FilterComponent(NamedTuple):
    """A part that entities must have, as a client sends it."""

    kind: str
    match_type: int
    match: str | None


def find_quotas(
    quotas: Quotas, components: Sequence[FilterComponent], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[QuotaKey, float]]]:
    """Return the entities that a filter matches, with their quotas.

    Args:
        quotas: The quotas of all entities.
        components: Parts that an entity must have.
        strict: Whether an entity must have no other parts.

    Raises:
        KafkaError: INVALID_REQUEST or UNSUPPORTED_VERSION, as in Kafka.
    """
    wanted = _wanted(components)
    return [
        (entity, values)
        for entity, values in sorted(quotas.items(), key=lambda item: tuple(item[0].parts.items()))
        if _matches(entity.parts, wanted, strict=strict)
    ]


def _matches(parts: Mapping[str, str], wanted: Mapping[str, str | None], *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    return all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items())


def _wanted(components: Iterable[FilterComponent]) -> dict[str, str | None]:
    """Return the wanted name of each entity type, None for any."""
    wanted: dict[str, str | None] = {}
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}.")
        if match_type not in set(MatchType):
            raise _invalid(f"Unknown match type {match_type}.")
        if (match is not None) != (match_type == MatchType.EXACT):
            raise _invalid(
                f"A component with match type {MatchType(match_type).name} must "
                f"{'have' if match is None else 'not have'} a match string."
            )
        wanted[kind] = DEFAULT if match_type == MatchType.DEFAULT else match
    if IP in wanted and len(wanted) > 1:
        raise _invalid("Invalid entity filter component combination.")
    return wanted


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
