"""The cluster: its configs, ACLs, users, quotas, tokens, replicas and brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.integration.security.acl_broker import EVERYTHING
from tests.integration.security.authorization.case import (
    TOKEN_OWNER,
    Body,
    Case,
    Listener,
    Subject,
    case,
    partition_codes,
    shown,
    since,
    without_details,
)
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.errors import ErrorCode as E
from ottla.wire import codec
from ottla.wire.principal_data import PrincipalData, encode_principal

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NODE_ID = "1"
SIZE_BYTES = 4
NOBODY = "nobody"
"""User that does not exist."""
WAIT = {"timeout_ms": 10_000}
INVALID_ACL = {
    "resource_type": AclResourceType.CLUSTER,
    "resource_name": "there is only kafka-cluster",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": AclOperation.ALTER,
    "permission_type": AclPermission.ALLOW,
}
NO_ACL = {**EVERYTHING, "principal_filter": f"User:{NOBODY}"}
"""A filter that matches nothing."""


def top_level(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code]


def in_results(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.results]


def described_configs(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (resource,) = answer.results
    return without_details(resource.error_code, resource.configs)


def in_responses(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.responses]


def in_entries(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.entries]


# ---------------------------------------------------------------------------------------- configs


def resource(type: int, subject: Subject) -> dict[str, Any]:
    names = {TOPIC: subject.topic, GROUP: subject.group, CLIENT_METRICS: "metrics"}
    return {"resource_type": type, "resource_name": names.get(type, NODE_ID)}


CONFIGS = {
    TOPIC: ("retention.ms", "60000"),
    BROKER: ("log.cleaner.threads", "1"),
    BROKER_LOGGER: ("root", "INFO"),
    CLIENT_METRICS: ("interval.ms", "60000"),
    GROUP: ("consumer.session.timeout.ms", "50000"),
}
"""Type of a resource -> a config that it may have."""
LABELS = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "loggers",
    CLIENT_METRICS: "client metrics",
    GROUP: "group",
}
"""Type of a resource -> the name of the case."""
MISSING = {TOPIC: {E.UNKNOWN_TOPIC_OR_PARTITION}, GROUP: {0}}


def config_case(api: Api, type: int) -> Case:
    """Return the case of an API for a type of resources."""
    of_cluster = (
        "a broker, client metrics"
        if api == Api.ALTER_CONFIGS
        else "a broker, loggers, client metrics"
    )
    when = {TOPIC: "a topic", GROUP: "a group"}.get(type, of_cluster)
    name, value = CONFIGS[type]

    def describe(subject: Subject, _: int) -> Body:
        return {"resources": [{**resource(type, subject), "configuration_keys": None}]}

    def alter(subject: Subject, _: int) -> Body:
        change = {"name": name, "value": value}
        if api == Api.INCREMENTAL_ALTER_CONFIGS:
            change["config_operation"] = 0
        resources = [{**resource(type, subject), "configs": [change]}]
        return {"resources": resources, "validate_only": True}

    describes = api == Api.DESCRIBE_CONFIGS
    allowed = {0, E.INVALID_REQUEST} if type == CLIENT_METRICS else {0}  # Ottla has no metrics
    return case(
        api,
        when,
        label=LABELS[type],
        body=describe if describes else alter,
        codes=described_configs if describes else in_responses,
        allowed=allowed,
        missing=MISSING.get(type),
    )


# ---------------------------------------------------------------------------- users, ACLs, tokens


def described_users(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code, *(each.error_code for each in answer.results)]


def create_token(_: Subject, __: int) -> Body:
    return {
        "owner_principal_type": "User",
        "owner_principal_name": TOKEN_OWNER,
        "renewers": [],
        "max_lifetime_ms": -1,
    }


def described_tokens(answer: Any, subject: Subject, _: int) -> Iterable[int]:
    listed = subject.token_id in [each.token_id for each in answer.tokens]
    return [answer.error_code] if answer.error_code else shown(listed)


def quota(_: Subject, __: int) -> Body:
    entity = [{"entity_type": "user", "entity_name": NOBODY}]
    change = {"key": "producer_byte_rate", "value": 1024.0, "remove": False}
    return {"entries": [{"entity": entity, "ops": [change]}], "validate_only": True}


# --------------------------------------------------------------------------- replicas and brokers


def log_dirs(answer: Any, _: Subject, version: int) -> Iterable[int]:
    """Return the code; older versions have no field for it, only a response without results."""
    if version >= 3:
        return [answer.error_code]
    return [0 if answer.results else E.CLUSTER_AUTHORIZATION_FAILED]


def elect_leaders(subject: Subject, _: int) -> Body:
    partitions = [{"topic": subject.topic, "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": partitions, **WAIT}


def elected_leaders(answer: Any, _: Subject, version: int) -> Iterable[int]:
    codes = partition_codes(answer.replica_election_results, "partition_result")
    return [*([answer.error_code] if version >= 1 else []), *codes]


def cancel_reassignment(subject: Subject, _: int) -> Body:
    partition = {"partition_index": 0, "replicas": None}
    return {"topics": [{"name": subject.topic, "partitions": [partition]}], **WAIT}


def cancelled_reassignments(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code, *partition_codes(answer.responses)]


def cluster_operations(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return shown(answer.cluster_authorized_operations != 0)


def forward(client: RawClient, _: Subject, version: int) -> Iterable[int]:
    """Forward a request of a user, as brokers do."""
    pieces = codec.encode_request(
        Api.LIST_PARTITION_REASSIGNMENTS, 0, 7, "forwarded", {"topics": None, **WAIT}
    )
    answer = client.call(
        Api.ENVELOPE,
        version,
        request_data=b"".join(pieces)[SIZE_BYTES:],
        request_principal=encode_principal(PrincipalData("User", NOBODY)),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    return [answer.error_code]


CASES = [
    *(
        config_case(api, type)
        for api in (Api.DESCRIBE_CONFIGS, Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS)
        for type in LABELS
        if (api, type) != (Api.ALTER_CONFIGS, BROKER_LOGGER)  # invalid for every client
    ),
    case(
        Api.LIST_CONFIG_RESOURCES,
        "always",
        body=lambda _, __: {"resource_types": []},
        codes=top_level,
    ),
    case(Api.DESCRIBE_ACLS, "always", body=lambda _, __: NO_ACL, codes=top_level),
    case(
        Api.CREATE_ACLS,
        "always",
        body=lambda _, __: {"creations": [INVALID_ACL, INVALID_ACL]},
        codes=in_results,
        allowed={E.INVALID_REQUEST},
    ),
    case(
        Api.DELETE_ACLS,
        "always",
        body=lambda _, __: {"filters": [NO_ACL, NO_ACL]},
        codes=lambda answer, _, __: [each.error_code for each in answer.filter_results],
    ),
    case(
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "always",
        body=lambda _, __: {"users": [{"name": NOBODY}]},
        codes=described_users,
        allowed={0, E.RESOURCE_NOT_FOUND},
    ),
    case(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        "always",
        body=lambda _, __: {"deletions": [{"name": NOBODY, "mechanism": 1}], "upsertions": []},
        codes=in_results,
        allowed={E.RESOURCE_NOT_FOUND},
    ),
    case(
        Api.CREATE_DELEGATION_TOKEN,
        "owner is not the requester",
        versions=since(Api.CREATE_DELEGATION_TOKEN, 3),
        body=create_token,
        codes=top_level,
    ),
    case(
        Api.DESCRIBE_DELEGATION_TOKEN,
        "token of another user",
        body=lambda _, __: {"owners": None},
        codes=described_tokens,
    ),
    case(
        Api.DESCRIBE_CLIENT_QUOTAS,
        "always",
        body=lambda _, __: {"components": [], "strict": False},
        codes=top_level,
    ),
    case(Api.ALTER_CLIENT_QUOTAS, "always", body=quota, codes=in_entries),
    case(
        Api.DESCRIBE_LOG_DIRS,
        "always",
        body=lambda _, __: {"topics": None},
        codes=log_dirs,
    ),
    case(
        Api.ELECT_LEADERS,
        "always",
        body=elect_leaders,
        codes=elected_leaders,
        allowed={0, E.ELECTION_NOT_NEEDED},
    ),
    case(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        "always",
        body=cancel_reassignment,
        codes=cancelled_reassignments,
        allowed={0, E.NO_REASSIGNMENT_IN_PROGRESS},
    ),
    case(
        Api.LIST_PARTITION_REASSIGNMENTS,
        "always",
        body=lambda _, __: {"topics": None, **WAIT},
        codes=top_level,
    ),
    case(
        Api.DESCRIBE_CLUSTER,
        "authorized operations",
        body=lambda _, __: {"include_cluster_authorized_operations": True},
        codes=cluster_operations,
    ),
    case(Api.ENVELOPE, "always", ask=forward, listener=Listener.CONTROLLER),
]
