"""Admin calls for ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.security.acl_broker import PASSWORDS, acl_properties

from ottla import AclBinding, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.errors import ErrorCode
from ottla.client.admin import Admin
from ottla.client.errors import AuthorizationFailed, ClientError, InvalidConfig
from ottla.testing.broker_thread import BrokerThread

READ = AclBinding(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
PREFIX = READ._replace(pattern_type=PatternType.PREFIXED, name="ord")
DENIAL = READ._replace(name="other", permission=AclPermission.DENY, host="10.0.0.0/8")
TOPICS = AclFilter(AclResourceType.TOPIC)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=acl_properties()) as broker:
        yield broker


def client(broker: BrokerThread, user: str) -> Admin:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
    return Admin(f"127.0.0.1:{broker.port}", profile=properties)


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[Admin]:
    with client(broker, "admin") as admin:
        yield admin
        admin.delete_acls(AclFilter())


def test_acls_are_created_described_and_deleted(admin: Admin) -> None:
    assert admin.create_acls(READ, [PREFIX, DENIAL]) == {READ: None, PREFIX: None, DENIAL: None}
    assert set(admin.describe_acls()) == {READ, PREFIX, DENIAL}
    matching = AclFilter(AclResourceType.TOPIC, PatternType.MATCH, "orders")
    assert set(admin.describe_acls(matching)) == {READ, PREFIX}
    assert admin.describe_acls(READ) == [READ]
    deleted = admin.delete_acls(READ, AclFilter(permission=AclPermission.DENY))
    assert list(deleted.values()) == [[READ], [DENIAL]]
    assert admin.describe_acls() == [PREFIX]
    assert admin.delete_acls(READ) == {AclFilter(*READ): []}


def test_an_acl_that_exists_is_created_with_success(admin: Admin) -> None:
    admin.create_acls(READ)
    assert admin.create_acls(READ) == {READ: None}
    assert admin.describe_acls() == [READ]


def test_each_acl_and_each_filter_has_its_own_outcome(admin: Admin) -> None:
    wrong = READ._replace(principal="alice")
    created = admin.create_acls(READ, wrong, return_errors=True)
    assert created == {READ: None}
    assert created.errors[wrong].code is ErrorCode.INVALID_REQUEST
    assert "Type:name" in str(created.errors[wrong])
    unknown = AclFilter(operation=AclOperation.UNKNOWN)
    deleted = admin.delete_acls(TOPICS, unknown, return_errors=True)
    assert deleted == {TOPICS: [READ]}
    assert deleted.errors[unknown].code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ClientError) as raised:
        admin.describe_acls(unknown)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_user_without_permission_is_refused(broker: BrokerThread, admin: Admin) -> None:
    admin.create_acls(READ)
    with client(broker, "alice") as alice:
        for call in (alice.describe_acls, lambda: alice.create_acls(READ)):
            with pytest.raises(AuthorizationFailed):
                call()
        with pytest.raises(AuthorizationFailed):
            alice.delete_acls(AclFilter())
    assert admin.describe_acls() == [READ]


def test_arguments_of_other_types_are_refused(admin: Admin) -> None:
    with pytest.raises(InvalidConfig, match="Expected ACLs"):
        admin.create_acls("orders")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="Expected filters of ACLs"):
        admin.delete_acls("orders")  # type: ignore[arg-type]
