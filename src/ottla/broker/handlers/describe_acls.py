"""DescribeAcls (key 29), versions 1–3: the ACLs that a filter matches.

- Any broker answers, from its own ACLs. The client needs DESCRIBE on the cluster.
- SECURITY_DISABLED without an authorizer. INVALID_REQUEST for a filter with an unknown part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.acl import AclBinding, AclResourceType, PatternType
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorization import Authorization
from ottla.broker.context import RequestContext
from ottla.broker.ports import Authorizing
from ottla.core.controller.acls import AclFields, acl_filter
from ottla.core.security.permissions import DESCRIBE_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.describe_acls import (
        AclDescriptionDict,
        DescribeAclsRequest,
        DescribeAclsResourceDict,
        DescribeAclsResponseDict,
    )


def handle(
    broker: Authorizing, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponseDict:
    wanted = AclFields(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    try:
        authorizer = enabled(broker).authorizer
        context.check(DESCRIBE_CLUSTER)
        resources = _by_resource(authorizer.found_by(acl_filter(wanted)))
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "resources": []}
    return {"error_code": ErrorCode.NONE, "error_message": None, "resources": resources}


def enabled(broker: Authorizing) -> Authorization:
    """Return the authorizer. Raises KafkaError if there is none."""
    if broker.authorization is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "No authorizer is configured on this broker. Set authorizer.class.name.",
        )
    return broker.authorization


def _by_resource(found: Iterable[AclBinding]) -> list[DescribeAclsResourceDict]:
    grouped: dict[tuple[AclResourceType, str, PatternType], list[AclDescriptionDict]] = {}
    for each in found:
        grouped.setdefault((each.resource_type, each.name, each.pattern_type), []).append(
            {
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission,
            }
        )
    return [
        {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
        for (kind, name, pattern), acls in grouped.items()
    ]
