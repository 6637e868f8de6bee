"""Failures around a consumer: Ctrl-C, a broker that dies, aborted transactions."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.fake_broker import KNOWN, NODE_ID, Asked, FakeBroker, Stream
from tests.raw_client import RawClient

from ottla import (
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    Record,
    TopicPartition,
    read_table,
)
from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess
from ottla.wire.api import Api

PROGRAM = Path(__file__).with_name("interrupted_consumer.py")
TIMEOUT_S = 30.0
FAST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
INTERRUPTS = 6


def said(bootstrap: str, kind: str, topic: str, after: int) -> list[int]:
    """Return the offsets that a consumer received before Ctrl-C, sent after this many lines."""
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


class Restarted:
    """A broker that restarts twice, with a new leader epoch each time.

    It restarts at the consumer's second fetch, and again when the consumer validates its
    position."""

    def __init__(self) -> None:
        self.epoch = self.fetches = 0
        self.validated_in = threading.Event()

    def __call__(self, stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, KNOWN)
            elif asked.api == Api.METADATA:
                stream.answer(asked, **self._metadata(stream))
            elif asked.api == Api.FETCH:
                self.fetches += 1
                self.epoch = max(self.epoch, int(self.fetches > 1))
                stream.answer(asked, responses=[self._fetched()])
            elif asked.api == Api.OFFSET_FOR_LEADER_EPOCH:
                self.epoch = 2
                self._validate(stream, asked)
            else:
                return

    def _metadata(self, stream: Stream) -> dict[str, Any]:
        partition = {
            "error_code": 0, "partition_index": 0, "leader_id": NODE_ID,
            "leader_epoch": self.epoch, "replica_nodes": [NODE_ID], "isr_nodes": [NODE_ID],
            "offline_replicas": [],
        }  # fmt: skip
        topic = {"error_code": 0, "name": "t", "topic_id": b"t" * 16, "is_internal": False,
                 "partitions": [partition]}  # fmt: skip
        return {**stream.broker.metadata(), "topics": [topic]}

    def _fetched(self) -> dict[str, Any]:
        code = ErrorCode.FENCED_LEADER_EPOCH if self.epoch else ErrorCode.NONE
        partition = {"partition_index": 0, "error_code": code, "high_watermark": 5,
                     "last_stable_offset": 5, "log_start_offset": 0, "records": None}  # fmt: skip
        return {"topic": "t", "topic_id": b"t" * 16, "partitions": [partition]}

    def _validate(self, stream: Stream, asked: Asked) -> None:
        current = asked.body.topics[0].partitions[0].current_leader_epoch
        if current == self.epoch:
            self.validated_in.set()
        code = ErrorCode.NONE if current == self.epoch else ErrorCode.FENCED_LEADER_EPOCH
        partition = {"error_code": code, "partition": 0, "leader_epoch": 0, "end_offset": 5}
        stream.answer(asked, topics=[{"topic": "t", "partitions": [partition]}])


def test_a_leader_that_is_restarted_again_while_a_position_is_looked_up_is_asked_anew() -> None:
    script = Restarted()
    with FakeBroker(script) as broker, Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), OffsetAndMetadata(5, "", 0))
        deadline = time.monotonic() + TIMEOUT_S
        while not script.validated_in.is_set():
            assert time.monotonic() < deadline, "it asks with an epoch of the past"
            consumer.poll(0.1)


class HalfAway(Restarted):
    """A cluster with partition 0 on this broker and partition 1 on an unreachable one."""

    def __init__(self, away_port: int) -> None:
        super().__init__()
        self._away_port = away_port

    def __call__(self, stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, KNOWN)
            elif asked.api == Api.METADATA:
                stream.answer(asked, **self._metadata(stream))
            elif asked.api == Api.LIST_OFFSETS:
                partition = {"partition_index": 0, "error_code": 0, "offset": 5, "timestamp": -1}
                stream.answer(asked, topics=[{"name": "t", "partitions": [partition]}])
            else:
                self.fetches += asked.api == Api.FETCH
                return

    def _metadata(self, stream: Stream) -> dict[str, Any]:
        reported = super()._metadata(stream)
        first = reported["topics"][0]["partitions"][0]
        away = {**reported["brokers"][0], "node_id": NODE_ID + 1, "port": self._away_port}
        reported["brokers"].append(away)
        reported["topics"][0]["partitions"].append(
            {**first, "partition_index": 1, "leader_id": NODE_ID + 1}
        )
        return reported


def test_a_leader_that_is_away_does_not_keep_others_partitions_from_being_read() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        script = HalfAway(taken.getsockname()[1])
        with FakeBroker(script) as broker, Consumer(broker.bootstrap, **FAST) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            deadline = time.monotonic() + TIMEOUT_S
            while not script.fetches:
                assert time.monotonic() < deadline, "all partitions wait for one"
                consumer.poll(0.1)


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


def test_a_seek_to_the_beginning_right_after_a_fetch_began_reads_from_the_beginning(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    client.produce(topic, [(None, b"a", (), 1), (None, b"b", (), 1)])
    tp = TopicPartition(topic, 0)
    complaints: list[dict[str, Any]] = []

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with AsyncConsumer(broker.bootstrap, fetch_max_wait_ms=50) as consumer:
            await consumer.partitions_for(topic)  # learns the leader, so a fetch can begin at once
            consumer.assign([tp])
            consumer.seek(tp, 1)  # starts a fetch whose task has not run before the next line
            consumer.seek_to_beginning(tp)
            found: list[int] = []
            while len(found) < 2:
                found += [record.offset for record in await consumer.poll(TIMEOUT_S)]
            return found

    assert asyncio.run(asyncio.wait_for(read(), TIMEOUT_S)) == [0, 1]
    gc.collect()  # a task reports an exception that was never retrieved when it is collected
    assert not complaints


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_seek_or_a_revocation_while_a_fetch_waits_at_the_broker_drops_its_answer(
    broker: BrokerProcess, client: RawClient, topic: str, is_revoked: bool
) -> None:
    client.create_topic(topic)
    client.produce(topic, [(None, b"a", (), 1), (None, b"b", (), 1)])
    tp = TopicPartition(topic, 0)
    complaints: list[dict[str, Any]] = []

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with AsyncConsumer(broker.bootstrap, fetch_max_wait_ms=300) as consumer:
            consumer.assign([tp])
            consumer.seek_to_end(tp)
            assert await consumer.position(tp) == 2
            while not consumer.engine.fetcher.is_fetching(tp):
                assert await consumer.poll(0.01) == []
            if is_revoked:
                consumer.assign([])
                consumer.assign([tp])
            consumer.seek_to_beginning(tp)
            found: list[int] = []
            while len(found) < 2:
                found += [record.offset for record in await consumer.poll(TIMEOUT_S)]
            return found

    assert asyncio.run(asyncio.wait_for(read(), TIMEOUT_S)) == [0, 1]
    gc.collect()
    assert not complaints


def test_a_consumer_may_seek_to_the_beginning_before_its_first_poll(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    client.produce(topic, [(None, b"a", (), 1), (None, b"b", (), 1)])
    with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        found: list[int] = []
        while len(found) < 2:
            found += [record.offset for record in consumer.poll(TIMEOUT_S)]
    assert found == [0, 1]
