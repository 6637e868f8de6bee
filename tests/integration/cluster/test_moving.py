"""Reassignment of replicas: to a new broker, away from one, to more or fewer brokers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.cli.running import Run, running_on
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for
from tests.integration.cluster.load import Load

TOOL = "reassign-partitions"


@pytest.fixture
def run(cluster: ClusterOfProcesses) -> Run:
    return running_on(cluster.bootstrap)


class Plan:
    def __init__(self, run: Run, path: Path, topic: str, *replicas: Sequence[int]) -> None:
        self._run = run
        self._path = path / "plan.json"
        partitions = [
            {"topic": topic, "partition": index, "replicas": list(each)}
            for index, each in enumerate(replicas)
        ]
        self._path.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def __call__(self, action: str, *more: str) -> tuple[int, str]:
        ran = self._run(TOOL, f"--{action}", "--reassignment-json-file", str(self._path), *more)
        return ran.code, ran.out + ran.err

    def carry_out(self) -> None:
        code, said = self("execute")
        assert code == 0, said
        assert "Successfully started" in said
        wait_for(lambda: self("verify")[0] == 0, "end of the reassignment")


def test_a_broker_is_added_under_load_and_taken_out_again(
    cluster: ClusterOfProcesses, run: Run, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        load.next_acknowledgement(0, time.monotonic())
        cluster.add(4).start()
        Plan(run, tmp_path, topic, [4, 2, 3], [2, 4, 3], [3, 2, 4]).carry_out()
        assert all(1 not in each.replicas for each in cluster.partitions(topic).values())
        wait_for(lambda: cluster.leads(topic, 0, 4), "the new broker as leader")
        kept = cluster.brokers[1].data_dir
        wait_for(lambda: not any((kept / f"{topic}-{n}").exists() for n in range(3)), "no log")

        assert run("cluster decommission", "4").code == 0
        assert all(4 not in each.replicas for each in cluster.partitions(topic).values())
        output = json.loads(run("cluster status", "--json").out)
        assert [each["replicas"] for each in output["brokers"] if each["id"] == 4] == [0]
        cluster.brokers[4].stop()
        cluster.brokers.pop(4).close()
        cluster.heal()
        for partition in range(3):
            load.next_acknowledgement(partition, time.monotonic())
    load.assert_all_there(cluster.read_all(topic))


THROTTLE = 200_000
FILLED = 1_000_000


def test_a_throttled_move_takes_its_time_and_leaves_no_limits(
    cluster: ClusterOfProcesses, run: Run, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, replicas=1, min_insync_replicas="1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(FILLED // 10_000):
        producer.produce(topic, os.urandom(10_000))
    assert producer.flush(30) == 0
    target = cluster.leader(topic) % 3 + 1
    plan = Plan(run, tmp_path, topic, [target])
    began = time.monotonic()
    code, said = plan("execute", "--throttle", str(THROTTLE))
    assert code == 0, said
    assert f"throttle limit was set to {THROTTLE} B/s" in said
    configs = run("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert f"follower.replication.throttled.replicas=0:{target}" in configs.out
    wait_for(lambda: plan("verify")[0] == 0, "end of the reassignment")
    # A second's worth of data passes unthrottled, and the last batches may exceed the limit.
    assert time.monotonic() - began > (FILLED - 2 * THROTTLE) / THROTTLE
    assert cluster.partitions(topic)[0].replicas == (target,)
    for kind, name in (("topics", topic), ("brokers", str(target))):
        output = run("configs", "--describe", "--entity-type", kind, "--entity-name", name)
        assert "throttled" not in output.out


def test_the_replication_factor_is_raised_and_lowered(
    cluster: ClusterOfProcesses, run: Run, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, replicas=1, min_insync_replicas="1")
    with Load(cluster.bootstrap, topic, partitions=1) as load:
        load.next_acknowledgement(0, time.monotonic())
        Plan(run, tmp_path, topic, [1, 2, 3]).carry_out()
        view = cluster.partitions(topic)[0]
        assert view.replicas == (1, 2, 3)
        assert sorted(view.isr) == [1, 2, 3]
        Plan(run, tmp_path, topic, [2]).carry_out()
        view = cluster.partitions(topic)[0]
        assert (view.leader, view.replicas, view.isr) == (2, (2,), (2,))
        load.next_acknowledgement(0, time.monotonic())
    load.assert_all_there(cluster.read_all(topic))


def test_what_cannot_end_is_listed_and_cancelled(
    cluster: ClusterOfProcesses, run: Run, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, replicas=1, min_insync_replicas="1")
    leader = cluster.leader(topic)
    dead = next(id for id in cluster.brokers if id not in (leader, cluster.controller()))
    cluster.brokers[dead].kill()
    wait_for(lambda: dead not in cluster.admin.list_topics(timeout=10).brokers, "death")
    plan = Plan(run, tmp_path, topic, [leader, dead])
    assert plan("execute")[0] == 0
    assert plan("verify") == (
        1,
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is still in "
        "progress.\n",
    )
    assert f"{topic}-0: replicas: {leader},{dead}. adding: {dead}." in run(TOOL, "--list").out
    code, said = plan("execute")
    assert code == 1
    assert "There is an existing assignment running" in said
    assert plan("cancel")[0] == 0
    assert run(TOOL, "--list").out == "No partition reassignments found.\n"
    assert cluster.partitions(topic)[0].replicas == (leader,)
    assert "None of the specified" in plan("cancel")[1]


def test_an_assignment_is_proposed_for_the_brokers_named(
    cluster: ClusterOfProcesses, run: Run, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, partitions=4, replicas=2)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ["--generate", "--topics-to-move-json-file", str(topics), "--broker-list"]
    proposed = json.loads(run(TOOL, *words, "1,3", "--json").out)["proposed"]
    assert sorted(map(tuple, proposed.values())) == [(1, 3), (1, 3), (3, 1), (3, 1)]
    missing = "Broker 9 does not exist. The brokers of the cluster: 1, 2, 3.\n"
    assert run(TOOL, *words, "1,9").err == missing


def test_elections_by_command(cluster: ClusterOfProcesses, run: Run, topic: str) -> None:
    cluster.create_topic(topic)
    one = ["--topic", topic, "--partition", "0"]
    assert run("leader-election", "--election-type", "preferred", *one).code == 0
    assert run("leader-election", "--election-type", "unclean", "--all-topic-partitions").code == 0
    none = ["--topic", topic, "--partition", "7"]
    ran = run("leader-election", "--election-type", "preferred", *none)
    assert ran.code == 1
    assert f"{topic}-7" in ran.err
