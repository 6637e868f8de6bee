"""Limits on new connections (KIP-402, KIP-612)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from tests.integration.quotas.greedy import set_quotas
from tests.raw_client import ConnectionClosed, RawClient

from ottla.client.admin import QuotaEntity
from ottla.testing.broker_thread import BrokerThread

TWO_LISTENERS = {
    "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


@contextlib.contextmanager
def running(**overrides: str) -> Iterator[BrokerThread]:
    properties = {name.replace("__", "."): value for name, value in overrides.items()}
    with BrokerThread(overrides=properties) as broker:
        yield broker


@contextlib.contextmanager
def two_listeners(**limits: str) -> Iterator[tuple[int, int]]:
    properties = {name.replace("__", "."): value for name, value in limits.items()}
    with BrokerThread(overrides={**TWO_LISTENERS, **properties}) as broker:
        yield broker.broker.ports["INTERNAL"], broker.broker.ports["EXTERNAL"]


def is_served(client: RawClient) -> bool:
    try:
        client.assert_is_silent()
    except (ConnectionClosed, ConnectionError):
        return False
    return True


def test_an_address_over_its_rate_is_closed_after_a_window() -> None:
    with running(quota__window__num="2") as broker:
        set_quotas(broker, QuotaEntity.of(ip="127.0.0.1"), connection_creation_rate=5)
        begin = time.monotonic()
        clients = [RawClient(broker.port) for _ in range(12)]
        served = [is_served(client) for client in clients]
        elapsed_s = time.monotonic() - begin
        assert 5 <= served.count(True) <= 6 + 6 * elapsed_s
        assert served[:5] == [True] * 5
        assert not served[-1]
        assert elapsed_s >= 0.5
        refused = broker.call(lambda: broker.broker.server.admission.throttled)
        assert refused == served.count(False)
        for client in clients:
            client.close()


@pytest.mark.parametrize("count", [500, pytest.param(5_000, marks=pytest.mark.chaos)])
def test_many_quick_connections_are_limited(count: int) -> None:
    with running(quota__window__num="2") as broker:
        server = broker.broker.server
        set_quotas(broker, QuotaEntity.of(ip=None), connection_creation_rate=50)
        before = broker.call(lambda: server.connections_accepted - server.admission.throttled)
        begin = time.monotonic()
        for _ in range(count):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", broker.port), 30).close()
        elapsed_s = time.monotonic() - begin
        admitted = broker.call(lambda: server.connections_accepted - server.admission.throttled)
        assert admitted - before <= 50 * (1 + elapsed_s + 1) * 1.05
        assert_is_still_served(broker)


def assert_is_still_served(broker: BrokerThread) -> None:
    """Assert that a client that is patient can still connect."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with RawClient(broker.port) as client:
            if is_served(client):
                return
    raise AssertionError("no connection is served any more")


def test_a_listener_has_a_limit_of_its_own() -> None:
    limits = {"listener__name__external__max__connections": "2"}
    with two_listeners(**limits) as (internal, external):
        clients = [RawClient(external) for _ in range(3)]
        assert [is_served(client) for client in clients] == [True, True, False]
        others = [RawClient(internal) for _ in range(3)]
        assert all(is_served(client) for client in others)
        for client in (*clients, *others):
            client.close()


def test_the_limit_of_the_broker_does_not_stop_brokers() -> None:
    with two_listeners(max__connections="3") as (internal, external):
        clients = [RawClient(external) for _ in range(4)]
        assert [is_served(client) for client in clients] == [True, True, True, False]
        peer = RawClient(internal)
        assert is_served(peer)
        assert [is_served(client) for client in clients[:3]].count(True) == 2
        for client in (*clients, peer):
            client.close()


def test_the_rate_of_a_listener_makes_its_connections_wait() -> None:
    limits = {"listener__name__external__max__connection__creation__rate": "4"}
    with two_listeners(**limits) as (internal, external):
        begin = time.monotonic()
        clients = [RawClient(external) for _ in range(8)]
        others = [RawClient(internal) for _ in range(8)]
        assert all(is_served(client) for client in others)
        assert all(is_served(client) for client in clients)
        assert time.monotonic() - begin >= 0.7
        for client in (*clients, *others):
            client.close()


def test_the_rate_of_the_broker_does_not_delay_brokers() -> None:
    with two_listeners(max__connection__creation__rate="1") as (internal, external):
        waiting = [RawClient(external) for _ in range(30)]
        peers = [RawClient(internal) for _ in range(5)]
        begin = time.monotonic()
        assert all(is_served(client) for client in peers)
        assert time.monotonic() - begin < 20
        for client in (*waiting, *peers):
            client.close()
