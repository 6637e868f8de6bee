"""Real-time queries over TLS: the planner, the tasks' sources and the tasks' sinks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.spark.realtime.test_real_time import committed, wait_until

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing.broker import BrokerProcess

pytestmark = [needs_openssl, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> dict[str, str]:
    own = authority.sign("spark", "DNS:localhost")
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.certificate,
        "ssl.certificate.location": own.certificate,
        "ssl.key.location": own.key,
    }


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker that requires a certificate of its clients, and return its TLS address."""
    signed = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    store = tmp_path_factory.mktemp("broker") / "broker.pem"
    store.write_text(Path(signed.key).read_text() + Path(signed.certificate).read_text())
    properties = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.client.auth": "required",
    }
    with BrokerProcess(overrides=properties) as running:
        yield f"127.0.0.1:{running.ports['SSL']}"


def test_records_pass_through_a_real_time_query_over_tls(
    spark: Any, broker: str, client: dict[str, str], tmp_path: Path
) -> None:
    with Admin(broker, profile=client) as admin:
        admin.create_topics(NewTopic("in", 2), NewTopic("out", 1))
    options = {f"kafka.{name}": value for name, value in client.items()}
    options["kafka.bootstrap.servers"] = broker
    checkpoint = str(tmp_path / "checkpoint")

    def start() -> Any:
        rows = spark.readStream.format("ottla").options(**options, subscribe="in")
        rows = rows.option("startingOffsets", "earliest").load()
        writer = rows.selectExpr("upper(string(value)) value").writeStream.format("ottla")
        writer = writer.options(**options, topic="out", checkpointLocation=checkpoint)
        return writer.outputMode("update").trigger(realTime="5 seconds").start()

    for run, values in enumerate((["a", "b"], ["c", "d"]), 1):
        with Producer(broker, profile=client) as producer:
            for partition, value in enumerate(values):
                producer.send("in", value.encode(), partition=partition)
        query = start()
        try:
            wait_until(lambda query=query, run=run: _has_committed(query, checkpoint, run))
        finally:
            query.stop()
    with Consumer(broker, profile=client) as consumer:
        consumer.assign([TopicPartition("out", 0)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < 4:
            found += [each.value for each in consumer.poll(timeout_s=10)]
    assert sorted(map(str, found)) == ["b'A'", "b'B'", "b'C'", "b'D'"], "the second run continues"


def _has_committed(query: Any, checkpoint: str, count: int) -> bool:
    """Return whether the query has committed a number of records of each partition."""
    assert query.exception() is None, query.exception()
    return committed(checkpoint) == {"0": count, "1": count}
