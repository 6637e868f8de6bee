"""AlterClientQuotas (key 49), versions 0–1 (KIP-546): changes of client quotas.

- The changes of an entity are accepted or rejected as a whole; `core.controller.quotas` lists the
  errors. The accepted changes of all entities are one transaction. `validate_only` only checks.
- The client needs ALTER_CONFIGS on the cluster, or each entry is CLUSTER_AUTHORIZATION_FAILED.
- The response is sent when the controller's image shows the change. Every broker applies it at once
  to its open connections (`broker.quotas`), whatever else it does (`metadata.follower`).

Deviation: without an authorizer, CLUSTER_AUTHORIZATION_FAILED for users who are not in
`super.users`, if that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.peers import check_manages_brokers
from ottla.broker.ports import PeerRecognition
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.quotas import QuotaAlteration, QuotaChange, QuotaDecision
from ottla.core.security.permissions import ALTER_CLUSTER_CONFIGS

if TYPE_CHECKING:
    from ottla.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponseDict,
    )


class Ports(TopicPorts, PeerRecognition, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponseDict:
    alterations = [
        QuotaAlteration(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    try:
        check_manages_brokers(broker, context, ALTER_CLUSTER_CONFIGS)
        decisions = await broker.controller.alter_client_quotas(
            alterations, validate_only=request.validate_only
        )
    except KafkaError as error:
        decisions = [QuotaDecision(each, error=error) for each in alterations]
    return {
        "entries": [
            {
                **error_fields(each.error),
                "entity": [
                    {"entity_type": kind, "entity_name": name}
                    for kind, name in each.alteration.parts
                ],
            }
            for each in decisions
        ]
    }
