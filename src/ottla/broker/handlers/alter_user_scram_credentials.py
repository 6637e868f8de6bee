"""AlterUserScramCredentials (key 51), version 0 (KIP-554): passwords of users for SCRAM.

Behaviours
- Clients send salted passwords, from which the controller derives what it stores.
- The changes of a user are accepted or rejected as a whole; `core.controller.scram` lists the error
  codes. The accepted changes of all users are one transaction.
- With an authorizer, the client needs ALTER on the cluster.
- The response is sent when the controller's image shows the change. Other brokers follow at once,
  whatever else they do (`metadata.follower`).

Deviations
- Two mechanisms of one user can be altered in one request, as in Kafka with ZooKeeper. With KRaft,
  Kafka returns DUPLICATE_RESOURCE.
- Limits on names, salts and the size of a request, which Kafka does not have.
- Without an authorizer, CLUSTER_AUTHORIZATION_FAILED for users who are not in `super.users`, if
  that is set.
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that logged in with a delegation token: a token
  must not be a way to a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.peers import check_manages_brokers
from ottla.broker.ports import PeerRecognition
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.delegation_tokens import check_has_no_token
from ottla.core.controller.scram import ScramDecision, ScramDeletion, ScramUpsertion
from ottla.core.security.permissions import ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponseDict,
    )


class Ports(TopicPorts, PeerRecognition, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponseDict:
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(
            each.name,
            each.mechanism,
            each.iterations,
            bytes(each.salt),
            bytes(each.salted_password),
        )
        for each in request.upsertions
    ]
    try:
        check_has_no_token(context.principal)
        check_manages_brokers(broker, context, ALTER_CLUSTER)
        decisions = await broker.controller.alter_scram_credentials(deletions, upsertions)
    except KafkaError as error:
        users = [*(each.user for each in deletions), *(each.user for each in upsertions)]
        decisions = [ScramDecision(user, error=error) for user in dict.fromkeys(users)]
    return {"results": [{"user": each.user, **error_fields(each.error)} for each in decisions]}
