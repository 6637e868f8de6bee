"""Tests of the coordinator runtime: batching, ordering, commit waits, failures and loading."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.coordinator.bed import (
    Added,
    Answer,
    Bed,
    FakePartition,
    Totals,
    turn,
    with_bed,
)

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinator_runtime import (
    FAILURE_BURST,
    FAILURE_INTERVAL_S,
    RELOAD_DELAY_S,
    RuntimeSettings,
    ShardState,
)
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.storage.log import LogSlice
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import build_batch, end_txn_marker


def test_all_that_comes_in_one_turn_is_one_batch() -> None:
    async def scenario(bed: Bed) -> None:
        answers = [bed.add(f"k{number}", 1) for number in range(10)]
        assert [answer.value for answer in answers] == [None] * 10
        await turn()
        assert bed.batch_sizes == [10]
        assert [answer.value for answer in answers] == [0] * 10
        bed.add("k0", 1)
        await turn()
        assert bed.batch_sizes == [10, 1]

    with_bed(scenario)


def test_events_that_commute_share_a_batch_even_of_one_key() -> None:
    async def scenario(bed: Bed) -> None:
        for _ in range(5):
            bed.add("k", 1, commutes=True)
        await turn()
        assert bed.batch_sizes == [5]
        assert bed.shard.totals == {"k": 5}

    with_bed(scenario)


def test_an_event_sees_what_came_before_it() -> None:
    async def scenario(bed: Bed) -> None:
        bed.add("k", 1, commutes=True)
        second = bed.add("k", 2)
        assert bed.batch_sizes == [1], "what it depends on was written first"
        third = bed.add("k", 4, commutes=True)
        bed.add("other", 1)
        everything = bed.add(None, 0)
        assert (second.value, third.value, everything.value) == (1, 3, 0)
        assert bed.shard.totals == {"k": 7, "other": 1}
        await turn()
        assert bed.batch_sizes == [1, 1, 2]

    with_bed(scenario)


def test_writes_that_keep_failing_are_logged_a_few_times_and_then_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bed: Bed) -> None:
        bed.partition.fails = ErrorCode.NOT_ENOUGH_REPLICAS
        for _ in range(100):  # ten per second, the rate at which transactions retry
            bed.add("k", 1)
            await turn()
            bed.clock.now += 0.1
        assert len(caplog.records) == FAILURE_BURST
        bed.clock.now += FAILURE_INTERVAL_S
        bed.add("k", 1)
        await turn()

    with_bed(scenario)
    first, *_, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("Could not write coordinator records to __totals-0: ")
    assert first.endswith(" Requests that depend on them fail with NOT_ENOUGH_REPLICAS.")
    assert last.endswith("(95 similar messages were suppressed)")


def test_an_event_without_records_is_answered_at_once() -> None:
    async def scenario(bed: Bed) -> None:
        assert bed.add("k", 0).value == 0

    with_bed(scenario)


def test_responses_wait_for_the_watermark() -> None:
    async def scenario(bed: Bed) -> None:
        written = bed.add("k", 1)
        await turn()
        assert written.value is None
        assert bed.flusher.requests == 1
        read = bed.add("k", 0)
        assert read.value is None, "it tells of something that could still be lost"
        bed.flusher.sync()
        await turn()
        assert (written.value, read.value) == (0, 1)
        assert bed.add("k", 0).value == 1

    with_bed(scenario, FakePartition(waits_for_sync=True))


def test_a_request_whose_records_are_not_copied_in_time_fails() -> None:
    async def scenario(bed: Bed) -> None:
        first = bed.add("k", 1)
        await turn()
        bed.clock.now = 2.0
        second = bed.add("k", 1)
        await turn()
        bed.clock.now = 4.999
        bed.timers.run_due()
        assert (first.value, second.value) == (None, None)
        bed.clock.now = 5.0
        bed.timers.run_due()
        assert (first.value, second.value) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        bed.clock.now = 7.0
        bed.timers.run_due()
        assert second.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
        bed.flusher.sync()
        bed.partition.high_watermark = 2
        await turn()
        assert bed.add("k", 0).value == 2, "the records stay in the log"
        third = bed.add("k", 1)
        await turn()
        bed.clock.now = 12.0
        bed.timers.run_due()
        assert third.value is ErrorCode.COORDINATOR_NOT_AVAILABLE

    partition = FakePartition(waits_for_sync=True)
    with_bed(scenario, partition, RuntimeSettings(commit_timeout_ms=5_000))


def test_a_write_during_a_sync_waits_for_the_next() -> None:
    async def scenario(bed: Bed) -> None:
        first = bed.add("k", 1)
        await turn()
        second = bed.add("k", 1)
        await turn()
        bed.flusher.sync()
        await turn()
        assert (first.value, second.value) == (0, None)
        bed.flusher.sync()
        await turn()
        assert second.value == 1

    with_bed(scenario, FakePartition(waits_for_sync=True))


def test_an_append_that_fails_changes_nothing_and_is_reported() -> None:
    async def scenario(bed: Bed) -> None:
        bed.partition.fails = ErrorCode.KAFKA_STORAGE_ERROR
        failed = bed.add("k", 1)
        await turn()
        assert failed.value is ErrorCode.KAFKA_STORAGE_ERROR
        assert bed.shard.totals == {}
        bed.partition.fails = None
        again = bed.add("k", 1)
        await turn()
        assert again.value == 0

    with_bed(scenario)


def test_what_is_decided_in_the_turn_in_which_the_leadership_is_lost_is_not_written() -> None:
    async def scenario(bed: Bed) -> None:
        failed = bed.add("k", 1)
        bed.partition.is_leader = False
        bed.runtime.partition_closed(0)
        assert failed.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bed.partition.batches == []

    with_bed(scenario)


def test_what_failed_is_put_right() -> None:
    async def scenario(bed: Bed) -> None:
        put_right = Added("sorry", 0)
        bed.partition.fails = ErrorCode.KAFKA_STORAGE_ERROR
        bed.add("k", 1, if_failed=put_right)
        await turn()
        assert put_right.token.value == 0

    with_bed(scenario)


def test_a_sync_that_fails_ends_the_coordinator() -> None:
    async def scenario(bed: Bed) -> None:
        written = bed.add("k", 1)
        await turn()
        bed.flusher.sync(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        await turn()
        assert written.value is ErrorCode.KAFKA_STORAGE_ERROR
        assert bed.add("k", 0).value is ErrorCode.NOT_COORDINATOR

    with_bed(scenario, FakePartition(waits_for_sync=True))


def test_a_leader_loads_its_partition_again_after_a_sync_has_failed() -> None:
    async def scenario(bed: Bed) -> None:
        bed.add("k", 5)
        await turn()
        bed.flusher.sync(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        await turn()
        bed.shard = Totals()
        bed.clock.now += RELOAD_DELAY_S
        bed.timers.run_due()
        for _ in range(20):
            await asyncio.sleep(0)
        read = bed.add("k", 0)
        await turn()
        assert read.value is None, "the record may still be lost"
        bed.flusher.sync()
        await turn()
        assert read.value == 5

    with_bed(scenario, FakePartition(waits_for_sync=True))


@pytest.mark.parametrize("change", ["leader", "disk", "closed", "opened"])
def test_a_partition_is_not_loaded_again_if_that_is_not_needed(change: str) -> None:
    async def scenario(bed: Bed) -> None:
        bed.add("k", 5)
        await turn()
        bed.flusher.sync(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        await turn()
        if change == "leader":
            bed.partition.is_leader = False
        elif change == "disk":
            bed.partition.offline_reason = "a sync failed"
        elif change == "closed":
            bed.runtime.partition_closed(0)
        else:
            bed.open()
        before = bed.runtime.runners
        bed.clock.now += RELOAD_DELAY_S
        bed.timers.run_due()
        assert bed.runtime.runners == before

    with_bed(scenario, FakePartition(waits_for_sync=True))


def test_records_that_cannot_be_applied_end_the_coordinator() -> None:
    async def scenario(bed: Bed) -> None:
        bed.shard.apply = None  # type: ignore[assignment, method-assign]
        written = bed.add("k", 1)
        await turn()
        assert written.value is ErrorCode.UNKNOWN_SERVER_ERROR
        assert bed.add("k", 0).value is ErrorCode.NOT_COORDINATOR

    with_bed(scenario)


def test_timers_become_events() -> None:
    async def scenario(bed: Bed) -> None:
        bed.add("k", 0, delay_ms=500)
        bed.clock.now = 0.5
        bed.timers.run_due()
        await turn()
        assert bed.shard.totals == {"late": 1}

    with_bed(scenario)


def test_closing_writes_what_waits_and_answers_everyone() -> None:
    async def scenario(bed: Bed) -> None:
        written, parked = bed.add("k", 1), Answer()
        bed.shard.parked.append(parked)
        bed.runtime.close()
        assert written.value == 0
        assert parked.value is ErrorCode.NOT_COORDINATOR
        assert bed.batch_sizes == [1]
        assert bed.add("k", 1).value is ErrorCode.NOT_COORDINATOR

    with_bed(scenario)


def test_closing_during_a_sync_answers_when_it_is_done() -> None:
    async def scenario(bed: Bed) -> None:
        written = bed.add("k", 1)
        await turn()
        bed.runtime.close()
        assert written.value is None
        bed.flusher.sync()
        await turn()
        assert written.value == 0

    with_bed(scenario, FakePartition(waits_for_sync=True))


def filled() -> FakePartition:
    partition = FakePartition()
    for batch in (
        build_batch([(b"a", b"1", (), 0), (b"b", b"2", (), 0)]),
        build_batch([(b"a", b"10", (), 0), (b"unknown", b"", (), 0), (b"b", b"x", (), 0)]),
        end_txn_marker(7, 0, True, 0, 0),
        build_batch([(b"c", b"5", (), 0)]),
    ):
        partition.append(batch, next(iter_headers(batch)), 0)
    return partition


def test_a_log_is_loaded_and_what_cannot_be_read_in_it_is_skipped() -> None:
    async def scenario(bed: Bed) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert bed.shard.totals == {"a": 11, "b": 2, "c": 5}
        assert bed.shard.ended == [(7, True)]
        assert bed.add("a", 0).value == 11

    with_bed(scenario, filled())


def test_requests_are_refused_while_the_log_loads() -> None:
    async def run() -> None:
        bed = Bed(filled())
        bed.gate = asyncio.Event()
        bed.open()
        await turn()
        assert bed.add("a", 0).value is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        (runner,) = bed.runtime.runners
        assert runner.state is ShardState.LOADING
        bed.gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert bed.add("a", 0).value == 11

    asyncio.run(run())


def test_a_partition_that_closes_while_it_loads_stays_closed() -> None:
    async def run() -> None:
        bed = Bed(filled())
        bed.gate = asyncio.Event()
        bed.open()
        await turn()
        (runner,) = bed.runtime.runners
        bed.runtime.partition_closed(0)
        bed.gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert runner.state is ShardState.CLOSED
        assert bed.shard.totals == {}

    asyncio.run(run())


def test_a_damaged_log_is_not_loaded() -> None:
    async def scenario(bed: Bed) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert bed.add("a", 0).value is ErrorCode.NOT_COORDINATOR

    partition = filled()

    def damaged(*args: Any, **options: Any) -> LogSlice:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

    partition.log.read = damaged
    with_bed(scenario, partition)


# ----------------------------------------------------------------------------------- transactions


class Ended:
    value: Any = None

    def reply(self, body: None) -> None:
        assert self.value is None
        self.value = "written"

    def fail(self, error: KafkaError) -> None:
        self.value = error.code


TXN = ProducerIdAndEpoch(7, 2)


def test_the_end_of_a_transaction_is_written_behind_its_records() -> None:
    async def scenario(bed: Bed) -> None:
        ended = Ended()
        bed.add("k", 1, producer=TXN)
        bed.runtime.end_transaction(0, TXN, 3, ended, commit=True)
        assert ended.value == "written"
        headers = [next(iter_headers(batch)) for batch in bed.partition.batches]
        assert [each.is_control for each in headers] == [False, True]
        assert {(each.producer_id, each.producer_epoch) for each in headers} == {(7, 2)}
        assert bed.shard.applied == [(("k", 1), 7)]
        assert bed.shard.ended == [(7, True)]

    with_bed(scenario)


def test_the_end_of_a_transaction_is_reported_when_it_is_committed() -> None:
    async def scenario(bed: Bed) -> None:
        ended = Ended()
        bed.runtime.end_transaction(0, TXN, 3, ended, commit=False)
        assert ended.value is None
        bed.flusher.sync()
        await turn()
        assert ended.value == "written"

    with_bed(scenario, FakePartition(waits_for_sync=True))


def test_a_transaction_continues_if_its_end_cannot_be_written() -> None:
    async def scenario(bed: Bed) -> None:
        ended = Ended()
        bed.partition.fails = ErrorCode.KAFKA_STORAGE_ERROR
        bed.runtime.end_transaction(0, TXN, 3, ended, commit=True)
        assert ended.value is ErrorCode.KAFKA_STORAGE_ERROR
        assert bed.shard.ended == []

    with_bed(scenario)


def test_a_transaction_cannot_end_where_nothing_is_coordinated() -> None:
    async def scenario(bed: Bed) -> None:
        nowhere, closed = Ended(), Ended()
        bed.runtime.end_transaction(5, TXN, 3, nowhere, commit=True)
        (runner,) = bed.runtime.runners
        runner.close()
        runner.end_transaction(TXN, 3, closed, commit=True)
        assert nowhere.value is closed.value is ErrorCode.NOT_COORDINATOR

    with_bed(scenario)
