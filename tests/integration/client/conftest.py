"""Fixtures to run Ottla's clients against Ottla's broker or another one.

OTTLA_TEST_BOOTSTRAP names the other one; `make compat` sets it to an Apache Kafka broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest
from tests.integration.client.foreign import FOREIGN, ForeignBroker, PatientClient
from tests.raw_client import RawClient

from ottla.client.admin import Admin
from ottla.testing.broker import BrokerProcess

OWN_BROKERS = frozenset({"broker", "bootstrap", "client", "raw", "admin"})
_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that start a broker of their own: they would not test the foreign one."""
    if FOREIGN is None:
        return
    for item in items:
        if OWN_BROKERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.skip(reason="starts a broker of its own"))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> BrokerProcess | ForeignBroker:
    if FOREIGN is not None:
        return ForeignBroker(FOREIGN)
    started: BrokerProcess = request.getfixturevalue("broker")  # the outer fixture
    return started


@pytest.fixture
def bootstrap(broker: BrokerProcess | ForeignBroker) -> str:
    return broker.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap, default_api_timeout_ms=15_000) as client:
        yield client


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    host, _, port = bootstrap.rpartition(":")
    with PatientClient(int(port), host) as client:
        yield client


@pytest.fixture
def client(raw: RawClient) -> RawClient:
    return raw


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses, nor an earlier run on the same broker."""
    return f"client-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"
