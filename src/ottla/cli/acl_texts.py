"""The text of ACLs, as Kafka's tools print it, and the names of operations and resource types."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from ottla.base.acl import AclBinding, AclFilter, AclOperation, AclResourceType, PatternType

EnumT = TypeVar("EnumT", bound=IntEnum)
ANY_NAME = "<any>"
"""Name of the resource in a filter that matches all names."""


def parse_operation(text: str) -> AclOperation:
    """Return the operation of a name such as `DescribeConfigs`; UNKNOWN for an unknown one.

    The case of letters does not matter, and neither do underscores and hyphens.
    """
    return _parse(AclOperation, text)


def parse_resource_type(text: str) -> AclResourceType:
    """Return the resource type of a name such as `transactional-id`; UNKNOWN for an unknown one."""
    return _parse(AclResourceType, text)


def operation_name(operation: AclOperation) -> str:
    """Return the name of an operation as the options of `kafka-acls` write it."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def pattern_text(type: AclResourceType, name: str | None, pattern: PatternType) -> str:
    """Return the text of a pattern of resources, in Java's format."""
    shown = ANY_NAME if name is None else name
    return f"ResourcePattern(resourceType={type.name}, name={shown}, patternType={pattern.name})"


def resource_text(acl: AclBinding | AclFilter) -> str:
    """Return the text of the resources of an ACL or a filter."""
    return pattern_text(acl.resource_type, acl.name, acl.pattern_type)


def entry_text(acl: AclBinding) -> str:
    """Return the text of an ACL without its resources."""
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={acl.operation.name}, "
        f"permissionType={acl.permission.name})"
    )


def binding_text(acl: AclBinding) -> str:
    """Return the text of an ACL."""
    return f"(pattern={resource_text(acl)}, entry={entry_text(acl)})"


def entry_lines(acls: Iterable[AclBinding]) -> list[str]:
    """Return a line for each ACL, indented by a tab."""
    return [f"\t{entry_text(each)}" for each in acls]


def _parse(kind: type[EnumT], text: str) -> EnumT:
    wanted = text.strip().replace("_", "").replace("-", "").upper()
    found = (each for each in kind if each.name.replace("_", "") == wanted)
    return next(found, kind(0))
