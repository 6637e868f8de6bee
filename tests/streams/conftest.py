"""Fixtures: one Spark session for all tests of this folder, and one broker for each file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla.streams as st
from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("pyspark")

from ottla.streams.testing import TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOWEST_S = 400
"""Timeout of a test in seconds. A session starts in five seconds, on a busy machine in a minute."""
SOURCE = str(Path(__file__).parents[2] / "src")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_long = item.get_closest_marker("chaos") is not None  # has its own timeout
        if Path(__file__).parent in item.path.parents and not is_long:
            item.add_marker(pytest.mark.timeout(SLOWEST_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import ottla.spark

    # Spark's Python workers must import Ottla from this source tree too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
    }
    made = ottla.spark.session("local[3]", app_name="ottla-tests", **settings)
    made.conf.set("spark.sql.shuffle.partitions", "1")
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


@pytest.fixture
def drive(spark: SparkSession) -> Iterator[Callable[[st.App], TopologyDriver]]:
    drivers: list[TopologyDriver] = []

    def make(app: st.App) -> TopologyDriver:
        drivers.append(TopologyDriver(app, spark))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()
