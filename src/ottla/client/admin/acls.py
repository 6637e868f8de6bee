"""ACLs: permissions and denials of principals on resources.

    DescribeAcls 1+                                                      to any broker
    CreateAcls 1+, DeleteAcls 1+                                         to the controller

A broker without an authorizer answers with SECURITY_DISABLED."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.client.admin.dispatch import AtController, Results, dispatch, raise_for
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.create_acls import AclCreationDict
    from ottla.wire.messages.delete_acls import DeleteAclsFilterDict, DeleteAclsFilterResult

EnumT = TypeVar("EnumT", bound=IntEnum)


def as_filter(acl: AclFilter | AclBinding) -> AclFilter:
    """Return a filter that matches an ACL; a filter as it is."""
    return acl if isinstance(acl, AclFilter) else AclFilter(*acl)


async def describe_acls(cluster: Cluster, filter: AclFilter) -> list[AclBinding]:
    """Return the ACLs that a filter matches."""
    request = rpc.describe_acls(
        resource_type_filter=filter.resource_type,
        resource_name_filter=filter.name,
        pattern_type_filter=filter.pattern_type,
        principal_filter=filter.principal,
        host_filter=filter.host,
        operation=filter.operation,
        permission_type=filter.permission,
    )

    async def ask() -> list[AclBinding]:
        found = await cluster.call(request)
        raise_for(found.error_code, found.error_message)
        return [
            AclBinding(
                _of_code(AclResourceType, resource.resource_type),
                _of_code(PatternType, resource.pattern_type),
                resource.resource_name,
                each.principal,
                each.host,
                _of_code(AclOperation, each.operation),
                _of_code(AclPermission, each.permission_type),
            )
            for resource in found.resources
            for each in resource.acls
        ]

    return await cluster.retrying(ask, what="describing ACLs")


async def create_acls(
    cluster: Cluster, bindings: Iterable[AclBinding]
) -> Results[AclBinding, None]:
    """Create ACLs."""

    async def ask(node: int, bindings: list[AclBinding]) -> dict[AclBinding, ClientError | None]:
        request = rpc.create_acls(creations=[_creation(each) for each in bindings])
        response = await cluster.call(request, node=node)
        return {
            binding: error_for(each.error_code, each.error_message) if each.error_code else None
            for binding, each in zip(bindings, response.results, strict=False)
        }

    return await dispatch(AtController(cluster), bindings, ask, what="creating ACLs")


async def delete_acls(
    cluster: Cluster, filters: Iterable[AclFilter]
) -> Results[AclFilter, list[AclBinding]]:
    """Delete the ACLs that filters match, and return them."""

    async def ask(
        node: int, filters: list[AclFilter]
    ) -> dict[AclFilter, list[AclBinding] | ClientError]:
        request = rpc.delete_acls(filters=[_deletion(each) for each in filters])
        response = await cluster.call(request, node=node)
        return {
            filter: _deleted(result)
            for filter, result in zip(filters, response.filter_results, strict=False)
        }

    return await dispatch(AtController(cluster), filters, ask, what="deleting ACLs")


def _creation(binding: AclBinding) -> AclCreationDict:
    return {
        "resource_type": binding.resource_type,
        "resource_name": binding.name,
        "resource_pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }


def _deletion(filter: AclFilter) -> DeleteAclsFilterDict:
    return {
        "resource_type_filter": filter.resource_type,
        "resource_name_filter": filter.name,
        "pattern_type_filter": filter.pattern_type,
        "principal_filter": filter.principal,
        "host_filter": filter.host,
        "operation": filter.operation,
        "permission_type": filter.permission,
    }


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | ClientError:
    if result.error_code:
        return error_for(result.error_code, result.error_message)
    # A broker may fail to delete single ACLs of a filter.
    for each in result.matching_acls:
        if each.error_code:
            return error_for(each.error_code, each.error_message)
    return [
        AclBinding(
            _of_code(AclResourceType, each.resource_type),
            _of_code(PatternType, each.pattern_type),
            each.resource_name,
            each.principal,
            each.host,
            _of_code(AclOperation, each.operation),
            _of_code(AclPermission, each.permission_type),
        )
        for each in result.matching_acls
    ]


def _of_code(kind: type[EnumT], code: int) -> EnumT:
    """Return the member of a code; UNKNOWN for one that this version does not know."""
    return kind(code) if code in kind._value2member_map_ else kind(0)
