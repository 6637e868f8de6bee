"""DeleteAcls (key 31), versions 1–3: the end of the ACLs that filters match.

- The controller decides; `core.controller.acls` lists the errors. The client needs ALTER on the
  cluster.
- All ACLs of a request are deleted in one transaction. A filter with an unknown part has
  INVALID_REQUEST in its result.
- The response is sent when the controller applies the change. Other brokers follow at once,
  whatever else they do (`metadata.follower`): also on open connections, for fetches that wait for
  data, and for producers and consumers whose requests the broker recognizes.
- SECURITY_DISABLED without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.acl import AclBinding
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.handlers.create_acls import AclPorts
from ottla.broker.handlers.describe_acls import enabled
from ottla.broker.topic_views import error_fields
from ottla.core.controller.acls import AclFields
from ottla.core.security.permissions import ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.delete_acls import (
        DeleteAclsFilterResultDict,
        DeleteAclsMatchingAclDict,
        DeleteAclsRequest,
        DeleteAclsResponseDict,
    )


async def handle(
    broker: AclPorts, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponseDict:
    filters = [
        AclFields(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.resource_name_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    results: list[list[AclBinding] | KafkaError]
    try:
        enabled(broker)
        context.check(ALTER_CLUSTER)
        results = (await broker.controller.delete_acls(filters)).results
    except KafkaError as error:
        results = [error for _ in filters]
    return {"filter_results": [_result(each) for each in results]}


def _result(found: list[AclBinding] | KafkaError) -> DeleteAclsFilterResultDict:
    if isinstance(found, KafkaError):
        return {**error_fields(found), "matching_acls": []}
    return {**error_fields(None), "matching_acls": [_deleted(each) for each in found]}


def _deleted(binding: AclBinding) -> DeleteAclsMatchingAclDict:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resource_type": binding.resource_type,
        "resource_name": binding.name,
        "pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }
