from __future__ import annotations

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.cluster import BrokerRegistration, Endpoint
from ottla.base.errors import ErrorCode
from ottla.base.metadata import Create
from ottla.broker.handlers import describe_cluster
from ottla.metadata import tree


@pytest.mark.parametrize("version", versions(describe_cluster))
def test_the_cluster_is_described_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(
            describe_cluster, version, include_cluster_authorized_operations=True
        )
        assert int(answer.error_code) == 0
        assert answer.cluster_id == broker.image.cluster_id
        assert answer.controller_id == 1
        assert answer.cluster_authorized_operations == 8096
        (node,) = answer.brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (1, "localhost", 19092, "r1")

    with_broker(scenario, broker_rack="r1")


def test_authorized_operations_are_only_sent_on_request() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(describe_cluster, 2)
        assert answer.cluster_authorized_operations == -(2**31)

    with_broker(scenario)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described_here(endpoint_type: int, code: ErrorCode) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(describe_cluster, 1, endpoint_type=endpoint_type)
        assert int(answer.error_code) == code
        assert answer.brokers == ()

    with_broker(scenario)


@pytest.mark.parametrize("asked", [True, False])
def test_fenced_brokers_are_reported_only_when_asked_for(asked: bool) -> None:
    async def scenario(broker: FakeBroker) -> None:
        other = BrokerRegistration(2, 0, {"PLAINTEXT": Endpoint("other", 5)})
        op = Create(tree.registration_path(2), tree.encode_registration(other))
        await broker.follower.applied(await broker.store.txn([], [op]))
        answer = await broker.call(describe_cluster, 2, include_fenced_brokers=asked)
        nodes = [(node.broker_id, node.is_fenced) for node in answer.brokers]
        assert nodes == [(1, False), (2, True)][: 1 + asked]

    with_broker(scenario)


def test_a_broker_whose_lease_has_expired_is_fenced_before_its_session_ends() -> None:
    async def scenario(broker: FakeBroker) -> None:
        broker.image.set_presumed_dead([1])
        answer = await broker.call(describe_cluster, 2, include_fenced_brokers=True)
        assert [(node.broker_id, node.is_fenced) for node in answer.brokers] == [(1, True)]

    with_broker(scenario)
