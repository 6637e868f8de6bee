"""The effect of AlterConfigs and IncrementalAlterConfigs on the properties of a resource.

The functions are pure: the current properties and the operations determine the new properties, or a
KafkaError with Kafka's code. Either all operations are accepted or none. AlterConfigs replaces all
properties, which is `alter` on an empty mapping with one SET per property.

The caller must pass the result to `topic_config` for topics, or `BrokerConfig.with_dynamic` for
brokers, where values are checked against each other.

  rejected                                     topic            broker
  a duplicate name, null value, unknown op     INVALID_REQUEST  INVALID_REQUEST
  APPEND or SUBTRACT on a property             INVALID_CONFIG   INVALID_CONFIG
  that is not a list
  an unknown name                              INVALID_CONFIG   kept, without effect
  an invalid value                             INVALID_CONFIG   INVALID_REQUEST
  a property that cannot change at run time    –                INVALID_REQUEST
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.config.broker_table import BROKER, broker_key
from ottla.base.config.definition import (
    ConfigTable,
    ConfigType,
    UpdateMode,
    format_value,
    split_list,
)
from ottla.base.config.resource import AlterOp
from ottla.base.config.unused_properties import no_effect, not_needed
from ottla.base.errors import ErrorCode, KafkaError


class Alteration(NamedTuple):
    """One operation. `op` is a plain number, so that `alter` can reject an unknown one."""

    name: str
    op: int
    value: str | None


def alter(
    table: ConfigTable,
    current: Mapping[str, str],
    operations: Iterable[tuple[str, int, str | None]],
    *,
    for_all_brokers: bool = False,
) -> dict[str, str]:
    """Return the properties of a resource after some operations.

    Args:
        table: Definitions of the properties.
        current: Properties that are set on the resource now.
        operations: Name, operation code and value of each change.
        for_all_brokers: Whether `current` are the cluster-wide dynamic defaults rather than the
            properties of one broker.

    Raises:
        KafkaError: An operation is not allowed, with Kafka's code for it.
    """
    alterations = [Alteration(*operation) for operation in operations]
    _check_request(alterations)
    altered = dict(current)
    for alteration in alterations:
        _apply(table, altered, alteration)
    if table is BROKER:
        _check_dynamic(altered, for_all_brokers)
    _check_values(table, altered)
    return altered


def _check_request(alterations: list[Alteration]) -> None:
    names = [alteration.name for alteration in alterations]
    if len(set(names)) < len(names):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A property may appear only once among the changes."
        )
    for name, op, value in alterations:
        if op not in list(AlterOp):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {op} on {name}.")
        if value is None and op != AlterOp.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be set to null.")


def _apply(table: ConfigTable, properties: dict[str, str], alteration: Alteration) -> None:
    name, op, value = alteration
    if op == AlterOp.DELETE or value is None:
        properties.pop(name, None)
    elif op == AlterOp.SET:
        properties[name] = value
    else:
        items = _current_items(table, properties, name, AlterOp(op))
        change = split_list(value)
        if op == AlterOp.APPEND:
            items += [item for item in change if item not in items]
        else:
            items = [item for item in items if item not in change]
        properties[name] = ",".join(items)


def _current_items(
    table: ConfigTable, properties: Mapping[str, str], name: str, op: AlterOp
) -> list[str]:
    key = table.get(name)
    if key is None or key.type is not ConfigType.LIST:
        message = f"{op.name} is not allowed on {name}, because it is not a list."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    return split_list(properties.get(name, format_value(key.default) or ""))


def _check_dynamic(properties: Mapping[str, str], for_all_brokers: bool) -> None:
    for name in sorted(properties):
        key = broker_key(name)
        unused = key is None and (not_needed(name) or no_effect(name))
        if unused or (key is not None and key.mode is UpdateMode.READ_ONLY):
            message = f"{name} cannot be changed while the broker runs."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if for_all_brokers and key and key.mode is UpdateMode.PER_BROKER:
            message = f"{name} can be changed only for one broker, named by its id."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_values(table: ConfigTable, properties: Mapping[str, str]) -> None:
    parsed = table.parse(properties)
    if parsed.unknown and table is not BROKER:
        name = parsed.unknown[0]
        nearest = table.nearest(name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        message = f"Unknown {table.kind} config name: {name}{hint}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if parsed.errors:
        code = ErrorCode.INVALID_REQUEST if table is BROKER else ErrorCode.INVALID_CONFIG
        raise KafkaError(code, str(parsed.errors[0]))
