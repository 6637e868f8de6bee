"""CreateAcls (key 30), versions 1–3: new permissions and denials.

- The controller decides; `core.controller.acls` lists the errors. The client needs ALTER on the
  cluster.
- The valid ACLs of a request are one transaction; the others have INVALID_REQUEST in their results.
  An ACL that exists is a success.
- The response is sent when the controller applies the ACLs. Other brokers follow at once, whatever
  else they do (`metadata.follower`).
- SECURITY_DISABLED without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.controller import Controller
from ottla.broker.handlers.describe_acls import enabled
from ottla.broker.ports import Authorizing
from ottla.broker.topic_views import error_fields
from ottla.core.controller.acls import AclFields
from ottla.core.security.permissions import ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponseDict


class AclPorts(Authorizing, Protocol):
    """The parts of a broker that the handlers for changes of ACLs use."""

    @property
    def controller(self) -> Controller: ...


async def handle(
    broker: AclPorts, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponseDict:
    requested = [
        AclFields(
            each.resource_type,
            each.resource_pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in request.creations
    ]
    errors: list[KafkaError | None]
    try:
        enabled(broker)
        context.check(ALTER_CLUSTER)
        errors = (await broker.controller.create_acls(requested)).errors
    except KafkaError as error:
        errors = [error for _ in requested]
    return {"results": [{**error_fields(error)} for error in errors]}
