"""A broker that all compatibility tests share, and the clients installed on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import count

import pytest
from tests.compat.clients.record import Client
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

_CLASSES = {
    "confluent-kafka": ("confluent", "Confluent", "confluent_kafka"),
    "kafka-python": ("kafka_python", "KafkaPython", "kafka"),
    "aiokafka": ("aio", "AioKafka", "aiokafka"),
    "kcat": ("kcat", "Kcat", None),
}
CLIENTS = tuple(_CLASSES)
LIBRARIES = CLIENTS[:3]
"""Clients with admin calls."""
_numbers = count(1)


def make_client(name: str, bootstrap: str) -> Client:
    module, class_name, package = _CLASSES[name]
    if package is None and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: `apt-get install {name}` brings it")
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{name} is not installed: the extra `dev` brings it")
    made: Client = getattr(import_module(f"tests.compat.clients.{module}"), class_name)(bootstrap)
    return made


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Client:
    return make_client(request.param, broker.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"compat.{next(_numbers)}"
