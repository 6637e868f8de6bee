"""Our clients against a broker: ours, or the one that OTTLA_TEST_BOOTSTRAP names (`make compat`
names Apache Kafka's)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest
from tests.raw_client import RawClient

from ottla.client.admin import Admin

_numbers = count(1)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if given:
        return given
    started: str = request.getfixturevalue("broker").bootstrap
    return started


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap, default_api_timeout_ms=15_000) as client:
        yield client


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    host, _, port = bootstrap.rpartition(":")
    with RawClient(int(port), host) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, nor an earlier run on the same broker."""
    return f"client-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"
