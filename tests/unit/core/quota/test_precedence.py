"""The order of precedence of quotas, compared with Kafka's list of paths."""

from __future__ import annotations

import itertools

import pytest

from ottla.base.quota import DEFAULT, QuotaEntity, QuotaKey
from ottla.core.quota.precedence import QuotaTable

RATE = QuotaKey.PRODUCER_BYTE_RATE
ALICE, APP = QuotaEntity("alice"), QuotaEntity(client_id="app")
BOTH = QuotaEntity("alice", "app")

ORDER = [
    (QuotaEntity("alice", "app"), BOTH),
    (QuotaEntity("alice", DEFAULT), BOTH),
    (QuotaEntity("alice"), ALICE),
    (QuotaEntity(DEFAULT, "app"), BOTH),
    (QuotaEntity(DEFAULT, DEFAULT), BOTH),
    (QuotaEntity(DEFAULT), ALICE),
    (QuotaEntity(client_id="app"), APP),
    (QuotaEntity(client_id=DEFAULT), APP),
]
"""Kafka's order, and who shares the quota of each entity."""


@pytest.mark.parametrize("present", list(itertools.product([False, True], repeat=len(ORDER))))
def test_the_first_entity_with_the_key_decides(present: tuple[bool, ...]) -> None:
    quotas = {
        entity: {RATE: float(rank + 1)}
        for rank, ((entity, _), exists) in enumerate(zip(ORDER, present, strict=True))
        if exists
    }
    found = QuotaTable(quotas).of_client(RATE, "alice", "app")
    if not any(present):
        assert found is None
        return
    rank = present.index(True)
    assert found == (RATE, rank + 1, ORDER[rank][1])


def test_quotas_of_others_do_not_apply() -> None:
    others = (QuotaEntity("bob", "app"), QuotaEntity("alice", "other"), QuotaEntity("bob"))
    table = QuotaTable({entity: {RATE: 1.0} for entity in others})
    assert table.of_client(RATE, "alice", "app") is None


def test_each_key_has_an_order_of_its_own() -> None:
    fetch = QuotaKey.CONSUMER_BYTE_RATE
    table = QuotaTable({BOTH: {RATE: 1.0}, QuotaEntity(DEFAULT): {RATE: 2.0, fetch: 3.0}})
    assert table.of_client(RATE, "alice", "app") == (RATE, 1.0, BOTH)
    assert table.of_client(fetch, "alice", "app") == (fetch, 3.0, ALICE)


def test_a_client_without_an_id_has_the_default_of_clients() -> None:
    table = QuotaTable({QuotaEntity(client_id=DEFAULT): {RATE: 1.0}})
    assert table.of_client(RATE, "alice", "") == (RATE, 1.0, QuotaEntity(client_id=""))


def test_an_address_has_its_own_quota_or_the_default() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    table = QuotaTable(
        {QuotaEntity(ip="10.0.0.1"): {key: 5.0}, QuotaEntity(ip=DEFAULT): {key: 9.0}}
    )
    assert table.of_address(key, "10.0.0.1") == (key, 5.0, QuotaEntity(ip="10.0.0.1"))
    assert table.of_address(key, "10.0.0.2") == (key, 9.0, QuotaEntity(ip="10.0.0.2"))
    assert table.limits_addresses
    assert not table.limits_clients
