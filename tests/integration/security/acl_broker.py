"""A broker with an authorizer, its super user `admin`, and users whose ACLs tests change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.security.sasl_broker import plain_jaas
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.errors import ErrorCode
from ottla.core.security.permissions import Permission

PASSWORDS = {name: f"{name}-secret" for name in ("admin", "alice", "bob")}
EVERYTHING = {
    "resource_type_filter": AclResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}
"""A filter that matches all ACLs."""


def acl_properties(listener: str = "SASL_PLAINTEXT", **more: str) -> dict[str, str]:
    """Return the properties of a broker whose clients and brokers use one SASL listener."""
    return {
        "listeners": f"{listener}://127.0.0.1:0",
        "listener.security.protocol.map": f"{listener}:SASL_PLAINTEXT",
        "inter.broker.listener.name": listener,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": plain_jaas(PASSWORDS).replace(
            " required ", ' required username="admin" password="admin-secret" '
        ),
        "authorizer.class.name": "ottla",
        "super.users": "User:admin",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def log_in(port: int, user: str) -> RawClient:
    client = RawClient(port)
    assert client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN").error_code == ErrorCode.NONE
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    assert client.call(Api.SASL_AUTHENTICATE, auth_bytes=token).error_code == ErrorCode.NONE
    return client


def acl(
    permission: Permission,
    name: str = "kafka-cluster",
    *,
    principal: str = "User:alice",
    is_denied: bool = False,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    operation: AclOperation | None = None,
) -> AclBinding:
    """Return the ACL that grants or denies a permission."""
    return AclBinding(
        permission.type,
        pattern,
        name,
        principal,
        host,
        permission.operation if operation is None else operation,
        AclPermission.DENY if is_denied else AclPermission.ALLOW,
    )


def create_acls(admin: RawClient, *bindings: AclBinding) -> None:
    answer = admin.call(Api.CREATE_ACLS, creations=[creation(each) for each in bindings])
    assert [each.error_code for each in answer.results] == [0] * len(bindings), answer


def creation(binding: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": binding.resource_type,
        "resource_name": binding.name,
        "resource_pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }


def filter_of(binding: AclBinding) -> dict[str, Any]:
    return {
        "resource_type_filter": binding.resource_type,
        "resource_name_filter": binding.name,
        "pattern_type_filter": binding.pattern_type,
        "principal_filter": binding.principal,
        "host_filter": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }


def delete_acls(admin: RawClient, *bindings: AclBinding) -> None:
    answer = admin.call(Api.DELETE_ACLS, filters=[filter_of(each) for each in bindings])
    for result in answer.filter_results:
        assert (result.error_code, len(result.matching_acls)) == (0, 1), answer


def delete_all_acls(admin: RawClient) -> None:
    answer = admin.call(Api.DELETE_ACLS, filters=[EVERYTHING])
    assert answer.filter_results[0].error_code == 0


def described(client: RawClient, **filter: object) -> set[AclBinding]:
    """Return the ACLs that a filter matches."""
    answer = client.call(Api.DESCRIBE_ACLS, **{**EVERYTHING, **filter})
    assert answer.error_code == 0, answer
    return {
        AclBinding(
            AclResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            each.principal,
            each.host,
            AclOperation(each.operation),
            AclPermission(each.permission_type),
        )
        for resource in answer.resources
        for each in resource.acls
    }


def fetch_request(
    topic_id: bytes | None = None,
    *,
    offset: int = 0,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
    min_bytes: int = 0,
) -> Mapping[str, Any]:
    """Return the body of a Fetch in the newest version."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [] if topic_id is None else [{"topic_id": topic_id, "partitions": [partition]}]
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
