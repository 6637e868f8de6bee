"""Fixtures: one Spark session for all tests, as it takes seconds to start, and a broker per file.

Tests use distinct names of topics, groups and checkpoints. OTTLA_TEST_BOOTSTRAP names another
broker to run them on; `make compat` sets it to one of Apache Kafka's."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.client.foreign import FOREIGN, ForeignBroker

from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = str(Path(__file__).parents[2] / "src")
_numbers = itertools.count(1)
ENDING = ("PrepareCommit", "PrepareAbort")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import ottla.spark

    # Spark's Python workers must import Ottla from this source tree too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    made = ottla.spark.session(
        "local[2]",
        app_name="ottla-tests",
        **{"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "1g"},
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread | ForeignBroker]:
    if FOREIGN is not None:
        yield ForeignBroker(FOREIGN)
        return
    with BrokerThread() as running:
        yield running


class Topic:
    """A topic of one test, with helpers to fill and read it."""

    def __init__(self, broker: Any, name: str, partitions: int) -> None:
        from ottla import Admin, NewTopic

        self.broker = broker
        self.name = name
        with Admin(broker.bootstrap) as admin:
            admin.create_topics(NewTopic(name, partitions))

    def fill(
        self, values: Sequence[bytes | str | None], *, partition: int = 0, **fields: Any
    ) -> None:
        from ottla import Producer

        with Producer(self.broker.bootstrap) as producer:
            for value in values:
                data = value.encode() if isinstance(value, str) else value
                producer.send(self.name, data, partition=partition, **fields)
            producer.flush()

    def values(self, *, committed: bool = True) -> list[str]:
        """Return all values, sorted, as a consumer reads them."""
        return sorted(value.decode() for _, value in self.records(committed=committed))

    def records(self, *, committed: bool = True) -> list[tuple[bytes | None, bytes]]:
        from ottla import Consumer, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        self._settle()
        found: list[tuple[bytes | None, bytes]] = []
        with Consumer(self.broker.bootstrap, isolation_level=level) as consumer:
            tps = [TopicPartition(self.name, each) for each in range(self.partition_count)]
            consumer.assign(tps)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(*tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found += [(each.key, each.value) for each in consumer.poll(timeout_s=1)]
        return found

    def _settle(self) -> None:
        """Wait for transaction markers: brokers confirm a commit before they have written these."""
        from ottla import Admin

        with Admin(self.broker.bootstrap) as admin:
            while admin.list_transactions(states=ENDING):
                time.sleep(0.02)

    @property
    def partition_count(self) -> int:
        from ottla import Admin

        with Admin(self.broker.bootstrap) as admin:
            return len(admin.describe_topics(self.name)[self.name].partitions)


@pytest.fixture
def make_topic(broker: BrokerThread) -> Callable[..., Topic]:
    return lambda partitions=1, name=None: Topic(
        broker, name or f"topic-{os.getpid()}-{next(_numbers)}", partitions
    )


class Reads:
    """Factory of batch and streaming DataFrames over topics of the broker."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def batch(self, options: Mapping[str, object], schema: str | None = None) -> DataFrame:
        reader = self._spark.read.format("ottla")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**self._all(options)).load()

    def stream(self, options: Mapping[str, object]) -> DataFrame:
        return self._spark.readStream.format("ottla").options(**self._all(options)).load()

    def _all(self, options: Mapping[str, object]) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self._bootstrap, **options}


@pytest.fixture
def reads(spark: SparkSession, broker: BrokerThread) -> Reads:
    return Reads(spark, broker.bootstrap)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
