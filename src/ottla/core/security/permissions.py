"""The permissions that each API asks for: one table for the handlers and their tests.

A handler names the permission and the resource in one line:

    if not context.may(WRITE_TOPIC, topic.name):
        ...  # the response has WRITE_TOPIC.error where `RULES` says

`RULES` lists every check of an API, in the order in which Kafka makes them. An authorizer refuses
to answer a question that the table does not list for the API, so that the table and the handlers
cannot differ; `tests/integration/security/test_permissions.py` sends a request for each rule.

Clients rely on an order: a topic ID that does not exist is UNKNOWN_TOPIC_ID; then a missing
permission is reported; only then that a topic does not exist. A client without permission therefore
cannot find out by name which topics exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.acl import AclOperation, AclResourceType
from ottla.base.errors import ErrorCode
from ottla.wire.api import Api

_ERRORS = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Permission:
    """An operation on resources of a type. Each exists once, so its identity is its hash."""

    operation: AclOperation
    type: AclResourceType

    @property
    def error(self) -> ErrorCode:
        """Error code for a client without the permission."""
        return _ERRORS[self.type]

    def __str__(self) -> str:
        return f"{self.type.name}:{self.operation.name}"


READ_TOPIC = Permission(AclOperation.READ, AclResourceType.TOPIC)
WRITE_TOPIC = Permission(AclOperation.WRITE, AclResourceType.TOPIC)
CREATE_TOPIC = Permission(AclOperation.CREATE, AclResourceType.TOPIC)
DELETE_TOPIC = Permission(AclOperation.DELETE, AclResourceType.TOPIC)
ALTER_TOPIC = Permission(AclOperation.ALTER, AclResourceType.TOPIC)
DESCRIBE_TOPIC = Permission(AclOperation.DESCRIBE, AclResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Permission(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Permission(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC)

READ_GROUP = Permission(AclOperation.READ, AclResourceType.GROUP)
DELETE_GROUP = Permission(AclOperation.DELETE, AclResourceType.GROUP)
DESCRIBE_GROUP = Permission(AclOperation.DESCRIBE, AclResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Permission(AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP)
ALTER_GROUP_CONFIGS = Permission(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP)

WRITE_TRANSACTIONAL_ID = Permission(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Permission(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT = Permission(AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID)

CREATE_IN_CLUSTER = Permission(AclOperation.CREATE, AclResourceType.CLUSTER)
DELETE_IN_CLUSTER = Permission(AclOperation.DELETE, AclResourceType.CLUSTER)
ALTER_CLUSTER = Permission(AclOperation.ALTER, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER = Permission(AclOperation.DESCRIBE, AclResourceType.CLUSTER)
ACT_AS_BROKER = Permission(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Permission(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Permission(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER)
WRITE_IDEMPOTENTLY = Permission(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)

DESCRIBE_TOKEN = Permission(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN)
CREATE_TOKENS = Permission(AclOperation.CREATE_TOKENS, AclResourceType.USER)
DESCRIBE_TOKENS = Permission(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER)


class Rule(NamedTuple):
    """A check of an API. A client needs one of the alternatives."""

    when: str
    """Requests, or parts of them, that the check applies to."""
    needs: tuple[Permission, ...]
    denied_at: str
    """Place of the error in the response, or what happens instead of an error."""
    error: ErrorCode | None
    """None if the response has no error."""


def _rule(
    when: str,
    *needs: Permission,
    at: str,
    error: ErrorCode | None = ErrorCode.NONE,
) -> Rule:
    """Return a rule; its error is that of the last alternative, unless another one is given."""
    return Rule(when, needs, at, needs[-1].error if error == ErrorCode.NONE else error)


_TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_IN_GROUP = (_rule("the group", READ_GROUP, at="top level"),)
_ALTERED_TOPIC = _rule("a topic", ALTER_TOPIC_CONFIGS, at="resource")
_ALTERED_GROUP = _rule("a group", ALTER_GROUP_CONFIGS, at="resource")

RULES: Mapping[Api, tuple[Rule, ...]] = {
    Api.PRODUCE: (
        _rule("any batch is transactional", WRITE_TRANSACTIONAL_ID, at="every partition"),
        _rule("each topic", WRITE_TOPIC, at="partition"),
    ),
    Api.FETCH: (
        _rule("replica ID >= 0", ACT_AS_BROKER, at="every partition", error=_TOPIC_FAILED),
        _rule("each topic of request and session", READ_TOPIC, at="partition"),
    ),
    Api.LIST_OFFSETS: (_rule("each topic", DESCRIBE_TOPIC, at="partition"),),
    Api.METADATA: (
        _rule("topics by name or ID", DESCRIBE_TOPIC, at="topic"),
        _rule("all topics", DESCRIBE_TOPIC, at="topic is left out", error=None),
        _rule("missing topic that would be created", CREATE_IN_CLUSTER, CREATE_TOPIC, at="topic"),
        _rule("authorized operations", DESCRIBE_CLUSTER, at="field is 0", error=None),
    ),
    Api.OFFSET_COMMIT: (
        _rule("the group", READ_GROUP, at="every partition"),
        _rule("each topic", READ_TOPIC, at="partition"),
    ),
    Api.OFFSET_FETCH: (
        _rule("each group", DESCRIBE_GROUP, at="group"),
        _rule("named topics", DESCRIBE_TOPIC, at="partition"),
        _rule("all topics", DESCRIBE_TOPIC, at="topic is left out", error=None),
    ),
    Api.FIND_COORDINATOR: (
        _rule("key type 0", DESCRIBE_GROUP, at="key"),
        _rule("key type 1", DESCRIBE_TRANSACTIONAL_ID, at="key"),
        _rule("key type 2", ACT_AS_BROKER, at="every key"),
    ),
    Api.JOIN_GROUP: _IN_GROUP,
    Api.HEARTBEAT: _IN_GROUP,
    Api.LEAVE_GROUP: _IN_GROUP,
    Api.SYNC_GROUP: _IN_GROUP,
    Api.DESCRIBE_GROUPS: (_rule("each group", DESCRIBE_GROUP, at="group"),),
    Api.LIST_GROUPS: (
        _rule("each group", DESCRIBE_CLUSTER, DESCRIBE_GROUP, at="group is left out", error=None),
    ),
    Api.SASL_HANDSHAKE: (),
    Api.API_VERSIONS: (),
    Api.CREATE_TOPICS: (
        _rule("each topic", CREATE_IN_CLUSTER, CREATE_TOPIC, at="topic"),
        _rule("configs in the response", DESCRIBE_TOPIC_CONFIGS, at="topic_config_error_code"),
    ),
    Api.DELETE_TOPICS: (
        _rule("by name", DELETE_IN_CLUSTER, DESCRIBE_TOPIC, at="topic"),
        _rule("by name or ID", DELETE_IN_CLUSTER, DELETE_TOPIC, at="topic"),
    ),
    Api.DELETE_RECORDS: (_rule("each topic", DELETE_TOPIC, at="partition"),),
    Api.INIT_PRODUCER_ID: (
        _rule("transactional ID", WRITE_TRANSACTIONAL_ID, at="top level"),
        _rule("transactional ID, enable_2pc", TWO_PHASE_COMMIT, at="top level"),
        _rule(
            "no transactional ID; WRITE of at least one topic suffices",
            WRITE_TOPIC,
            WRITE_IDEMPOTENTLY,
            at="top level",
        ),
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: (
        _rule("each topic", ACT_AS_BROKER, DESCRIBE_TOPIC, at="partition"),
    ),
    Api.ADD_PARTITIONS_TO_TXN: (
        _rule("v0-3: transactional ID", WRITE_TRANSACTIONAL_ID, at="every partition"),
        _rule("v0-3: each topic", WRITE_TOPIC, at="partition"),
        _rule("v4+: brokers only", ACT_AS_BROKER, at="top level"),
    ),
    Api.ADD_OFFSETS_TO_TXN: (
        _rule("transactional ID", WRITE_TRANSACTIONAL_ID, at="top level"),
        _rule("the group", READ_GROUP, at="top level"),
    ),
    Api.END_TXN: (_rule("transactional ID", WRITE_TRANSACTIONAL_ID, at="top level"),),
    Api.WRITE_TXN_MARKERS: (
        _rule("always", ALTER_CLUSTER, ACT_AS_BROKER, at="every partition of every marker"),
    ),
    Api.TXN_OFFSET_COMMIT: (
        _rule("transactional ID", WRITE_TRANSACTIONAL_ID, at="every partition"),
        _rule("the group", READ_GROUP, at="every partition"),
        _rule("each topic", READ_TOPIC, at="partition"),
    ),
    Api.DESCRIBE_ACLS: (_rule("always", DESCRIBE_CLUSTER, at="top level"),),
    Api.CREATE_ACLS: (_rule("always", ALTER_CLUSTER, at="every result"),),
    Api.DELETE_ACLS: (_rule("always", ALTER_CLUSTER, at="every filter result"),),
    Api.DESCRIBE_CONFIGS: (
        _rule("a topic", DESCRIBE_TOPIC_CONFIGS, at="resource"),
        _rule("a broker, loggers, client metrics", DESCRIBE_CLUSTER_CONFIGS, at="resource"),
        _rule("a group", DESCRIBE_GROUP_CONFIGS, at="resource"),
    ),
    Api.ALTER_CONFIGS: (
        _ALTERED_TOPIC,
        _rule("a broker, client metrics", ALTER_CLUSTER_CONFIGS, at="resource"),
        _ALTERED_GROUP,
    ),
    Api.INCREMENTAL_ALTER_CONFIGS: (
        _ALTERED_TOPIC,
        _rule("a broker, loggers, client metrics", ALTER_CLUSTER_CONFIGS, at="resource"),
        _ALTERED_GROUP,
    ),
    Api.DESCRIBE_LOG_DIRS: (_rule("always", DESCRIBE_CLUSTER, at="top level"),),
    Api.SASL_AUTHENTICATE: (),
    Api.CREATE_PARTITIONS: (_rule("each topic", ALTER_TOPIC, at="topic"),),
    Api.CREATE_DELEGATION_TOKEN: (
        _rule("owner is not the requester", CREATE_TOKENS, at="top level"),
    ),
    Api.RENEW_DELEGATION_TOKEN: (),
    Api.EXPIRE_DELEGATION_TOKEN: (),
    Api.DESCRIBE_DELEGATION_TOKEN: (
        _rule(
            "token of another user",
            DESCRIBE_TOKEN,
            DESCRIBE_TOKENS,
            at="token is left out",
            error=None,
        ),
    ),
    Api.DELETE_GROUPS: (_rule("each group", DELETE_GROUP, at="group"),),
    Api.ELECT_LEADERS: (_rule("always", ALTER_CLUSTER, at="top level (v1+) and every partition"),),
    Api.ALTER_PARTITION_REASSIGNMENTS: (
        _rule("always", ALTER_CLUSTER, at="top level and every partition"),
    ),
    Api.LIST_PARTITION_REASSIGNMENTS: (_rule("always", DESCRIBE_CLUSTER, at="top level"),),
    Api.OFFSET_DELETE: (
        _rule("the group", DELETE_GROUP, at="top level"),
        _rule("each topic", READ_TOPIC, at="partition"),
    ),
    Api.DESCRIBE_CLIENT_QUOTAS: (_rule("always", DESCRIBE_CLUSTER_CONFIGS, at="top level"),),
    Api.ALTER_CLIENT_QUOTAS: (_rule("always", ALTER_CLUSTER_CONFIGS, at="every entry"),),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        _rule("always", DESCRIBE_CLUSTER, at="top level and every result"),
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (_rule("always", ALTER_CLUSTER, at="every user"),),
    Api.ENVELOPE: (_rule("always", ACT_AS_BROKER, at="top level"),),
    Api.DESCRIBE_CLUSTER: (
        _rule("authorized operations", DESCRIBE_CLUSTER, at="field is 0", error=None),
    ),
    Api.DESCRIBE_PRODUCERS: (_rule("each topic", READ_TOPIC, at="partition"),),
    Api.DESCRIBE_TRANSACTIONS: (
        _rule("each ID", DESCRIBE_TRANSACTIONAL_ID, at="transaction"),
        _rule("topics in it", DESCRIBE_TOPIC, at="topic is left out", error=None),
    ),
    Api.LIST_TRANSACTIONS: (
        _rule("each ID", DESCRIBE_TRANSACTIONAL_ID, at="transaction is left out", error=None),
    ),
    Api.CONSUMER_GROUP_HEARTBEAT: (
        _rule("the group", READ_GROUP, at="top level"),
        _rule("subscribed_topic_names", DESCRIBE_TOPIC, at="top level"),
        _rule("subscribed_topic_regex", DESCRIBE_TOPIC, at="topic does not match", error=None),
    ),
    Api.CONSUMER_GROUP_DESCRIBE: (
        _rule("each group", DESCRIBE_GROUP, at="group"),
        _rule("topics of assignments", DESCRIBE_TOPIC, at="group, members are empty"),
    ),
    Api.LIST_CONFIG_RESOURCES: (_rule("always", DESCRIBE_CLUSTER_CONFIGS, at="top level"),),
    Api.DESCRIBE_TOPIC_PARTITIONS: (
        _rule("named topics", DESCRIBE_TOPIC, at="topic"),
        _rule("all topics", DESCRIBE_TOPIC, at="topic is left out", error=None),
    ),
}

ASKED_BY: Mapping[int, frozenset[Permission]] = {
    api: frozenset(permission for rule in rules for permission in rule.needs)
    for api, rules in RULES.items()
}
"""API -> the permissions that its handler may ask for."""
