"""The broker's internal state: clients that disconnect leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.raw_client import POLL_S, TIMEOUT_S, Api, RawClient, read_batches, values

from ottla.base.types import TopicPartition
from ottla.storage.file import OsFileRange
from ottla.testing.broker import EmbeddedBroker


def with_broker(scenario: Callable[[EmbeddedBroker, RawClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with EmbeddedBroker() as embedded:
            client = await asyncio.to_thread(RawClient, embedded.port)
            try:
                await asyncio.wait_for(scenario(embedded, client), TIMEOUT_S)
            finally:
                client.close()

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(POLL_S)


def send_waiting_fetch(client: RawClient, topic: str) -> int:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return client.send(
        Api.FETCH, 11, max_wait_ms=60_000, min_bytes=1, max_bytes=1000, session_epoch=0,
        topics=[{"topic": topic, "partitions": [asked]}],
    )  # fmt: skip


def test_a_broker_in_the_test_serves_clients() -> None:
    async def scenario(embedded: EmbeddedBroker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        await asyncio.to_thread(client.produce, "t", [(None, b"v", (), 1)])
        assert values(await asyncio.to_thread(client.records, "t")) == [b"v"]
        assert embedded.broker.partitions[TopicPartition("t", 0)].high_watermark == 1
        assert (embedded.data_dir / "t-0").is_dir()

    with_broker(scenario)


def test_consumers_are_sent_many_records_from_the_file_and_followers_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    send = OsFileRange.send

    def count(self: OsFileRange, socket: int, start: int, length: int) -> int:
        taken = send(self, socket, start, length)
        sent.append(taken)
        return taken

    monkeypatch.setattr(OsFileRange, "send", count)

    async def scenario(embedded: EmbeddedBroker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        whole = [b"%d" % number + bytes(90_000) for number in range(40)]
        for each in whole:
            await asyncio.to_thread(client.produce, "t", [(None, each, (), 1)])
        fetched = await asyncio.to_thread(client.fetch, "t", 0)
        assert values(read_batches(fetched.records)) == whole
        assert sum(sent) == len(fetched.records)
        sent.clear()
        some = partial(client.fetch, "t", 7, partition_max_bytes=1_000_000)
        limited = await asyncio.to_thread(some)
        assert values(read_batches(limited.records)) == whole[7:18]
        assert sum(sent) == len(limited.records)
        sent.clear()
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 26}
        topics = [{"topic": "t", "partitions": [asked]}]
        as_follower = partial(client.call, Api.FETCH, 11, replica_id=5, max_bytes=1 << 26)
        answer = await asyncio.to_thread(partial(as_follower, session_epoch=-1, topics=topics))
        assert len(answer.responses[0].partitions[0].records) == len(fetched.records)
        assert not sent

    with_broker(scenario)


def test_a_fetch_whose_client_has_gone_waits_no_longer() -> None:
    async def scenario(embedded: EmbeddedBroker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        partition = embedded.broker.partitions[TopicPartition("t", 0)]
        other = await asyncio.to_thread(RawClient, embedded.port)
        await asyncio.to_thread(send_waiting_fetch, other, "t")
        await until(lambda: len(partition.delayed_fetches) == 1)
        other.close()
        await until(lambda: not partition.delayed_fetches)
        await until(lambda: embedded.broker.server.connections_open == 1)

    with_broker(scenario)


def test_an_answered_fetch_waits_for_nothing() -> None:
    async def scenario(embedded: EmbeddedBroker, client: RawClient) -> None:
        await asyncio.to_thread(client.create_topic, "t")
        partition = embedded.broker.partitions[TopicPartition("t", 0)]
        other = await asyncio.to_thread(RawClient, embedded.port)
        waiting = await asyncio.to_thread(send_waiting_fetch, other, "t")
        await until(lambda: len(partition.delayed_fetches) == 1)
        await asyncio.to_thread(client.produce, "t", [(None, b"v", (), 1)])
        answer = await asyncio.to_thread(other.receive, Api.FETCH, 11, waiting)
        assert answer.session_id > 0
        assert not partition.delayed_fetches
        assert len(embedded.broker.fetch_sessions) == 1
        other.close()

    with_broker(scenario)
