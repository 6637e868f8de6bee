"""A shared broker for tests that do not restart, fill or configure it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess

_numbers = count(1)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(strict=True, overrides=overrides) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"topic-{next(_numbers)}"
