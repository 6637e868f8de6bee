"""Access control lists: bindings of a permission to a resource, and filters that find them.

The numbers are Kafka's codes in DescribeAcls, CreateAcls and DeleteAcls.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""Name of the one resource of the type CLUSTER."""
WILDCARD = "*"
"""Every resource, as the name of a literal pattern; every host, as the host of a binding."""
EVERY_USER = "User:*"
"""Principal of a binding that applies to all principals."""


class AclResourceType(IntEnum):
    """Type of a resource that ACLs protect."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a binding or a filter is compared with the names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Action of a principal on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether a binding allows an operation or denies it."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """A permission of a principal, on resources that match a pattern."""

    resource_type: AclResourceType
    """Type of the resources."""
    pattern_type: PatternType
    """LITERAL or PREFIXED."""
    name: str
    """Name of the resource, its beginning, or `*` with a literal pattern for all resources."""
    principal: str
    """Type and name, such as `User:alice`."""
    host: str
    """Address of the client, a range in CIDR notation, or `*`."""
    operation: AclOperation
    """The operation, or ALL for every operation."""
    permission: AclPermission
    """ALLOW or DENY."""

    def applies_to(self, resource_type: AclResourceType, name: str) -> bool:
        """Return whether the pattern matches a resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclFilter(NamedTuple):
    """A filter of bindings. None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    """Type of the resources."""
    pattern_type: PatternType = PatternType.ANY
    """MATCH finds every pattern that applies to the resource `name`; ANY, LITERAL and PREFIXED
    compare the names of patterns with `name`."""
    name: str | None = None
    """Name of the resource or of the pattern."""
    principal: str | None = None
    """Type and name, such as `User:alice`."""
    host: str | None = None
    """Host of the ACL, as it was created."""
    operation: AclOperation = AclOperation.ANY
    """The operation."""
    permission: AclPermission = AclPermission.ANY
    """ALLOW or DENY."""

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter finds a binding."""
        return (
            self.resource_type in (AclResourceType.ANY, binding.resource_type)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_pattern(binding)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or binding.applies_to(binding.resource_type, self.name)
        if self.pattern_type not in (PatternType.ANY, binding.pattern_type):
            return False
        return self.name in (None, binding.name)
