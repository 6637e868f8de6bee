"""Topics of sources, created by the worker with the settings of their creation group."""

from __future__ import annotations

from pathlib import Path

from tests.connect.own_connectors import PLACE
from tests.connect.workers import Standalone, values, wait_for

from ottla.client.admin import Admin, ConfigResource, NewTopic, ResourceType
from ottla.connect.states import State
from ottla.testing.broker_thread import BrokerThread

NUMBERS = f"{PLACE}:Numbers"
T = "topic.creation."
DEFAULT = {f"{T}default.replication.factor": -1, f"{T}default.partitions": 2}
GROUPS = {
    **DEFAULT,
    f"{T}groups": "wide",
    f"{T}default.retention.ms": 5_000_000,
    f"{T}wide.include": "made-wide.*",
    f"{T}wide.partitions": 5,
    f"{T}wide.replication.factor": 1,
    f"{T}wide.retention.ms": 7_000_000,
}


def shape(bootstrap: str, topic: str) -> tuple[int, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with Admin(bootstrap) as admin:
        partitions = len(admin.describe_topics(topic)[topic].partitions)
        configs = admin.describe_configs(resource)[resource]
    return partitions, configs["retention.ms"].value


def test_topics_are_created_with_the_configs_of_their_group_and_existing_ones_are_unchanged(
    worker: Standalone,
) -> None:
    with Admin(worker.bootstrap) as admin:
        admin.create_topics(NewTopic("made-wide-before", 1, 1))
    for topic in ("made-wide-1", "made-else", "made-wide-before"):
        worker.put(f"to-{topic}", NUMBERS, topic=topic, count=10, **GROUPS)
    for topic in ("made-wide-1", "made-else", "made-wide-before"):
        wait_for(lambda topic=topic: worker.herder.topics(f"to-{topic}") == [topic], topic)
        wait_for(lambda topic=topic: len(values(worker.bootstrap, topic)) == 10, topic)
    assert shape(worker.bootstrap, "made-wide-1") == (5, "7000000")
    assert shape(worker.bootstrap, "made-else") == (2, "5000000")
    assert shape(worker.bootstrap, "made-wide-before") == (1, "604800000")


def test_settings_that_brokers_refuse_fail_the_task_with_the_reason(worker: Standalone) -> None:
    refused = {**DEFAULT, f"{T}default.cleanup.policy": "burn"}
    worker.put("config", NUMBERS, topic="refused-config", count=1, **refused)
    assert "Topic refused-config cannot be created" in worker.wait_for_state("config", State.FAILED)
    too_many = {**DEFAULT, f"{T}default.replication.factor": 9}
    worker.put("factor", NUMBERS, topic="refused-factor", count=1, **too_many)
    assert "Topic refused-factor cannot be created" in worker.wait_for_state("factor", State.FAILED)


def test_a_worker_that_makes_no_topics_leaves_it_to_the_brokers(tmp_path: Path) -> None:
    # The worker creates its offset storage topic itself in any case.
    overrides = {"auto.create.topics.enable": "false"}
    with BrokerThread(overrides=overrides) as broker:
        given = {"topic.creation.enable": "false", "producer.max.block.ms": "1000"}
        worker = Standalone(broker.bootstrap, tmp_path, **given)
        try:
            worker.put("none", NUMBERS, topic="nobody-makes", count=10, **GROUPS)
            trace = worker.wait_for_state("none", State.FAILED)
            assert "nobody-makes" in trace
            with Admin(broker.bootstrap) as admin:
                assert "nobody-makes" not in admin.list_topics()
                admin.create_topics(NewTopic("nobody-makes", 1, 1))
            wait_for(lambda: len(values(broker.bootstrap, "nobody-makes")) == 10, "records")
        finally:
            worker.close()
