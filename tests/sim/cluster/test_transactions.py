"""Transactions across brokers: the coordinator and the partitions are on different ones.

The brokers are real and the cluster is simulated, so a test controls the exact order of events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.sim.cluster.transactional import (
    TOPIC,
    Producer,
    TransactionalCluster,
    first_epoch,
)

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.coordinator_runtime import FAILURE_BURST, FAILURE_INTERVAL_S
from ottla.broker.partition import Partition
from ottla.broker.peers import Peers
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.core.coordinator import ProducerIdAndEpoch as CoordinatedProducer
from ottla.core.txn.events import AddPartitionsRequested
from ottla.core.txn.machine import LAST_EPOCH
from ottla.core.txn.records import TransactionState
from ottla.core.txn.shard import TransactionShard, WriteMarkers
from ottla.testing.simulation.cluster import repeatable
from ottla.wire.api import Api
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import ControlType, control_type
from ottla.wire.request import Request

E = ErrorCode
PARTITIONS = (0, 1, 2)
GROUP = "g"
TRANSACTIONS = 40


@pytest.fixture
def world() -> Iterator[TransactionalCluster]:
    with repeatable(1):
        yield TransactionalCluster()


def ends(world: TransactionalCluster) -> dict[int, list[ControlType]]:
    """Return the markers of each partition from its leader's log; none if it has no leader."""
    leaders = {index: world.led(TopicPartition(TOPIC, index)) for index in PARTITIONS}
    return {index: [] if each is None else markers_of(each) for index, each in leaders.items()}


def markers_of(partition: Partition) -> list[ControlType]:
    log = partition.log
    markers: list[ControlType] = []
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        found = log.read(offset, 1 << 20, end, at_least_one=True, wait=True)
        markers += [
            control_type(found.records[header.position : header.end])
            for header in iter_headers(found.records)
            if header.is_control
        ]
        offset = found.next_offset
    return markers


def everywhere(*markers: ControlType) -> dict[int, list[ControlType]]:
    return {index: list(markers) for index in PARTITIONS}


def state(world: TransactionalCluster, id: str) -> TransactionState | None:
    """Return the transaction's state as its coordinator knows it."""
    for machine in world.cluster.ready:
        assert machine.broker is not None
        for runner in machine.broker.transaction_coordinator.runtime.runners:
            assert isinstance(runner.shard, TransactionShard)
            if id in runner.shard.transactions:
                return runner.shard.transactions[id].state
    return None


async def write_everywhere(producer: Producer, value: bytes) -> None:
    if producer.version == 1:
        assert await producer.add(*PARTITIONS) is E.NONE
    for index in PARTITIONS:
        assert await producer.produce(index, value) is E.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_leaders_elsewhere_get_their_markers(world: TransactionalCluster, version: int) -> None:
    producer = Producer(world, "id", version=version)

    async def transact() -> None:
        await producer.begin()
        for commit in (True, False, True):
            await write_everywhere(producer, b"v")
            assert await producer.end(commit=commit) is E.NONE

    world.run(transact())
    world.until(lambda: state(world, "id") is TransactionState.COMPLETE_COMMIT)
    assert ends(world) == everywhere(ControlType.COMMIT, ControlType.ABORT, ControlType.COMMIT)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_writes_the_markers_that_a_dead_one_owed(
    world: TransactionalCluster, version: int, commit: bool
) -> None:
    producer = Producer(world, "id", version=version)

    async def until_decided() -> int:
        await producer.begin()
        await write_everywhere(producer, b"v")
        coordinator = await producer.coordinator()
        silence(world.broker(coordinator).transaction_coordinator)
        assert await producer.end(commit=commit) is E.NONE
        return coordinator

    coordinator = world.run(until_decided())
    assert ends(world) == everywhere()
    world.cluster.machines[coordinator].kill()
    decided = ControlType.COMMIT if commit else ControlType.ABORT
    world.until(lambda: ends(world) == everywhere(decided))
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    world.until(lambda: state(world, "id") is complete)


def silence(coordinator: TransactionCoordinator) -> None:
    """Stop a coordinator from writing markers."""

    class Nothing:
        def write(self, *_: Any) -> None:
            """Ignore the request without an answer."""

    coordinator._markers = Nothing()


@pytest.mark.parametrize("version", [1, 2])
def test_markers_find_the_leader_that_took_over(world: TransactionalCluster, version: int) -> None:
    """The leader dies while the decision is being made."""
    producer = Producer(world, "id", version=version)

    async def until_written() -> int:
        await producer.begin()
        await write_everywhere(producer, b"v")
        return await producer.coordinator()

    coordinator = world.run(until_written())
    victim = coordinator % 3 + 1
    world.cluster.machines[victim].kill()
    assert world.run(producer.end(commit=True)) is E.NONE
    world.until(lambda: ends(world) == everywhere(ControlType.COMMIT))
    world.until(lambda: state(world, "id") is TransactionState.COMPLETE_COMMIT)


def test_markers_wait_no_longer_for_a_leader_that_is_none(world: TransactionalCluster) -> None:
    """The old leader is paused: it does not answer, but its connections stay open, and another
    broker leads meanwhile."""
    producer = Producer(world, "id", version=2)

    async def until_written() -> int:
        await producer.begin()
        await write_everywhere(producer, b"v")
        return await producer.coordinator()

    coordinator = world.run(until_written())
    victim = world.cluster.machines[coordinator % 3 + 1]
    victim.process.pause()
    victim.is_ready = False
    before = world.cluster.scheduler.now
    assert world.run(producer.end(commit=True)) is E.NONE
    world.until(lambda: state(world, "id") is TransactionState.COMPLETE_COMMIT)
    assert world.cluster.scheduler.now - before < 10.0


def test_a_batch_behind_the_marker_is_refused_even_if_it_was_verified_before(
    world: TransactionalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In version 1, the epoch does not reveal that the transaction has ended."""
    producer = Producer(world, "id", version=1)
    held = Held()

    async def until_ended() -> ErrorCode:
        await producer.begin()
        coordinator = await producer.coordinator()
        index = next(
            each for each in PARTITIONS if world.leader(TopicPartition(TOPIC, each)) != coordinator
        )
        assert await producer.add(index) is E.NONE
        monkeypatch.setattr(Peers, "request", held.request(Peers.request))
        late = asyncio.ensure_future(producer.try_to_produce(index, b"late"))
        await held.until(lambda: held.is_answered)
        assert await producer.end(commit=False) is E.NONE
        await held.until(lambda: state(world, "id") is TransactionState.COMPLETE_ABORT)
        held.is_released = True
        return await late

    assert world.run(until_ended()) is E.INVALID_TXN_STATE


class Held:
    """A stub that holds back the responses to transaction verification."""

    def __init__(self) -> None:
        self.is_answered = self.is_released = False

    async def until(self, look: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if look():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came")

    def request(self, ask: Any) -> Any:
        async def request(
            peers: Peers, node: int, sent: Request[Any], *args: Any, **options: Any
        ) -> Any:
            answer = await ask(peers, node, sent, *args, **options)
            if sent.api == Api.ADD_PARTITIONS_TO_TXN:
                self.is_answered = True
                await self.until(lambda: self.is_released)
            return answer

        return request


def unstable(world: TransactionalCluster) -> dict[int, int]:
    """Return how many offsets of each partition a transaction holds back from readers."""
    found = {index: world.led(TopicPartition(TOPIC, index)) for index in PARTITIONS}
    return {
        index: 0 if each is None else each.high_watermark - each.last_stable_offset
        for index, each in found.items()
    }


NOTHING_HELD = dict.fromkeys(PARTITIONS, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_only_an_open_transaction_holds_the_last_stable_offset(
    world: TransactionalCluster, version: int
) -> None:
    first = Producer(world, "first", version=version)
    second = Producer(world, "second", version=version)

    async def begin() -> None:
        await first.begin()
        await second.begin()

    world.run(begin())
    for commit in (True, False):
        world.run(write_everywhere(first, b"open"))
        world.run(write_everywhere(second, b"other"))
        world.run(second.end(commit=commit))
        world.until(lambda: unstable(world) == dict.fromkeys(PARTITIONS, 3))  # 2 records, 1 marker
        world.run(first.end(commit=commit))
        world.until(lambda: unstable(world) == NOTHING_HELD, timeout_s=1.0)


@pytest.mark.parametrize("version", [1, 2])
def test_the_next_producer_ends_the_transaction_that_a_dead_one_left_open(
    world: TransactionalCluster, version: int
) -> None:
    dead = Producer(world, "id", version=version)

    async def leave_open() -> None:
        await dead.begin()
        await write_everywhere(dead, b"open")

    world.run(leave_open())
    assert unstable(world) == dict.fromkeys(PARTITIONS, 1)
    world.run(Producer(world, "id", version=version).begin())
    world.until(lambda: unstable(world) == NOTHING_HELD, timeout_s=1.0)
    assert ends(world) == everywhere(ControlType.ABORT)


@pytest.mark.parametrize("interval_ms", [200, None], ids=["set", "default"])
def test_an_abandoned_transaction_is_aborted_within_the_cleanup_interval_after_its_timeout(
    interval_ms: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    timeout_s, default_s, slack_s = 3.0, 10.0, 0.5
    property_name = "transaction__abort__timed__out__transaction__cleanup__interval__ms"
    overrides = {} if interval_ms is None else {property_name: str(interval_ms)}
    interval_s = default_s if interval_ms is None else interval_ms / 1000
    caplog.set_level(logging.INFO, logger="ottla")
    with repeatable(1):
        world = TransactionalCluster(**overrides)
        producer = Producer(world, "id", version=2)

        async def leave_open() -> None:
            await producer.begin(int(timeout_s * 1000))
            await write_everywhere(producer, b"open")

        began = world.cluster.scheduler.now
        world.run(leave_open())
        opened = world.cluster.scheduler.now
        world.until(lambda: unstable(world) == NOTHING_HELD)
        ended = world.cluster.scheduler.now
        assert began + timeout_s < ended < opened + timeout_s + interval_s + slack_s
        assert ends(world) == everywhere(ControlType.ABORT)
    (line,) = [each for each in caplog.messages if "'id'" in each]
    assert line.startswith("Aborting the transaction of transactional id 'id': it has been open")
    assert "longer than its timeout of 3 s" in line


def test_an_abort_that_cannot_be_written_is_logged_a_few_times_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One broker of three is left, and the coordinator retries every 100 ms."""
    caplog.set_level(logging.INFO, logger="ottla")
    with repeatable(1):
        world = TransactionalCluster(
            transaction__abort__timed__out__transaction__cleanup__interval__ms="100"
        )
        producer = Producer(world, "id", version=2)

        async def leave_open() -> int:
            await producer.begin(5_000)
            await write_everywhere(producer, b"open")
            return await producer.coordinator()

        coordinator = world.run(leave_open())
        others = [number for number in world.cluster.machines if number != coordinator]
        for number in others:
            world.cluster.machines[number].kill()
        world.cluster.scheduler.run_for(60.0)
        assert state(world, "id") is TransactionState.ONGOING
        aborting = [each for each in caplog.messages if each.startswith("Aborting the transaction")]
        failed = [
            each
            for each in caplog.messages
            if each.startswith("Could not write coordinator records")
        ]
        assert len(aborting) == 1
        assert 1 <= len(failed) <= FAILURE_BURST + 60.0 / FAILURE_INTERVAL_S + 1
        for number in others:
            world.cluster.machines[number].start()
        world.until(lambda: unstable(world) == NOTHING_HELD)
    assert ends(world) == everywhere(ControlType.ABORT)


# Scenarios of a producer that continues before the markers of its last transaction are written.
# They run here with the rules they depend on, and in test_mutations without them.


def end_before_the_markers_are_written() -> None:
    with repeatable(1):
        world = TransactionalCluster()
        producer = Producer(world, "id", version=2)

        async def transact() -> None:
            await producer.begin()
            for commit in (True, False) * 5:
                await write_everywhere(producer, b"v")
                assert await producer.end(commit=commit) is E.NONE
                assert await producer.end(commit=False) is E.NONE

        world.run(transact())
        assert producer.refusals[E.CONCURRENT_TRANSACTIONS], "it was never quick enough"


def use_a_new_producer_id_at_once() -> None:
    """Use up the epochs, so that EndTxn returns the next producer ID.

    The coordinator holds requests only briefly, so it has to decide on some of them too early."""
    with repeatable(1), first_epoch(LAST_EPOCH - 1):
        world = TransactionalCluster(add__partitions__to__txn__retry__backoff__ms="1")

        async def overflow(id: str) -> Producer:
            producer = Producer(world, id, version=2)
            await producer.begin()
            before = producer.producer_id
            assert producer.epoch == LAST_EPOCH - 1
            assert await producer.commit_offset(GROUP, 0) is E.NONE
            await write_everywhere(producer, b"v")
            assert await producer.end(commit=True) is E.NONE
            assert producer.producer_id != before
            assert producer.epoch == 0
            return producer

        async def transact() -> None:
            for number in range(3):
                producer = await overflow(f"offset-{number}")
                assert await producer.commit_offset(GROUP, number) is E.NONE
                assert await producer.end(commit=True) is E.NONE
                producer = await overflow(f"record-{number}")
                assert await producer.produce(number, b"v") is E.NONE
                assert await producer.end(commit=True) is E.NONE
                producer = await overflow(f"end-{number}")
                assert await producer.end(commit=False) is E.NONE

        world.run(transact())


def commit_small_transactions_back_to_back() -> None:
    """In a healthy cluster the brokers wait for the markers, and the client never has to retry."""
    with repeatable(1):
        world = TransactionalCluster()
        producer = Producer(world, "id", version=2)

        async def transact() -> None:
            await producer.begin()
            await write_everywhere(producer, b"first")
            assert await producer.commit_offset(GROUP, 0) is E.NONE
            assert await producer.end(commit=True) is E.NONE
            producer.refusals.clear()  # from coordinators that had just been created
            for number in range(TRANSACTIONS):
                if number % 4:
                    assert await producer.produce(number % 3, b"v") is E.NONE
                else:
                    assert await producer.commit_offset(GROUP, number) is E.NONE
                assert await producer.end(commit=True) is E.NONE

        world.run(transact())
        assert not producer.refusals


@pytest.mark.parametrize(
    "scenario",
    [
        end_before_the_markers_are_written,
        use_a_new_producer_id_at_once,
        commit_small_transactions_back_to_back,
    ],
)
def test_a_producer_may_continue_before_its_markers_are_written(
    scenario: Callable[[], None],
) -> None:
    scenario()


def test_a_request_between_the_last_marker_and_its_record_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record that completes a transaction is applied slightly later than the decision."""
    hold_ms = 5_000
    with repeatable(1):
        world = TransactionalCluster(
            add__partitions__to__txn__retry__backoff__ms=str(hold_ms),
            add__partitions__to__txn__retry__backoff__max__ms=str(hold_ms),
        )
        producer = Producer(world, "id", version=2)
        answers: list[tuple[float, ErrorCode]] = []
        complete = TransactionCoordinator._complete

        def complete_and_add(self: TransactionCoordinator, wanted: WriteMarkers) -> None:
            complete(self, wanted)
            monkeypatch.undo()
            asked_at = world.cluster.scheduler.now

            def on_answer(code: ErrorCode) -> None:
                answers.append((world.cluster.scheduler.now - asked_at, code))

            added = frozenset({TopicPartition(TOPIC, 0)})
            token = Answered(on_answer)
            self.add_partitions(AddPartitionsRequested(token, "id", wanted.producer, added, 2))

        monkeypatch.setattr(TransactionCoordinator, "_complete", complete_and_add)

        async def transact() -> None:
            await producer.begin()
            await write_everywhere(producer, b"v")
            assert await producer.end(commit=True) is E.NONE

        world.run(transact())
        world.until(lambda: bool(answers))
    ((seconds, code),) = answers
    assert code is E.NONE
    assert seconds < hold_ms / 1000 / 10


def test_a_request_is_not_held_for_markers_that_are_late() -> None:
    """A held request would delay the others on its connection."""
    hold_ms = 5_000
    with repeatable(1):
        world = TransactionalCluster(add__partitions__to__txn__retry__backoff__ms=str(hold_ms))
        producer = Producer(world, "id", version=2)
        answers: list[ErrorCode] = []

        async def ask_late() -> None:
            await producer.begin()
            await write_everywhere(producer, b"v")
            coordinator = world.broker(await producer.coordinator()).transaction_coordinator
            silence(coordinator)
            assert await producer.end(commit=True) is E.NONE
            await asyncio.sleep(0.2)
            identity = CoordinatedProducer(producer.producer_id, producer.epoch)
            added = frozenset({TopicPartition(TOPIC, 0)})
            token = Answered(answers.append)
            coordinator.add_partitions(AddPartitionsRequested(token, "id", identity, added, 2))

        world.run(ask_late())
        world.until(lambda: bool(answers), timeout_s=0.1)
    assert answers == [E.CONCURRENT_TRANSACTIONS]


class Answered:
    """A callback that receives the error code of the response."""

    def __init__(self, on_answer: Callable[[ErrorCode], None]) -> None:
        self._on_answer = on_answer

    def reply(self, body: dict[str, Any]) -> None:
        self._on_answer(body["error_code"])

    def fail(self, error: KafkaError) -> None:
        self._on_answer(error.code)


def test_a_partition_that_was_not_added_is_refused(world: TransactionalCluster) -> None:
    producer = Producer(world, "id", version=1)

    async def produce() -> list[ErrorCode]:
        await producer.begin()
        return [await producer.produce(index, b"v") for index in PARTITIONS]

    assert world.run(produce()) == [E.TRANSACTION_ABORTABLE] * 3
