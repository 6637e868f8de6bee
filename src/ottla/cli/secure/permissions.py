"""The ACLs that `ottla secure user` gives to users, and takes from them.

The operations are those of `kafka-acls --producer` and `--consumer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.acl import (
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.principal import USER

if TYPE_CHECKING:
    from ottla.client.admin import Admin


@dataclass(frozen=True)
class Permissions:
    """Names of the resources that a user may use. A name that ends with `*` is a prefix."""

    produce: Sequence[str] = ()
    """Topics to write to."""
    consume: Sequence[str] = ()
    """Topics to read."""
    groups: Sequence[str] = ()
    """Consumer groups to join."""
    transactional_ids: Sequence[str] = ()
    """Transactional IDs of producers."""

    def acls(self, user: str) -> list[AclBinding]:
        """Return the ACLs that give a user the permissions.

        Raises:
            UserError: A name is empty.
        """
        topic, group = AclResourceType.TOPIC, AclResourceType.GROUP
        transactional_id = AclResourceType.TRANSACTIONAL_ID
        write = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        read = (AclOperation.READ, AclOperation.DESCRIBE)
        found = [
            _acl(user, type, name, operation)
            for type, names, operations in (
                (topic, self.produce, write),
                (topic, self.consume, read),
                (group, self.groups, read[:1]),
                (transactional_id, self.transactional_ids, write[:2]),
            )
            for name in names
            for operation in operations
        ]
        return list(dict.fromkeys(found))


def _acl(user: str, type: AclResourceType, text: str, operation: AclOperation) -> AclBinding:
    if not text:
        what = type.name.lower().replace("_", " ")
        raise UserError(f"The name of a {what} must not be empty.")
    name, pattern = text, PatternType.LITERAL
    if text.endswith(WILDCARD) and text != WILDCARD:
        name, pattern = text.removesuffix(WILDCARD), PatternType.PREFIXED
    return AclBinding(
        type, pattern, name, principal_of(user), WILDCARD, operation, AclPermission.ALLOW
    )


def principal_of(user: str) -> str:
    """Return the principal of a user."""
    return f"{USER}:{user}"


def describe_acls(admin: Admin, filter: AclFilter | None = None) -> list[AclBinding] | None:
    """Return the ACLs that a filter matches; None if the cluster has no authorizer.

    Raises:
        KafkaError: The cluster refused.
    """
    try:
        return admin.describe_acls(filter)
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return None
        raise


def acls_of(admin: Admin, user: str) -> list[AclBinding] | None:
    """Return the ACLs of a user; None if the cluster has no authorizer."""
    return describe_acls(admin, AclFilter(principal=principal_of(user)))
