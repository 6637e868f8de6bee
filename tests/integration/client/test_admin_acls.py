"""Admin calls for ACLs, on a broker without an authorizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.acl import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import ErrorCode
from ottla.client.admin import Admin
from ottla.client.errors import ClientError

ACL = AclBinding(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.describe_acls(),
        lambda admin: admin.create_acls(ACL),
        lambda admin: admin.delete_acls(AclFilter()),
    ],
)
def test_a_cluster_without_an_authorizer_refuses(admin: Admin, call: Callable[..., Any]) -> None:
    with pytest.raises(ClientError) as raised:
        call(admin)
    assert raised.value.code is ErrorCode.SECURITY_DISABLED
    assert "authorizer" in str(raised.value).lower()
