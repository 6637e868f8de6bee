"""Decides on the creation, deletion and description of ACLs.

Errors of a single ACL or filter are INVALID_REQUEST, as in Kafka:

- A part of an ACL is UNKNOWN or ANY, or its pattern type is neither LITERAL nor PREFIXED.
- An empty name, or a name of the cluster other than `kafka-cluster`.
- A principal that is not of the form `Type:name`.
- A host that is not `*`, an address or a range of addresses in CIDR notation.
- A part of a filter is unknown.

A request that changes more than `MAX_CHANGES` ACLs is POLICY_VIOLATION, as in Kafka. An ACL that
exists already is created with success.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.base.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.security.authorizer import filter_bindings

MAX_CHANGES = 10_000

EnumT = TypeVar("EnumT", bound=IntEnum)


class AclFields(NamedTuple):
    """An ACL or a filter as a client sends it, with any numbers as codes."""

    resource_type: int
    pattern_type: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int


class NewAcls(NamedTuple):
    """The decision on ACLs to create."""

    errors: list[KafkaError | None]
    """The error of each requested ACL."""
    added: list[AclBinding]
    """The ACLs that do not exist yet."""


class DeletedAcls(NamedTuple):
    """The decision on ACLs to delete."""

    results: list[list[AclBinding] | KafkaError]
    """The ACLs that each filter has found, or its error."""
    removed: list[AclBinding]
    """The ACLs of all filters, each once."""


def decide_create_acls(current: Collection[AclBinding], requested: Sequence[AclFields]) -> NewAcls:
    """Validate new ACLs.

    Args:
        current: The ACLs that exist.
        requested: The ACLs to create.
    """
    errors: list[KafkaError | None] = []
    added: dict[AclBinding, None] = {}
    for fields in requested:
        try:
            binding = _binding(fields)
        except KafkaError as error:
            errors.append(error)
        else:
            errors.append(None)
            if binding not in current:
                added[binding] = None
    _check_count(len(added))
    return NewAcls(errors, list(added))


def decide_delete_acls(
    current: Iterable[AclBinding], requested: Sequence[AclFields]
) -> DeletedAcls:
    """Find the ACLs to delete.

    Args:
        current: The ACLs that exist.
        requested: Filters of the ACLs to delete.
    """
    results: list[list[AclBinding] | KafkaError] = []
    removed: dict[AclBinding, None] = {}
    for fields in requested:
        try:
            found = list(filter_bindings(current, acl_filter(fields)))
        except KafkaError as error:
            results.append(error)
            continue
        results.append(found)
        removed.update(dict.fromkeys(found))
    _check_count(len(removed))
    return DeletedAcls(results, list(removed))


def acl_filter(fields: AclFields) -> AclFilter:
    """Return the filter that a client has sent. Raises KafkaError if a part is unknown."""
    found = AclFilter(
        _code(AclResourceType, fields.resource_type),
        _code(PatternType, fields.pattern_type),
        fields.name,
        fields.principal,
        fields.host,
        _code(AclOperation, fields.operation),
        _code(AclPermission, fields.permission),
    )
    for part in (found.resource_type, found.pattern_type, found.operation, found.permission):
        if not part:
            raise _invalid(f"The filter has an unknown {_WORDS[type(part)]}.")
    return found


def _binding(fields: AclFields) -> AclBinding:
    binding = AclBinding(
        _code(AclResourceType, fields.resource_type),
        _code(PatternType, fields.pattern_type),
        fields.name or "",
        fields.principal or "",
        fields.host or "",
        _code(AclOperation, fields.operation),
        _code(AclPermission, fields.permission),
    )
    for part in (binding.resource_type, binding.operation, binding.permission):
        if part <= AclResourceType.ANY:  # UNKNOWN and ANY have the same codes in all enums
            raise _invalid(f"An ACL cannot have the {_WORDS[type(part)]} {part.name}.")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"An ACL cannot have the pattern type {binding.pattern_type.name}.")
    if not binding.name:
        raise _invalid("The name of a resource must not be empty.")
    if binding.resource_type is AclResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise _invalid(f"The only resource of the type CLUSTER is '{CLUSTER_NAME}'.")
    kind, _, name = binding.principal.partition(":")
    if not kind or not name:
        raise _invalid(
            f"'{binding.principal}' is not a principal. Principals have the form Type:name."
        )
    _check_host(binding.host)
    return binding


def _check_host(host: str) -> None:
    if host == WILDCARD:
        return
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise _invalid(
            f"'{host}' is not a host. Hosts are *, IP addresses, or ranges such as 10.0.0.0/8."
        ) from None


def _check_count(count: int) -> None:
    if count > MAX_CHANGES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"A request can change at most {MAX_CHANGES} ACLs."
        )


_WORDS: dict[type[IntEnum], str] = {
    AclResourceType: "resource type",
    PatternType: "pattern type",
    AclOperation: "operation",
    AclPermission: "permission type",
}


def _code(kind: type[EnumT], code: int) -> EnumT:
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
