"""Groups through the clients' own calls: subscribing, committing, administering."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.compat.clients.record import TIMEOUT_S
from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

OVERRIDES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def topic(raw: RawClient) -> str:
    """Create a topic with two partitions of one record each."""
    name = f"groups.{next(_numbers)}"
    raw.create_topic(name, 2)
    for partition in range(2):
        raw.produce(name, [(None, b"v", (), 1)], partition)
    return name


# -------------------------------------------------------------------------------- confluent-kafka


class Confluent:
    def __init__(self, broker: BrokerProcess) -> None:
        self.library = pytest.importorskip("confluent_kafka", reason="it is not installed")
        self.admin_library = pytest.importorskip("confluent_kafka.admin")
        self.common = {"bootstrap.servers": broker.bootstrap}
        self.admin = self.admin_library.AdminClient(self.common)

    def consumer(self, group: str, topic: str) -> Any:
        config = {**self.common, "group.id": group, "auto.offset.reset": "earliest",
                  "enable.auto.commit": False}  # fmt: skip
        consumer = self.library.Consumer(config)
        consumer.subscribe([topic])
        return consumer

    def offsets(self, group: str) -> dict[int, int]:
        asked = self.library.ConsumerGroupTopicPartitions(group)
        (future,) = self.admin.list_consumer_group_offsets([asked]).values()
        return {each.partition: each.offset for each in future.result(TIMEOUT_S).topic_partitions}


@pytest.fixture
def confluent(broker: BrokerProcess) -> Confluent:
    return Confluent(broker)


def test_confluent_consumes_commits_and_administers(confluent: Confluent, topic: str) -> None:
    library, admin, group = confluent.library, confluent.admin, f"confluent-{topic}"
    consumer = confluent.consumer(group, topic)
    messages = [eventually(lambda: consumer.poll(0.2)) for _ in range(2)]
    assert sorted(message.partition() for message in messages) == [0, 1]
    consumer.commit(asynchronous=False)
    assert confluent.offsets(group) == {0: 1, 1: 1}

    stable = {library.ConsumerGroupState.STABLE}
    listed = admin.list_consumer_groups(states=stable).result(TIMEOUT_S)
    assert not listed.errors
    assert group in [each.group_id for each in listed.valid]
    (future,) = admin.describe_consumer_groups([group]).values()
    described = future.result(TIMEOUT_S)
    assert described.state == library.ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    owned = [each.partition for each in member.assignment.topic_partitions]
    assert sorted(owned) == [0, 1]

    with pytest.raises(library.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    consumer.close()
    changed = library.ConsumerGroupTopicPartitions(group, [library.TopicPartition(topic, 1, 7)])
    admin.alter_consumer_group_offsets([changed])[group].result(TIMEOUT_S)
    assert confluent.offsets(group) == {0: 1, 1: 7}
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert confluent.offsets(group) == {}


# ----------------------------------------------------------------------------------- kafka-python


def test_kafka_python_consumes_commits_and_administers(broker: BrokerProcess, topic: str) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    group = f"kafka-python-{topic}"
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    first, second = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
    seen: set[int] = set()
    while seen != {0, 1}:
        seen |= {each.partition for each in consumer.poll(200)}
    consumer.commit({first: kafka.OffsetAndMetadata(1, "note", -1)})
    assert consumer.committed(first) == 1
    assert consumer.committed(second) is None

    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    assert group in [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
    assert group not in [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])]
    described = admin.describe_groups([group, "nobody"])
    assert (described[group]["group_state"], described["nobody"]["group_state"]) == (
        "Stable",
        "Dead",
    )
    assigned = described[group]["members"][0]["member_assignment"]["assigned_partitions"]
    assert assigned == [{"topic": topic, "partitions": [0, 1]}]
    consumer.close()

    admin.alter_group_offsets(group, {second: kafka.OffsetAndMetadata(9, "", -1)})
    offsets = admin.list_group_offsets({group: None})[group]
    assert {tp.partition: each.offset for tp, each in offsets.items()} == {0: 1, 1: 9}
    admin.delete_group_offsets(group, [second])
    assert list(admin.list_group_offsets({group: None})[group]) == [first]
    admin.delete_groups([group])
    assert group not in [each["group_id"] for each in admin.list_groups()]
    admin.close()


# --------------------------------------------------------------------------------------- aiokafka


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), TIMEOUT_S)

    asyncio.run(limited())


def test_aiokafka_consumes_commits_and_administers(broker: BrokerProcess, topic: str) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    admin_library = pytest.importorskip("aiokafka.admin")
    group = f"aiokafka-{topic}"
    first = aiokafka.TopicPartition(topic, 0)

    async def scenario() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        records = [await consumer.getone() for _ in range(2)]
        assert sorted(record.partition for record in records) == [0, 1]
        await consumer.commit({first: (1, "note")})
        assert await consumer.committed(first) == 1
        admin = admin_library.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        assert (group, "consumer") in await admin.list_consumer_groups()
        (described,) = await admin.describe_consumer_groups([group])
        assert described.groups[0][2] == "Stable"
        offsets = await admin.list_consumer_group_offsets(group)
        assert {tp: each.offset for tp, each in offsets.items()} == {first: 1}
        await admin.close()
        await consumer.stop()

    run(scenario)
