"""Two clusters with a mirror between them: records, topics and group offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer
from ottla.base.types import TopicPartition
from ottla.client.admin import ConfigResource, NewTopic, ResourceType
from ottla.connect.connectors.mirror_records import Checkpoint
from ottla.connect.offsets import merged
from ottla.testing.broker_thread import BrokerThread
from ottla.testing.connectors import configured

PATIENCE_S = 60.0


class Mirror:
    """Minimal worker: it polls, writes the records to the target, then commits."""

    def __init__(self, name: str, source: BrokerThread, target: BrokerThread, **given: str) -> None:
        properties = {
            "source.cluster.alias": "us",
            "target.cluster.alias": "eu",
            "source.cluster.bootstrap.servers": source.bootstrap,
            "target.cluster.bootstrap.servers": target.bootstrap,
            "refresh.topics.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            **{key.replace("_", "."): value for key, value in given.items()},
        }
        self.config = configured(name, properties)
        self._target = target
        self.offsets: Any = []
        self.copied = 0
        self.task = self._start()

    def _start(self) -> Any:
        connector: Any = self.config.connector
        task = connector.make_task(connector.task_settings(1)[0])
        task.start(self.offsets)
        return task

    def restart(self) -> None:
        self.task.stop()
        self.task = self._start()

    def turn(self) -> int:
        polled = self.task.poll(0.1)
        if not polled:
            return 0
        with Producer(self._target.bootstrap) as producer:
            for record in polled.records:
                row = self.config.conversion.to_row(record)
                producer.send(row.topic, row.value, key=row.key, partition=row.partition,
                              headers=row.headers, timestamp=row.timestamp_ms)  # fmt: skip
        self.offsets = merged(self.offsets, polled.offsets)
        self.task.commit(polled.offsets)
        self.copied += len(polled.records)
        return len(polled.records)

    def until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            self.turn()
            assert time.monotonic() < until


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[BrokerThread, BrokerThread]]:
    with BrokerThread() as source, BrokerThread() as target:
        yield source, target


def read(broker: BrokerThread, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + PATIENCE_S
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for(topic))
        while len(found) < count:
            found += consumer.poll(0.5)
            assert time.monotonic() < until, f"{len(found)} of {count}"
    return found


def test_records_and_topics_are_copied_as_they_are(
    clusters: tuple[BrokerThread, BrokerThread],
) -> None:
    source, target = clusters
    with Admin(source.bootstrap) as admin:
        configs = {"retention.ms": "86400000", "min.insync.replicas": "1"}
        admin.create_topics(NewTopic("copied", 3, 1, configs))
    with Producer(source.bootstrap) as producer:
        for number in range(300):
            producer.send("copied", b"%d" % number, key=b"k%d" % (number % 7),
                          headers=[("h", b"\x00\xff")], timestamp=1000 + number)  # fmt: skip
        producer.send("copied", None, key=b"gone", partition=2)
    mirror = Mirror("MirrorSource", source, target, topics="copied")
    for count in (100, 200, 301):
        mirror.until(lambda count=count: mirror.copied >= count)
        mirror.restart()
    assert mirror.copied == 301
    mine = sorted(
        (r.partition, r.key, r.value, r.headers, r.timestamp)
        for r in read(source, "copied", 301)
        if r.value
    )
    theirs = read(target, "us.copied", 301)
    assert len(theirs) == 301
    assert (
        sorted((r.partition, r.key, r.value, r.headers, r.timestamp) for r in theirs if r.value)
        == mine
    )
    with Admin(source.bootstrap) as admin:
        admin.create_partitions({"copied": 5})
    with Producer(source.bootstrap) as producer:
        producer.send("copied", b"new", partition=4)
    with Admin(target.bootstrap) as admin:
        mirror.until(lambda: len(admin.describe_topics("us.copied")["us.copied"].partitions) == 5)
        entries = admin.describe_configs(ConfigResource(ResourceType.TOPIC, "us.copied"))
        (found,) = entries.values()
        assert found["retention.ms"].value == "86400000"
        assert "us.mm2-offset-syncs.eu.internal" not in admin.list_topics()
    mirror.until(lambda: mirror.copied >= 302)
    assert b"new" in [each.value for each in read(target, "us.copied", 302)]
    mirror.task.stop()


def test_a_group_continues_in_the_other_cluster(
    clusters: tuple[BrokerThread, BrokerThread],
) -> None:
    source, target = clusters
    with Admin(source.bootstrap) as admin:
        admin.create_topics(NewTopic("moved", 1, 1))
    mirror = Mirror("MirrorSource", source, target, topics="moved")
    with Producer(source.bootstrap) as producer:
        for number in range(100):
            producer.send("moved", b"%d" % number)
    mirror.until(lambda: mirror.copied == 100)
    with Producer(source.bootstrap) as producer:
        for number in range(100, 150):
            producer.send("moved", b"%d" % number)
    mirror.until(lambda: mirror.copied == 150)
    tp = TopicPartition("moved", 0)
    with Admin(source.bootstrap) as admin:
        admin.alter_group_offsets("exact", {tp: 100})
        admin.alter_group_offsets("between", {tp: 120})
        admin.alter_group_offsets("console-consumer-1", {tp: 100})
    checkpoints = Mirror("MirrorCheckpoint", source, target, sync_group_offsets_enabled="true")
    checkpoints.until(lambda: bool(checkpoints.offsets))
    remote = TopicPartition("us.moved", 0)
    with Admin(target.bootstrap) as admin:
        groups = admin.list_groups()
        assert "console-consumer-1" not in groups
        (exact,) = admin.list_group_offsets("exact")["exact"].items()
        between = admin.list_group_offsets("between")["between"][remote].offset
    assert exact[0] == remote
    assert exact[1].offset == 100
    assert 100 <= between <= 120, "some come twice, none is skipped"
    reported = [
        Checkpoint.decode(r.key, r.value) for r in read(target, "us.checkpoints.internal", 2)
    ]
    assert {each.group: (each.upstream, each.downstream) for each in reported} == {
        "exact": (100, 100),
        "between": (120, between),
    }
    # A group that is ahead in the target is not moved back.
    with Admin(target.bootstrap) as admin:
        admin.alter_group_offsets("exact", {remote: 130})
    with Admin(source.bootstrap) as admin:
        admin.alter_group_offsets("between", {tp: 150})
    checkpoints.restart()
    with Admin(target.bootstrap) as admin:
        checkpoints.until(
            lambda: admin.list_group_offsets("between")["between"][remote].offset == 150
        )
        assert admin.list_group_offsets("exact")["exact"][remote].offset == 130
    checkpoints.task.stop()
    mirror.task.stop()


def test_heartbeats_show_that_a_mirror_is_alive(
    clusters: tuple[BrokerThread, BrokerThread],
) -> None:
    source, target = clusters
    beats = Mirror("MirrorHeartbeat", source, target)
    beats.until(lambda: bool(beats.offsets))
    assert read(target, "heartbeats", 1)[0].key == b"\x00\x02us\x00\x02eu"
