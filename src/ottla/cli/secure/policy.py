"""The properties of brokers that decide on access, from a file or from running brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.config.resource import ResourceType
from ottla.base.errors import KafkaError

if TYPE_CHECKING:
    from ottla.client.admin import Admin

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True)
class Policy:
    """Properties that decide besides ACLs."""

    super_users: frozenset[str] | None
    """Principals without restrictions; None if they are unknown."""
    allows_without_acls: bool = False
    """Whether everybody may use resources without ACLs."""

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], *, is_complete: bool) -> Policy:
        """Return the policy of the properties of a broker.

        Args:
            properties: The properties.
            is_complete: Whether a property that is missing has its default. The properties that a
                broker describes may lack those of its authorizer.
        """
        text = properties.get(SUPER_USERS, "" if is_complete else None)
        users = None
        if text is not None:
            users = frozenset(each.strip() for each in text.split(";") if each.strip())
        return cls(users, properties.get(ALLOW_EVERYONE, "").strip().lower() == "true")


def described_properties(admin: Admin) -> dict[int, dict[str, str]] | None:
    """Return the properties of each broker; None if the user may not describe them.

    Raises:
        KafkaError: The brokers cannot be asked.
    """
    from ottla.client.admin import ConfigResource
    from ottla.client.errors import AuthorizationFailed

    brokers = sorted(each.id for each in admin.describe_cluster().nodes.values())
    resources = [ConfigResource(ResourceType.BROKER, str(each)) for each in brokers]
    found = admin.describe_configs(resources, return_errors=True)
    for error in found.errors.values():
        if isinstance(error, AuthorizationFailed):
            return None
        raise error
    return {
        int(resource.name): {
            name: entry.value for name, entry in entries.items() if entry.value is not None
        }
        for resource, entries in found.items()
    }


def described_policy(admin: Admin) -> Policy:
    """Return the policy of a running cluster, as far as a broker describes it."""
    try:
        properties = described_properties(admin)
    except KafkaError:
        properties = None
    if not properties:
        return Policy(None)
    return Policy.of_properties(next(iter(properties.values())), is_complete=False)
