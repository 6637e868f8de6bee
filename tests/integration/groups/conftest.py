"""A broker for group tests: short sessions, no initial rebalance delay, few offsets partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.raw_client import Api, RawClient

from ottla.testing.broker import BrokerProcess

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
    "offsets.retention.check.interval.ms": "100",
}
_numbers = count(1)


@pytest.fixture(scope="package")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        with RawClient(process.port) as client:
            client.call(Api.FIND_COORDINATOR, 0, key="any")
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    """Start a broker that the test may kill."""
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        yield process


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"
