"""Topics: auto-creation, deletion, re-creation, and the settings that disable them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, eventually, newest, values

from ottla.testing.broker import BrokerProcess

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
INVALID_REPLICATION_FACTOR = 38
INVALID_REQUEST = 42
TOPIC_DELETION_DISABLED = 73


def metadata(client: RawClient, name: str, *, create: bool, version: int = 12) -> Any:
    answer = client.call(
        Api.METADATA, version, topics=[{"name": name}], allow_auto_topic_creation=create
    )
    return answer.topics[0]


def running(**overrides: str) -> Iterator[RawClient]:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    with BrokerProcess(strict=True, overrides=named) as process, RawClient(process.port) as client:
        yield client


@pytest.fixture(scope="module")
def forbidding() -> Iterator[RawClient]:
    """Start a broker that neither auto-creates nor deletes topics."""
    yield from running(auto_create_topics_enable="false", delete_topic_enable="false")


# -------------------------------------------------------------------------------- auto-creation


@pytest.mark.parametrize("version", range(newest(Api.METADATA) + 1))
def test_a_topic_is_created_by_asking_for_it(client: RawClient, topic: str, version: int) -> None:
    found = metadata(client, topic, create=True, version=version)
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 1)
    assert found.partitions[0].leader_id == 1
    assert client.produce(topic, [(None, b"v", (), 1)]).error_code == 0


@pytest.mark.parametrize("version", range(4, newest(Api.METADATA) + 1))
def test_a_client_may_ask_without_creating(client: RawClient, topic: str, version: int) -> None:
    for _ in range(2):
        found = metadata(client, topic, create=False, version=version)
        assert (found.error_code, found.name) == (UNKNOWN_TOPIC_OR_PARTITION, topic)


def test_an_illegal_name_is_not_created(client: RawClient) -> None:
    for name in ("no spaces", "..", "x" * 250, ""):
        assert metadata(client, name, create=True).error_code == INVALID_TOPIC_EXCEPTION


def test_auto_creation_takes_the_brokers_defaults() -> None:
    for client in running(num_partitions="5"):
        assert len(metadata(client, "t", create=True).partitions) == 5
    for client in running(default_replication_factor="3"):
        assert metadata(client, "t", create=True).error_code == INVALID_REPLICATION_FACTOR


def test_auto_creation_can_be_forbidden(forbidding: RawClient, topic: str) -> None:
    for version in (0, 3, 12):
        found = metadata(forbidding, topic, create=True, version=version)
        assert found.error_code == UNKNOWN_TOPIC_OR_PARTITION
    forbidding.create_topic(topic)
    assert metadata(forbidding, topic, create=True).error_code == 0


def test_producing_creates_nothing(client: RawClient, topic: str) -> None:
    answer = client.produce(topic, [(None, b"v", (), 1)])
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(client, topic, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION


# ------------------------------------------------------------------------------------- deletion


@pytest.mark.parametrize("version", range(1, 7))
def test_deletion_can_be_forbidden(forbidding: RawClient, topic: str, version: int) -> None:
    forbidding.create_topic(topic)
    answer = forbidding.call(
        Api.DELETE_TOPICS,
        version,
        topics=[{"name": topic}],
        topic_names=[topic],
        timeout_ms=10_000,
    )
    code = answer.responses[0].error_code
    assert code == (TOPIC_DELETION_DISABLED if version >= 3 else INVALID_REQUEST)
    assert metadata(forbidding, topic, create=False).error_code == 0


def test_a_topic_of_the_same_name_has_none_of_the_old_data(client: RawClient, topic: str) -> None:
    producer_id = client.new_producer()
    identity = {"producer_id": producer_id, "producer_epoch": 0}
    ids = []
    for generation in range(3):
        ids.append(client.create_topic(topic, generation + 1))
        assert len(metadata(client, topic, create=False).partitions) == generation + 1
        assert client.offsets(topic) == (0, 0)
        value = b"generation %d" % generation
        answer = client.produce(topic, [(None, value, (), 1)], **identity, base_sequence=0)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert values(client.records(topic)) == [value]
        assert client.delete_topic(topic) == 0
    assert len(set(ids)) == 3


def test_the_old_id_is_not_the_new_topics(client: RawClient, topic: str) -> None:
    old = client.create_topic(topic)
    client.delete_topic(topic)
    new = client.create_topic(topic)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for topic_id, code in ((old, 100), (new, 0)):
        topics = [{"topic_id": topic_id, "partitions": [asked]}]
        answer = client.call(Api.FETCH, session_epoch=-1, max_bytes=1000, topics=topics)
        assert answer.responses[0].partitions[0].error_code == code


def test_a_deleted_topics_files_go() -> None:
    overrides = {"log.segment.delete.delay.ms": "0"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        client.create_topic("t", 3)
        client.create_topic("kept")
        client.produce("t", [(None, b"v", (), 1)])
        client.delete_topic("t")

        def left() -> list[str]:
            return [each.name for each in broker.data_dir.iterdir() if each.name.startswith("t-")]

        eventually(left, lambda names: not names)
        assert (broker.data_dir / "kept-0").is_dir()


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
def test_a_restart_finishes_a_deletion(kill: bool) -> None:
    overrides = {"log.segment.delete.delay.ms": "600000"}
    with BrokerProcess(overrides=overrides) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            client.produce("t", [(None, b"old", (), 1)])
            client.delete_topic("t")
            client.create_topic("t")
            client.produce("t", [(None, b"new", (), 1)])
        assert len(list(broker.data_dir.glob("t-0*"))) == 2
        broker.restart(kill=kill)
        with RawClient(broker.port) as client:
            assert values(client.records("t")) == [b"new"]
        eventually(lambda: len(list(broker.data_dir.glob("t-0*"))), lambda count: count == 1)


@pytest.mark.parametrize("kill", [False, True], ids=["clean", "kill -9"])
def test_topics_survive_a_restart_with_their_ids(kill: bool) -> None:
    with BrokerProcess(strict=True) as broker:
        with RawClient(broker.port) as client:
            topic_id = client.create_topic("t", 3)
            client.create_topic("gone")
            client.delete_topic("gone")
            for partition in range(3):
                client.produce("t", [(None, b"%d" % partition, (), 1)], partition)
        broker.restart(kill=kill)
        with RawClient(broker.port) as client:
            found = metadata(client, "t", create=False)
            assert (found.topic_id, len(found.partitions)) == (topic_id, 3)
            assert metadata(client, "gone", create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION
            for partition in range(3):
                assert values(client.records("t", 0, partition)) == [b"%d" % partition]


def test_added_partitions_are_there_at_once(client: RawClient, topic: str) -> None:
    client.create_topic(topic, 2)
    client.produce(topic, [(None, b"old", (), 1)], 1)
    topics = [{"name": topic, "count": 30, "assignments": None}]
    client.call(Api.CREATE_PARTITIONS, topics=topics, timeout_ms=10_000)
    for partition in (2, 17, 29):
        assert client.produce(topic, [(None, b"v", (), 1)], partition).base_offset == 0
    assert values(client.records(topic, 0, 1)) == [b"old"]


def test_names_that_collide_in_metrics_are_refused(client: RawClient, topic: str) -> None:
    client.create_topic(f"{topic}.a_b")
    new = {"name": f"{topic}.a.b", "num_partitions": 1, "replication_factor": 1}
    answer = client.call(Api.CREATE_TOPICS, topics=[new], timeout_ms=10_000)
    assert answer.topics[0].error_code == INVALID_TOPIC_EXCEPTION
