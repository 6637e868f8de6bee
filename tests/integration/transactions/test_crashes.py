"""Durability of decisions when the broker stops before it has written the markers.

The next start writes them. No marker is written before the decision is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.producer import (
    TransactionalProducer,
    fetch_committed,
    read_committed,
)
from tests.raw_client import POLL_S, TIMEOUT_S, Api, RawClient, eventually

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.transaction_coordinator import TRANSACTION_TOPIC
from ottla.broker.transaction_markers import LocalMarkers, Marker, OnWritten
from ottla.core.coordinator import Decision
from ottla.core.txn.records import Transaction
from ottla.core.txn.shard import TransactionShard
from ottla.testing.broker import EmbeddedBroker

E = ErrorCode
GROUP = "g"


class MarkersUntil:
    """A marker writer that drops everything after `count` markers, as if the broker had stopped."""

    def __init__(self, embedded: EmbeddedBroker, count: int) -> None:
        self._markers = LocalMarkers(embedded.broker)
        self._left = count
        self.keys: list[TopicPartition] = []

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        if self._left:
            self._left -= 1
            self.keys.append(partition)
            self._markers.write(partition, marker, on_written)


def in_thread(embedded: EmbeddedBroker, work: Callable[[RawClient], Any]) -> Awaitable[Any]:
    def run() -> Any:
        with RawClient(embedded.port) as client:
            return work(client)

    return asyncio.wait_for(asyncio.to_thread(run), TIMEOUT_S)


def committed_offset(client: RawClient, topic: str) -> int:
    def look() -> Any:
        return client.call(
            Api.OFFSET_FETCH,
            7,
            group_id=GROUP,
            require_stable=True,
            topics=[{"name": topic, "partition_indexes": [0]}],
        )

    answer = eventually(look, lambda found: found.error_code == 0)  # groups may still be loading
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_decision_is_carried_out_after_a_stop_between_any_two_markers(
    tmp_path: Path, written: int, commit: bool, version: int
) -> None:
    identity: dict[str, int] = {}

    def transact(client: RawClient) -> None:
        client.create_topic("t", 2)
        client.call(Api.FIND_COORDINATOR, 3, key=GROUP, key_type=0)
        producer = TransactionalProducer(client, "id").begin()
        if version == 1:
            assert producer.add("t", 0, 1) is E.NONE
            assert producer.add_offsets(GROUP) is E.NONE
        for partition in (0, 1):
            code = producer.produce("t", b"v", partition=partition, version=10 + version)
            assert code is E.NONE
        assert producer.commit_offset(GROUP, "t", 7, version=3 + version) is E.NONE
        assert producer.end(commit, 3 if version == 1 else 5) is E.NONE
        identity.update(producer_id=producer.producer_id, epoch=producer.epoch)

    async def stop_early() -> None:
        async with EmbeddedBroker(tmp_path) as embedded:
            markers = MarkersUntil(embedded, written)
            embedded.broker.transaction_coordinator._markers = markers
            await in_thread(embedded, transact)
            while len(markers.keys) < written:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(POLL_S)

    def look(client: RawClient) -> None:
        producer = TransactionalProducer(client, "id")
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        eventually(producer.state, lambda state: state.transaction_state == wanted)
        for partition in (0, 1):
            assert read_committed(client, "t", partition) == ([b"v"] if commit else [])
            assert fetch_committed(client, "t", 0, partition).last_stable_offset >= 2
        assert committed_offset(client, "t") == (7 if commit else -1)
        # The producer continues as if nothing had happened.
        producer._become(identity["producer_id"], identity["epoch"])
        producer.sequences = {("t", 0): 0 if version == 2 else 1}
        assert producer.produce("t", b"w") is E.NONE
        assert producer.end() is E.NONE
        assert read_committed(client, "t") == ([b"v", b"w"] if commit else [b"w"])

    async def start_again() -> None:
        async with EmbeddedBroker(tmp_path) as embedded:
            await in_thread(embedded, look)

    asyncio.run(stop_early())
    asyncio.run(start_again())


class RefusedOnce:
    """A marker writer that fails once, as if the partition were not open yet at the start."""

    def __init__(self, embedded: EmbeddedBroker) -> None:
        self._markers = LocalMarkers(embedded.broker)
        self.attempts = 0

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        self.attempts += 1
        if self.attempts == 1:
            on_written(partition, KafkaError(E.NOT_LEADER_OR_FOLLOWER))
        else:
            self._markers.write(partition, marker, on_written)


def test_a_marker_that_is_refused_during_the_start_is_written_after_it(tmp_path: Path) -> None:
    def transact(client: RawClient) -> None:
        client.create_topic("t")
        producer = TransactionalProducer(client, "id").begin()
        assert producer.produce("t", b"v") is E.NONE
        assert producer.end() is E.NONE

    async def stop_before_the_marker() -> None:
        async with EmbeddedBroker(tmp_path) as embedded:
            embedded.broker.transaction_coordinator._markers = MarkersUntil(embedded, 0)
            await in_thread(embedded, transact)
        (tmp_path / ".kafka_cleanshutdown").unlink()  # a crash: the next start is a new epoch

    def look(client: RawClient) -> None:
        state = TransactionalProducer(client, "id").state
        eventually(state, lambda found: found.transaction_state == "CompleteCommit")
        assert read_committed(client, "t") == [b"v"]

    async def start_again() -> None:
        embedded = EmbeddedBroker(tmp_path)
        markers = embedded.broker.transaction_coordinator._markers = RefusedOnce(embedded)
        async with embedded:
            await in_thread(embedded, look)
        assert markers.attempts == 2

    asyncio.run(stop_before_the_marker())
    asyncio.run(start_again())


class SlowDisk:
    """A broker whose syncs happen when the test triggers them."""

    def __init__(self, embedded: EmbeddedBroker) -> None:
        self.is_held = False
        self._flusher = embedded.broker.flusher
        self._run = self._flusher._run_blocking
        self._flusher._run_blocking = self._held  # type: ignore[assignment]

    async def _held(self, work: Callable[[], Any]) -> Any:
        while self.is_held:  # noqa: ASYNC110 - the test releases it
            await asyncio.sleep(POLL_S)
        return await self._run(work)


def check_that_markers_wait_for_the_decision(tmp_path: Path) -> None:
    """Check that no marker is written while the decision is not on disk.

    The broker runs with `log.flush.acks.all`, and its disk syncs nothing after EndTxn arrives."""

    def begin(client: RawClient) -> TransactionalProducer:
        client.create_topic("t")
        producer = TransactionalProducer(client).begin()
        assert producer.produce("t", b"v") is E.NONE
        return producer

    async def run() -> None:
        overrides = {"log.flush.acks.all": "true"}
        async with EmbeddedBroker(tmp_path, overrides=overrides) as embedded:
            disk = SlowDisk(embedded)
            client = await asyncio.to_thread(RawClient, embedded.port)
            producer = await asyncio.to_thread(begin, client)
            coordinator = embedded.broker.transaction_coordinator
            index = coordinator.topic.partition_for(producer.id)
            decisions = embedded.broker.partitions[TRANSACTION_TOPIC, index or 0]
            log = embedded.broker.partitions["t", 0].log
            known, end_offset = decisions.log.log_end_offset, log.log_end_offset
            disk.is_held = True
            client.send(Api.END_TXN, 5, committed=True, **producer.identity())
            while decisions.log.log_end_offset == known:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(POLL_S)
            for _ in range(20):
                await asyncio.sleep(0)
            try:
                assert decisions.high_watermark == known, "the decision is not on disk"
                assert log.log_end_offset == end_offset, "and there is a marker already"
            finally:
                disk.is_held = False
            while embedded.broker.partitions["t", 0].last_stable_offset != end_offset + 1:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            client.close()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_no_marker_is_written_before_the_decision_is_on_disk(tmp_path: Path) -> None:
    check_that_markers_wait_for_the_decision(tmp_path)


def test_markers_written_before_the_decision_is_on_disk_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutation that the test above must detect."""

    def hasty(
        self: TransactionShard, transactional_id: str, prepared: Transaction, decision: Decision
    ) -> None:
        ask(self, transactional_id, prepared, decision)
        token, body = decision.responses.pop()
        self.apply(decision.records[-1], 0, -1)
        token.reply(body)

    ask = TransactionShard._request_markers
    monkeypatch.setattr(TransactionShard, "_request_markers", hasty)
    with pytest.raises(AssertionError, match="there is a marker already"):
        check_that_markers_wait_for_the_decision(tmp_path)


def test_the_last_stable_offset_waits_until_the_marker_is_on_disk(tmp_path: Path) -> None:
    """Otherwise a consumer could read a transaction whose end a power cut then removes."""

    def begin(client: RawClient) -> TransactionalProducer:
        client.create_topic("t")
        producer = TransactionalProducer(client).begin()
        assert producer.produce("t", b"v") is E.NONE
        return producer

    async def run() -> None:
        overrides = {"log.flush.acks.all": "true"}
        async with EmbeddedBroker(tmp_path, overrides=overrides) as embedded:
            disk = SlowDisk(embedded)
            client = await asyncio.to_thread(RawClient, embedded.port)
            producer = await asyncio.to_thread(begin, client)
            partition = embedded.broker.partitions["t", 0]
            assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
            marker = Marker(producer.identity_as_producer(), False, 0)
            done: list[ErrorCode | None] = []
            disk.is_held = True
            LocalMarkers(embedded.broker).write(
                partition.key, marker, lambda _, error: done.append(error and error.code)
            )
            assert partition.log.log_end_offset == 2
            assert partition.log.producers.first_unstable_offset is None
            assert (partition.last_stable_offset, done) == (0, [])
            disk.is_held = False
            while not done:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(POLL_S)
            assert (partition.last_stable_offset, done) == (2, [None])
            client.close()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_a_late_answer_of_an_older_coordinator_epoch_completes_nothing(tmp_path: Path) -> None:
    """In version 1 the producer's next transaction has the same epoch. A late response for
    markers of the previous one, requested before the coordinator moved away and back, looks
    like its own."""
    late: list[tuple[TopicPartition, OnWritten]] = []

    class Kept:
        def write(self, partition: TopicPartition, _: Marker, on_written: OnWritten) -> None:
            late.append((partition, on_written))

    def decide(client: RawClient) -> None:
        client.create_topic("t")
        producer = TransactionalProducer(client, "id").begin()
        assert producer.add("t", 0) is E.NONE
        assert producer.produce("t", b"v", version=11) is E.NONE
        assert producer.end(version=3) is E.NONE

    def state(client: RawClient) -> str:
        found: str = TransactionalProducer(client, "id").state().transaction_state
        return found

    async def run() -> None:
        async with EmbeddedBroker(tmp_path) as embedded:
            coordinator = embedded.broker.transaction_coordinator
            coordinator._markers = Kept()
            await in_thread(embedded, decide)
            ((key, on_written),) = late
            partition = embedded.broker.partitions[
                TRANSACTION_TOPIC, coordinator.topic.partition_for("id") or 0
            ]
            partition.leader_epoch += 1
            on_written(key, None)
            assert await in_thread(embedded, state) == "PrepareCommit"
            partition.leader_epoch -= 1
            on_written(key, None)
            assert await in_thread(embedded, state) == "CompleteCommit"

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))
