"""Clients called in the style of other libraries: dotted dictionaries, lists, misspelt keywords."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.raw_client import eventually

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    InvalidConfig,
    NewTopic,
    Producer,
    TopicPartition,
    UserError,
    read_table,
)
from ottla.client.admin import ConfigResource, ResourceType

TIMEOUT_S = 20.0
CLIENTS = [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_keyword_is_an_error_before_any_connection(client: Callable[..., Any]) -> None:
    with pytest.raises(
        InvalidConfig, match=r"client\.di does not exist; did you mean client\.id\?"
    ):
        client("nowhere:1", client_di="x")
    with pytest.raises(
        InvalidConfig, match=r"client\.di does not exist; did you mean client\.id\?"
    ):
        client({"bootstrap.servers": "nowhere:1", "client.di": "x"})


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer])
def test_topic_hints_at_topics(client: Callable[..., Any]) -> None:
    with pytest.raises(
        InvalidConfig, match=r"Property topic does not exist; did you mean topics\?"
    ):
        client("nowhere:1", topic="orders")


def test_records_go_from_a_producer_to_a_consumer_of_dotted_dictionaries(
    bootstrap: str, topic: str, group: str
) -> None:
    servers = {"bootstrap.servers": bootstrap}
    reading = {**servers, "group.id": group, "auto.offset.reset": "earliest"}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    with Producer({**servers, "acks": "all", "linger.ms": 0, "enable.idempotence": True}) as sender:
        sender.send(topic, b"1").result(TIMEOUT_S)
    with Consumer({**reading, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"1"]
    with Consumer(reading, topics=topic, enable_auto_commit=False) as consumer:
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"1"]
    assert read_table(servers, topic).num_rows == 1


def test_the_async_clients_take_dotted_dictionaries_too(
    bootstrap: str, topic: str, group: str
) -> None:
    servers = {"bootstrap.servers": bootstrap}
    reading = {**servers, "group.id": group, "auto.offset.reset": "earliest"}

    async def scenario() -> list[Any]:
        async with AsyncAdmin(servers) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
        async with AsyncProducer({**servers, "message.timeout.ms": 60_000}) as producer:
            await (await producer.send(topic, b"1"))
        async with AsyncConsumer(reading, topics=[topic]) as consumer:
            return [record.value for record in await consumer.poll(TIMEOUT_S)]

    assert asyncio.run(scenario()) == [b"1"]


def test_admin_calls_take_items_or_lists(admin: Admin, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(4)]
    admin.create_topics([NewTopic(names[0], 1), names[1]])
    admin.create_topics(names[2], NewTopic(names[3], 1))
    eventually(admin.list_topics, lambda listed: set(names) <= set(listed))
    described = admin.describe_topics(names)
    assert list(described) == list(admin.describe_topics(*names)) == names
    ids = [str(each.topic_id) for each in described.values()]
    assert list(admin.describe_topics_by_id(ids)) == ids
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[:2]]
    assert list(admin.describe_configs(resources)) == list(admin.describe_configs(*resources))
    brokers = list(admin.describe_cluster().nodes)
    assert list(admin.api_versions(brokers)) == list(admin.api_versions(*brokers)) == brokers
    assert list(admin.describe_log_dirs(brokers)) == brokers
    partitions = [TopicPartition(name, 0) for name in names]
    assert list(admin.describe_producers(partitions)) == partitions
    assert list(admin.delete_topics(names[:2])) == names[:2]
    assert list(admin.delete_topics_by_id(ids[2:3])) == ids[2:3]
    assert list(admin.delete_topics(names[3])) == names[3:]


def test_group_calls_take_items_or_lists(admin: Admin, topic: str, group: str) -> None:
    admin.create_topics(topic)
    groups = [f"{group}-{number}" for number in range(2)]
    for each in groups:
        admin.alter_group_offsets(each, {TopicPartition(topic, 0): 0})
    assert list(admin.describe_groups(groups)) == groups
    assert list(admin.list_group_offsets(groups)) == groups
    assert list(admin.delete_groups(groups)) == groups


def test_what_is_no_topic_is_refused_in_one_sentence(admin: Admin) -> None:
    with pytest.raises(InvalidConfig, match=r"Expected NewTopic values or topic names.* not 3\."):
        admin.create_topics([3])  # type: ignore[list-item]


def test_consumer_calls_take_partitions_or_lists(
    bootstrap: str, admin: Admin, topic: str, group: str
) -> None:
    admin.create_topics(NewTopic(topic, 2))
    with Consumer(bootstrap, group_id=group) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.pause(partitions)
        assert consumer.paused() == set(partitions)
        consumer.resume(partitions[0], [partitions[1]])
        assert consumer.paused() == set()
        consumer.seek_to_beginning(set(partitions))
        consumer.seek_to_end((topic, 0), [(topic, 1)])
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert consumer.beginning_offsets(*partitions) == dict.fromkeys(partitions, 0)
        assert consumer.committed(partitions) == dict.fromkeys(partitions, None)


def test_a_groups_lag_is_what_is_between_the_committed_offset_and_the_end(
    bootstrap: str, admin: Admin, topic: str, group: str
) -> None:
    admin.create_topics(NewTopic(topic, 2))
    with Producer(bootstrap) as producer:
        for _ in range(3):
            producer.send(topic, b"v", partition=1).result(TIMEOUT_S)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(group, {first: 0, second: 1})
    lag = admin.list_group_lag([group])[group]
    assert {tp: each.lag for tp, each in lag.items()} == {first: 0, second: 2}
    assert lag.total == 2
    admin.delete_topics(topic)
    eventually(admin.list_topics, lambda listed: topic not in listed)
    after = eventually(
        lambda: admin.list_group_lag(group, return_errors=True).get(group, {}),
        lambda found: all(each.end_offset is None for each in found.values()),
    )
    assert all(each.lag is None for each in after.values())


def test_a_poll_returns_a_list_that_notebooks_show_as_a_table(
    bootstrap: str, admin: Admin, topic: str
) -> None:
    admin.create_topics(topic)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"<b>").result(TIMEOUT_S)
    with Consumer(bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        records = consumer.poll(TIMEOUT_S)
        assert records == list(records)
        assert "&lt;b&gt;" in records._repr_html_()
        assert consumer.poll(0) == []
    assert topic in admin.describe_topics(topic)._repr_html_()
    assert "name" in admin.list_topics()._repr_html_()


def test_deprecated_spellings_work_and_warn(
    bootstrap: str, admin: Admin, topic: str, group: str
) -> None:
    admin.create_topics(NewTopic(topic, 1))
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        with pytest.warns(DeprecationWarning, match=r"Call partition_metadata\(\)") as warned:
            assert producer.partitions_for(topic) == producer.partition_metadata(topic)
        assert {each.filename for each in warned} == {__file__}
        producer.send(topic, b"1").result(TIMEOUT_S)
    consumer = Consumer(bootstrap, group_id=group, auto_offset_reset="earliest")
    consumer.assign([tp])
    with pytest.warns(DeprecationWarning, match=r"Call commit_async\(\)"):
        consumer.commit({tp: 0}, wait=False)
    with pytest.warns(DeprecationWarning, match=r"Call commit_async\(\)") as warned:
        consumer.commit({tp: 0}, wait=True)
    assert {each.filename for each in warned} == {__file__}
    assert len(consumer.poll(TIMEOUT_S)) == 1
    with pytest.warns(DeprecationWarning, match="as a context manager") as warned:
        consumer.close(is_failed=True)
    assert {each.filename for each in warned} == {__file__}
    with Consumer(bootstrap, group_id=group) as consumer:
        committed = consumer.committed(tp)[tp]
    assert committed is not None
    assert committed.offset == 0  # the record that was returned last is not committed


def test_deprecated_spellings_of_the_async_clients_work_and_warn(
    bootstrap: str, topic: str, group: str
) -> None:
    tp = TopicPartition(topic, 0)

    async def scenario() -> int:
        async with AsyncAdmin(bootstrap) as admin:
            await admin.create_topics(NewTopic(topic, 1))
        async with AsyncProducer(bootstrap) as producer:
            with pytest.warns(DeprecationWarning, match=r"Call partition_metadata\(\)"):
                found = await producer.partitions_for(topic)
        consumer = await AsyncConsumer(bootstrap, group_id=group).start()
        with pytest.warns(DeprecationWarning, match=r"Call commit_async\(\)"):
            await consumer.commit({tp: 0}, wait=False)
        with pytest.warns(DeprecationWarning, match="as a context manager"):
            await consumer.close(is_failed=False)
        return len(found)

    assert asyncio.run(scenario()) == 1


def test_a_producer_that_is_started_twice_refuses(bootstrap: str) -> None:
    async def scenario() -> None:
        async with AsyncProducer(bootstrap) as producer:
            with pytest.raises(UserError, match="already started"):
                await producer.start()

    asyncio.run(scenario())
