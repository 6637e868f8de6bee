"""ACLs with the admin calls of librdkafka and kafka-python, beside our own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.compat.clients.record import TIMEOUT_S
from tests.integration.security.acl_broker import PASSWORDS, acl_properties

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.client.admin import Admin
from ottla.testing.broker import HOST, BrokerProcess

READ = AclBinding(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
ACLS = {
    READ,
    READ._replace(pattern_type=PatternType.PREFIXED, name="ord", operation=AclOperation.WRITE),
    READ._replace(
        resource_type=AclResourceType.GROUP,
        name="billing",
        host="10.0.0.1",
        permission=AclPermission.DENY,
    ),
    READ._replace(
        resource_type=AclResourceType.CLUSTER,
        name="kafka-cluster",
        operation=AclOperation.IDEMPOTENT_WRITE,
    ),
    READ._replace(
        resource_type=AclResourceType.TRANSACTIONAL_ID, name="t", operation=AclOperation.DESCRIBE
    ),
}
MATCHING = {each for each in ACLS if each.applies_to(AclResourceType.TOPIC, "orders")}


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides=acl_properties()) as broker:
        yield broker


def address(broker: BrokerProcess) -> str:
    return f"{HOST}:{broker.ports['SASL_PLAINTEXT']}"


@pytest.fixture
def ours(secured: BrokerProcess) -> Iterator[Admin]:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": PASSWORDS["admin"],
    }
    with Admin(address(secured), profile=properties) as admin:
        yield admin
        admin.delete_acls(AclFilter())


def test_confluent_kafka_creates_describes_and_deletes(secured: BrokerProcess, ours: Admin) -> None:
    kafka = pytest.importorskip("confluent_kafka.admin")
    admin = kafka.AdminClient(
        {
            "bootstrap.servers": address(secured),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
        }
    )

    def theirs(acl: AclBinding) -> object:
        return kafka.AclBinding(
            kafka.ResourceType[
                "BROKER" if acl.resource_type is AclResourceType.CLUSTER else acl.resource_type.name
            ],
            acl.name,
            kafka.ResourcePatternType[acl.pattern_type.name],
            acl.principal,
            acl.host,
            kafka.AclOperation[acl.operation.name],
            kafka.AclPermissionType[acl.permission.name],
        )

    def matching(pattern: str) -> object:
        return kafka.AclBindingFilter(
            kafka.ResourceType.TOPIC,
            "orders",
            kafka.ResourcePatternType[pattern],
            None,
            None,
            kafka.AclOperation.ANY,
            kafka.AclPermissionType.ANY,
        )

    for future in admin.create_acls([theirs(each) for each in ACLS]).values():
        assert future.result(TIMEOUT_S) is None
    assert set(ours.describe_acls()) == ACLS
    described = admin.describe_acls(matching("MATCH")).result(TIMEOUT_S)
    assert set(described) == {theirs(each) for each in MATCHING}
    (deleted,) = admin.delete_acls([matching("MATCH")]).values()
    assert set(deleted.result(TIMEOUT_S)) == {theirs(each) for each in MATCHING}
    assert set(ours.describe_acls()) == ACLS - MATCHING
    wrong = theirs(READ._replace(host="nowhere"))
    (refused,) = admin.create_acls([wrong]).values()
    with pytest.raises(Exception, match="'nowhere' is not a host"):
        refused.result(TIMEOUT_S)


def test_kafka_python_creates_describes_and_deletes(secured: BrokerProcess, ours: Admin) -> None:
    kafka = pytest.importorskip("kafka.admin")
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=address(secured),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORDS["admin"],
    )

    def theirs(acl: AclBinding) -> object:
        pattern = kafka.ResourcePattern(
            kafka.ResourceType[acl.resource_type.name],
            acl.name,
            kafka.ACLResourcePatternType[acl.pattern_type.name],
        )
        return kafka.ACL(
            acl.principal,
            acl.host,
            kafka.ACLOperation[acl.operation.name],
            kafka.ACLPermissionType[acl.permission.name],
            pattern,
        )

    matching = kafka.ACLFilter(
        None,
        None,
        kafka.ACLOperation.ANY,
        kafka.ACLPermissionType.ANY,
        kafka.ResourcePatternFilter(
            kafka.ResourceType.TOPIC, "orders", kafka.ACLResourcePatternType.MATCH
        ),
    )
    try:
        created = admin.create_acls([theirs(each) for each in ACLS])
        assert (len(created["succeeded"]), created["failed"]) == (len(ACLS), [])
        assert set(ours.describe_acls()) == ACLS
        described, _ = admin.describe_acls(matching)
        assert set(described) == {theirs(each) for each in MATCHING}
        ((_, deleted, error),) = admin.delete_acls([matching])
        assert set(deleted) == {theirs(each) for each in MATCHING}
        assert error.errno == 0
        assert set(ours.describe_acls()) == ACLS - MATCHING
    finally:
        admin.close()
