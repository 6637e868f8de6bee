"""What goes wrong around a consumer: Ctrl-C, a broker that dies, transactions that are aborted."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.raw_client import RawClient

from ottla import Consumer, Record, TopicPartition, read_table
from ottla.testing.broker import BrokerProcess

PROGRAM = Path(__file__).with_name("interrupted_consumer.py")
TIMEOUT_S = 30.0
FAST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
INTERRUPTS = 6


def said(bootstrap: str, kind: str, topic: str, after: int) -> list[int]:
    """What a consumer was handed until Ctrl-C, which came after so many lines."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, bootstrap, topic], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    while len(lines) <= after:
        line = process.stdout.readline()
        assert line, "it ended too early"
        lines.append(line)
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(TIMEOUT_S) == 0
    return [int(line) for line in [*lines, *rest.splitlines()] if int(line) >= 0]


@pytest.mark.parametrize("kind", ["singly", "polls"])
def test_ctrl_c_never_commits_what_was_not_handed_out(
    broker: BrokerProcess, client: RawClient, topic: str, kind: str
) -> None:
    client.create_topic(topic, retention_ms="-1")
    chance = random.Random(7)
    tp = TopicPartition(topic, 0)
    seen: set[int] = set()
    with Consumer(broker.bootstrap, group_id=topic) as watcher:
        for _ in range(INTERRUPTS):
            client.produce(topic, [(None, b"x", (), 1)] * 500)
            seen.update(said(broker.bootstrap, kind, topic, chance.randrange(1, 300)))
            committed = watcher.committed(tp)[tp]
            position = 0 if committed is None else committed.offset
            missing = set(range(position)) - seen
            assert not missing, f"{sorted(missing)[:5]} are committed, and nobody has seen them"
        assert position > 0, "something was committed"


def test_a_broker_that_is_killed_and_comes_back_is_read_on(tmp_path: Path) -> None:
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t", 2)
            for number in range(20):
                client.produce("t", [(None, b"%d" % number, (), 1)], number % 2)
        options = {**FAST, "group_id": "g", "max_poll_records": 3, "reconnect_backoff_max_ms": 200}
        with Consumer(broker.bootstrap, topics="t", **options) as consumer:
            seen: list[Record] = []
            while len(seen) < 5:
                seen += consumer.poll(TIMEOUT_S)
            broker.restart(kill=True)
            with RawClient(broker.port) as client:
                for number in range(20, 40):
                    client.produce("t", [(None, b"%d" % number, (), 1)], number % 2)
            while len(seen) < 40:
                records = consumer.poll(TIMEOUT_S)
                assert records, f"only {len(seen)}"
                seen += records
            assert sorted(int(record.value) for record in seen) == list(range(40))
            consumer.commit()
            committed = consumer.committed()
            assert [each and each.offset for each in committed.values()] == [20, 20]


def test_aborted_transactions_are_not_read(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    library = pytest.importorskip("confluent_kafka")
    client.create_topic(topic)
    producer = library.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    tp = TopicPartition(topic, 0)
    for isolation, expected in (("read_committed", [0, 2, 4]), ("read_uncommitted", [*range(6)])):
        with Consumer(broker.bootstrap, isolation_level=isolation, **FAST) as consumer:
            consumer.assign([tp])
            values: list[int] = []
            while len(values) < len(expected):
                values += [int(record.value) for record in consumer.poll(TIMEOUT_S)]
            assert values == expected
            assert consumer.poll(0.2) == []
            assert consumer.lag(tp) == 0, "markers count as read"
        table = read_table(broker.bootstrap, topic, columns=["value"], isolation_level=isolation)
        assert [int(value) for value in table["value"].to_pylist()] == expected


def test_an_open_transaction_holds_readers_of_committed_records_back(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    library = pytest.importorskip("confluent_kafka")
    client.create_topic(topic)
    client.produce(topic, [(None, b"before", (), 1)])
    producer = library.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"inside")
    producer.flush(TIMEOUT_S)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, isolation_level="read_committed", **FAST) as consumer:
        consumer.assign([tp])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"before"]
        assert consumer.end_offsets(tp) == {tp: 1}
        assert consumer.poll(0.2) == []
        producer.commit_transaction(TIMEOUT_S)
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"inside"]
