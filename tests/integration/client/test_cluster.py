"""A client's view of the brokers: discovery, failure, rediscovery."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.integration.client.fake_broker import NODE_ID, FakeBroker, Stream

from ottla.base.errors import ErrorCode
from ottla.client import cluster as cluster_module
from ottla.client.cluster import Cluster, CoordinatorType, Purpose
from ottla.client.config import CommonConfig
from ottla.client.errors import (
    BrokersUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnknownTopic,
    error_for,
)
from ottla.testing.broker import BrokerProcess
from ottla.wire import rpc
from ottla.wire.api import Api
from ottla.wire.messages.create_topics import CreatableTopicDict

NOWHERE = "127.0.0.1:1"


def cluster_of(bootstrap: str | list[str], **properties: Any) -> Cluster:
    return Cluster(CommonConfig.of(bootstrap, None, properties))


class Started:
    """A context manager for a started cluster: `async with Started("host:port", …) as cluster`."""

    def __init__(self, bootstrap: str | list[str], **properties: Any) -> None:
        self.cluster = cluster_of(bootstrap, **properties)

    async def __aenter__(self) -> Cluster:
        await self.cluster.start()
        return self.cluster

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.close()


# ----------------------------------------------------------------------------------- discovery


def test_brokers_that_cannot_be_reached_are_named_within_the_timeout() -> None:
    async def main() -> None:
        cluster = cluster_of([NOWHERE, "127.0.0.1:2"], default_api_timeout_ms=400)
        start = time.monotonic()
        with pytest.raises(BrokersUnreachable) as failure:
            await cluster.start()
        assert time.monotonic() - start < 3
        assert NOWHERE in str(failure.value)
        assert "127.0.0.1:2" in str(failure.value)
        assert "within 0.4 s" in str(failure.value)
        await cluster.close()

    asyncio.run(main())


def test_the_next_bootstrap_server_is_asked_when_one_is_not_there(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with Started([NOWHERE, broker.bootstrap]) as cluster:
            assert list(cluster.metadata.nodes) == [1]
            assert cluster.controller == 1

    asyncio.run(main())


def test_a_broker_with_an_unreachable_address_is_named() -> None:
    """A wrong advertised.listeners is the most common configuration mistake."""

    def script(stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, {3: (0, 13), 18: (0, 4), 60: (0, 1)})
            else:
                wrong = {"node_id": 3, "host": "127.0.0.1", "port": 1, "rack": None}
                stream.answer(asked, **{**stream.broker.metadata(), "brokers": [wrong]})

    async def main(bootstrap: str) -> None:
        async with Started(bootstrap, default_api_timeout_ms=500) as cluster:
            with pytest.raises(BrokersUnreachable, match=NOWHERE):
                await cluster.retrying(lambda: cluster.call(rpc.describe_cluster(), node=3))

    with FakeBroker(script) as broker:
        asyncio.run(main(broker.bootstrap))


def test_a_broker_that_could_not_be_reached_is_left_alone_for_a_while() -> None:
    async def main(broker: FakeBroker) -> None:
        async with Started(
            broker.bootstrap, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000
        ) as cluster:
            for _ in range(3):
                with pytest.raises((ConnectionLost, KafkaTimeout)):
                    await cluster.connection(NODE_ID)
            assert broker.connections == 2, "one that described the cluster, one that failed"

    def script(stream: Stream) -> None:
        if stream.broker.connections == 1:
            stream.serve()

    with FakeBroker(script) as broker:
        asyncio.run(main(broker))


def test_coordinators_have_a_connection_of_their_own(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with Started(broker.bootstrap) as cluster:
            data = await cluster.connection(1)
            coordination = await cluster.connection(1, Purpose.COORDINATION)
            assert data is not coordination
            assert await cluster.connection(1) is data
            assert cluster.open_connection(1) is data
            with pytest.raises(ConnectionLost, match="broker 9 is not in"):
                await cluster.connection(9)

    asyncio.run(main())


# -------------------------------------------------------------------------------- lost brokers


def test_a_call_outlives_a_restart_of_the_broker() -> None:
    async def main() -> None:
        with BrokerProcess() as broker:
            async with Started(broker.bootstrap) as cluster:
                first = await cluster.call(rpc.describe_cluster(), node=1)
                await asyncio.to_thread(broker.kill)
                with pytest.raises(ConnectionLost):
                    await cluster.call(rpc.describe_cluster(), node=1)
                again = asyncio.create_task(
                    cluster.retrying(lambda: cluster.call(rpc.describe_cluster(), node=1))
                )
                await asyncio.to_thread(broker.start)
                assert (await again).cluster_id == first.cluster_id

    asyncio.run(main())


def test_a_connection_cut_in_the_middle_of_an_answer_is_made_again() -> None:
    def script(stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, {3: (0, 13), 16: (0, 4), 18: (0, 4)})
            elif asked.api == Api.METADATA:
                stream.answer(asked, **stream.broker.metadata())
            elif sum(each.api == Api.LIST_GROUPS for each in stream.broker.asked) < 3:
                stream.send(b"\0\0\1\0half")
                return
            else:
                stream.answer(asked, groups=[], error_code=0)

    async def main(bootstrap: str) -> None:
        async with Started(bootstrap, retry_backoff_ms=10) as cluster:
            answer = await cluster.retrying(lambda: cluster.call(rpc.list_groups()))
            assert answer.groups == []

    with FakeBroker(script) as broker:
        asyncio.run(main(broker.bootstrap))


def test_a_request_in_flight_when_the_client_is_closed_fails() -> None:
    def script(stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, {3: (0, 13), 16: (0, 4), 18: (0, 4)})
            elif asked.api == Api.METADATA:
                stream.answer(asked, **stream.broker.metadata())

    async def main(bootstrap: str) -> None:
        async with Started(bootstrap) as cluster:
            waiting = asyncio.create_task(cluster.call(rpc.list_groups()))
            while not any(asked.api == Api.LIST_GROUPS for asked in broker.asked):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await cluster.close()
            with pytest.raises(ConnectionLost):
                await waiting
            with pytest.raises(ClientClosed):
                await cluster.call(rpc.list_groups())

    with FakeBroker(script) as broker:
        asyncio.run(main(broker.bootstrap))


def test_idle_connections_are_closed(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "IDLE_CHECK_S", 0.05)

    async def main() -> None:
        async with Started(broker.bootstrap, connections_max_idle_ms=100) as cluster:
            connection = await cluster.connection(1)
            async with asyncio.timeout(5):
                while connection.is_open:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert (await cluster.connection(1)).is_open

    asyncio.run(main())


# ------------------------------------------------------------------------------------ retrying


def test_what_may_pass_is_tried_again_and_what_may_not_is_raised(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with Started(broker.bootstrap, retry_backoff_ms=5) as cluster:
            codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT, None]
            left = list(codes)

            async def attempt() -> str:
                code = left.pop(0)
                if code is not None:
                    raise error_for(code)
                return "done"

            assert await cluster.retrying(attempt) == "done"

            async def wrong() -> None:
                left.append(None)
                raise error_for(ErrorCode.INVALID_REQUEST, "never")

            with pytest.raises(ClientError, match="never"):
                await cluster.retrying(wrong)
            assert len(left) == 1, "once"

    asyncio.run(main())


def test_a_timeout_reports_the_last_failure(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with Started(broker.bootstrap) as cluster:

            async def attempt() -> None:
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, topic="orders", partition=3)

            with pytest.raises(ClientError) as failure:
                await cluster.retrying(attempt, timeout_ms=200)
            assert failure.value.code is ErrorCode.LEADER_NOT_AVAILABLE
            assert (failure.value.topic, failure.value.partition) == ("orders", 3)
            with pytest.raises(KafkaTimeout, match=r"sleeping did not succeed within 0\.1 s"):
                await cluster.retrying(lambda: asyncio.sleep(60), timeout_ms=100, what="sleeping")

    asyncio.run(main())


def test_a_topic_is_waited_for_and_an_unknown_one_named(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        async with Started(broker.bootstrap) as cluster:
            with pytest.raises(UnknownTopic, match=topic):
                await cluster.topic(topic, timeout_ms=200)
            waiting = asyncio.create_task(cluster.topic(topic))
            new: CreatableTopicDict = {
                "name": topic,
                "num_partitions": 2,
                "replication_factor": 1,
            }
            await cluster.call_controller(rpc.create_topics(topics=[new], timeout_ms=5_000))
            found = await waiting
            assert (found.name, found.partition_count, found.available) == (topic, 2, (0, 1))

    asyncio.run(main())


# -------------------------------------------------------------------------------- coordinators


def test_coordinators_are_found_one_by_one_and_together(broker: BrokerProcess) -> None:
    async def main() -> None:
        async with Started(broker.bootstrap) as cluster:
            one = await cluster.retrying(
                lambda: cluster.coordinator(CoordinatorType.GROUP, "some group")
            )
            assert one == 1
            many = await cluster.coordinators(CoordinatorType.GROUP, ["a", "b", "some group"])
            assert many == {"a": 1, "b": 1, "some group": 1}

    asyncio.run(main())


def test_an_old_broker_is_asked_for_each_coordinator() -> None:
    def script(stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer_versions(asked, {3: (0, 9), 10: (0, 3), 18: (0, 3)})
            elif asked.api == Api.METADATA:
                stream.answer(asked, **stream.broker.metadata())
            elif asked.body.key == "lost":
                stream.answer(asked, error_code=15, node_id=-1, host="", port=-1)
            else:
                host, port = stream.broker.host, stream.broker.port
                stream.answer(asked, error_code=0, node_id=NODE_ID, host=host, port=port)

    async def main(bootstrap: str) -> None:
        async with Started(bootstrap) as cluster:
            found = await cluster.coordinators(CoordinatorType.GROUP, ["mine", "lost"])
            assert found["mine"] == NODE_ID
            assert isinstance(found["lost"], ClientError)
            assert found["lost"].code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    with FakeBroker(script) as broker:
        asyncio.run(main(broker.bootstrap))
