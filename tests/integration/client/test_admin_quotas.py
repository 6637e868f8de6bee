"""Admin calls for quotas."""

from __future__ import annotations

import pytest
from tests.raw_client import eventually

from ottla.base.errors import ErrorCode
from ottla.client.admin import Admin, QuotaEntity
from ottla.client.errors import ClientError


def test_quotas_are_set_described_and_taken_back(admin: Admin, topic: str) -> None:
    both = QuotaEntity.of(user=topic, client_id=None)
    admin.alter_client_quotas(both, {"producer_byte_rate": 1024.0, "request_percentage": 50.0})
    wanted = (("user", topic), ("client-id", ""))
    found = eventually(lambda: admin.describe_client_quotas(*wanted))
    assert found == {both: {"producer_byte_rate": 1024.0, "request_percentage": 50.0}}
    assert admin.describe_client_quotas(("user", topic)) == {}
    assert both in admin.describe_client_quotas(("user", topic), strict=False)
    assert both in admin.describe_client_quotas(("user", None), ("client-id", None))
    admin.alter_client_quotas(both, {"producer_byte_rate": None, "request_percentage": None})
    eventually(lambda: admin.describe_client_quotas(*wanted), lambda quotas: not quotas)
    with pytest.raises(ClientError) as failure:
        admin.alter_client_quotas(both, {"no_such_quota": 1.0})
    assert failure.value.code is ErrorCode.INVALID_REQUEST
