"""Fixtures: a broker for each test file, and a worker for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connect.workers import Standalone

from ottla.testing.broker_thread import BrokerThread


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as made:
        yield made


@pytest.fixture
def worker(broker: BrokerThread, tmp_path: Path) -> Iterator[Standalone]:
    made = Standalone(broker.bootstrap, tmp_path)
    yield made
    made.close()
