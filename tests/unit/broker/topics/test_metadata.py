from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, versions, with_broker

from ottla.base.cluster import BrokerRegistration, Endpoint, PartitionState, TopicImage
from ottla.base.errors import ErrorCode
from ottla.base.metadata import Create
from ottla.base.types import new_uuid
from ottla.broker.context import RequestContext
from ottla.broker.handlers import create_topics, metadata
from ottla.metadata import tree
from ottla.wire import codec

NOT_REQUESTED = -(2**31)
ALL = versions(metadata)


def topics_of(answer: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, int(topic.error_code)) for topic in answer.topics]


def names(*wanted: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in wanted]


@pytest.mark.parametrize("version", ALL)
def test_all_topics_and_the_cluster_are_reported_in_every_version(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a", "b", num_partitions=2)
        everything = [] if version == 0 else None
        answer = await broker.call(metadata, version, topics=everything)
        (node,) = answer.brokers
        assert (node.node_id, node.host, node.port) == (1, "localhost", 19092)
        assert topics_of(answer) == [("a", 0), ("b", 0)]
        partition = answer.topics[1].partitions[1]
        assert (partition.partition_index, partition.leader_id) == (1, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
        assert int(partition.error_code) == 0
        if version >= 1:
            assert answer.controller_id == 1
            assert node.rack is None
            assert answer.topics[0].is_internal is False
        if version >= 2:
            assert answer.cluster_id == broker.image.cluster_id
            assert len(answer.cluster_id) == 22
        if version >= 5:
            assert partition.offline_replicas == ()
        if version >= 7:
            assert partition.leader_epoch == 0
        if version >= 8:
            assert answer.topics[0].topic_authorized_operations == NOT_REQUESTED
        if 8 <= version <= 10:
            assert answer.cluster_authorized_operations == NOT_REQUESTED
        if version >= 10:
            assert answer.topics[0].topic_id.bytes == broker.image.topics["a"].topic_id

    with_broker(scenario)


@pytest.mark.parametrize("version", ALL[1:])
def test_an_empty_list_is_no_topics(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        assert topics_of(await broker.call(metadata, version, topics=[])) == []

    with_broker(scenario)


@pytest.mark.parametrize("version", ALL)
def test_unknown_and_illegal_names_are_reported_without_creation(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        answer = await broker.call(metadata, version, topics=names("no", "a", "x y", "a"))
        assert topics_of(answer) == [
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a", 0),
            ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        assert list(broker.image.topics) == ["a"]

    with_broker(scenario, auto_create_topics_enable="false")


@pytest.mark.parametrize("version", ALL)
def test_an_unknown_topic_is_created_and_described_at_once(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(metadata, version, topics=names("new", "x y"))
        assert topics_of(answer) == [("new", 0), ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION)]
        assert len(answer.topics[0].partitions) == 4

    with_broker(scenario, num_partitions="4")


@pytest.mark.parametrize("version", ALL[4:])
def test_nothing_is_created_when_the_request_forbids_it(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(
            metadata, version, topics=names("new"), allow_auto_topic_creation=False
        )
        assert topics_of(answer) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]

    with_broker(scenario)


def test_concurrent_requests_for_an_unknown_topic_all_get_it() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answers = await asyncio.gather(
            *(broker.call(metadata, 12, topics=names("new")) for _ in range(5))
        )
        assert [topics_of(answer) for answer in answers] == [[("new", 0)]] * 5

    with_broker(scenario)


def test_an_auto_creation_that_fails_is_reported() -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(metadata, 12, topics=names("new"))
        assert topics_of(answer) == [("new", ErrorCode.INVALID_REPLICATION_FACTOR)]

    with_broker(scenario, default_replication_factor="3")


@pytest.mark.parametrize(
    ("name", "count"), [("__consumer_offsets", 50), ("__transaction_state", 50)]
)
def test_internal_topics_are_created_with_their_own_settings(name: str, count: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        answer = await broker.call(metadata, 12, topics=names(name))
        assert topics_of(answer) == [(name, 0)]
        assert answer.topics[0].is_internal
        assert len(answer.topics[0].partitions) == count
        assert broker.image.topics[name].configs["cleanup.policy"] == "compact"

    with_broker(scenario)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        topic_id, unknown = broker.image.topics["a"].topic_id, bytes(15) + b"\x09"
        topics = [{"name": None, "topic_id": each} for each in (topic_id, unknown)]
        answer = await broker.call(metadata, version, topics=topics)
        assert topics_of(answer) == [("a", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
        assert answer.topics[1].topic_id.bytes == unknown

    with_broker(scenario)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_version_12(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        topics = [{"name": "a", "topic_id": broker.image.topics["a"].topic_id}]
        answer = await broker.call(metadata, version, topics=topics)
        assert topics_of(answer) == [("a", ErrorCode.INVALID_REQUEST)]

    with_broker(scenario)


@pytest.mark.parametrize("version", ALL[8:])
def test_authorized_operations_are_everything_when_asked_for(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        asked: dict[str, Any] = {"include_topic_authorized_operations": True}
        if version <= 10:
            asked["include_cluster_authorized_operations"] = True
        answer = await broker.call(metadata, version, topics=None, **asked)
        assert answer.topics[0].topic_authorized_operations == 3576
        if version <= 10:
            assert answer.cluster_authorized_operations == 8096

    with_broker(scenario)


async def add_second_broker(broker: FakeBroker, listener: str, *, live: bool) -> None:
    """Register broker 2 as the leader of topic `shared`, with broker 1 as the follower."""
    other = BrokerRegistration(2, 0, {listener: Endpoint("other", 5)}, "r2")
    state = PartitionState(2, 3, (2, 1), (2, 1), isr_incarnations=(0, 0))
    ops: list[Any] = [Create(tree.registration_path(2), tree.encode_registration(other))]
    ops += [Create(tree.live_path(2), b"{}", ephemeral=True)] if live else []
    ops += tree.create_topic_ops(TopicImage("shared", new_uuid(), {}, (state,)))
    await broker.follower.applied(await broker.store.txn([], ops))


@pytest.mark.parametrize("version", ALL)
def test_a_leader_that_is_not_alive_is_reported_as_missing(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await add_second_broker(broker, "PLAINTEXT", live=False)
        answer = await broker.call(metadata, version, topics=names("shared"))
        assert [node.node_id for node in answer.brokers] == [1]
        (partition,) = answer.topics[0].partitions
        assert int(partition.error_code) == ErrorCode.LEADER_NOT_AVAILABLE
        assert partition.leader_id == -1
        assert partition.replica_nodes == ((1,) if version == 0 else (2, 1))
        if version >= 5:
            assert partition.offline_replicas == (2,)

    with_broker(scenario)


@pytest.mark.parametrize("version", ALL)
def test_a_leader_without_the_clients_listener_is_reported_as_such(version: int) -> None:
    async def scenario(broker: FakeBroker) -> None:
        await add_second_broker(broker, "INTERNAL", live=True)
        answer = await broker.call(metadata, version, topics=names("shared"))
        (partition,) = answer.topics[0].partitions
        expected = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        assert int(partition.error_code) == expected

    with_broker(scenario)


def test_another_broker_that_is_alive_is_reported_with_its_endpoint_and_rack() -> None:
    async def scenario(broker: FakeBroker) -> None:
        before = await broker.call(metadata, 12, topics=names("shared"))
        assert topics_of(before) == [("shared", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        await add_second_broker(broker, "PLAINTEXT", live=True)
        answer = await broker.call(metadata, 12, topics=names("shared"))
        nodes = [(node.node_id, node.host, node.port, node.rack) for node in answer.brokers]
        assert nodes == [(1, "localhost", 19092, None), (2, "other", 5, "r2")]
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (2, 3)

    with_broker(scenario, auto_create_topics_enable="false")


def test_a_change_is_seen_by_the_next_request_despite_what_is_kept() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "a")
        assert topics_of(await broker.call(metadata, 12, topics=None)) == [("a", 0)]
        await broker.create(create_topics, "b")
        assert topics_of(await broker.call(metadata, 12, topics=None)) == [("a", 0), ("b", 0)]

    with_broker(scenario)


def test_ten_thousand_partitions_are_reported_without_building_the_answer_again() -> None:
    async def scenario(broker: FakeBroker) -> None:
        await broker.create(create_topics, "big", num_partitions=10_000)
        context = RequestContext(3, 12, 1, None, "PLAINTEXT", "localhost")
        request = codec.decode_request(3, 12, memoryview(b"\x00\x00\x00\x00"), 0)
        first: Any = metadata.handle(broker, context, request)
        again: Any = metadata.handle(broker, context, request)
        assert len(first["topics"][0]["partitions"]) == 10_000
        assert again["topics"] is first["topics"]

    with_broker(scenario)
