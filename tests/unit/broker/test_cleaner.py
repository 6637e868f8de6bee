"""Tests of the log cleaner: choice of the log, segment swap, concurrent changes and failures."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.compacted_logs import compacted
from tests.unit.storage.small_logs import data_records, latest_values, put

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import TopicConfig
from ottla.base.types import TopicPartition
from ottla.broker import compactor as compactor_module
from ottla.broker.cleaner import RETRY_MS, Cleaner
from ottla.broker.compactor import (
    CompactionFailed,
    Compactor,
    IsWanted,
    LocalCompactor,
    OnCleaned,
    WorkerCompactor,
)
from ottla.storage.checkpoint import CLEANER_OFFSETS, read_offsets
from ottla.storage.compaction_job import CompactionJob, CompactionResult
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log
from ottla.storage.recovery import KnownLogState, open_log
from ottla.storage.segment import Segment

NOW_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class Partition:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.last_stable_offset = log.log_end_offset


class Broker:
    """The part of a broker that the cleaner uses, including its flusher."""

    def __init__(self, directory: Path, **properties: str) -> None:
        values = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = BrokerConfig({"log.dirs": str(directory), **values})
        self.fs = OsFileSystem()
        self.clock = ManualClock()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.removed: list[Segment] = []
        self.directory = directory

    @property
    def flusher(self) -> Broker:
        return self

    async def wait_for(self, partition: Partition, offset: int) -> None:
        await self.run_blocking(lambda: partition.log.flush(NOW_MS))

    def remove_segments_later(self, segments: list[Segment], delay_ms: int) -> None:
        self.removed += segments

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def add_log(
        self, topic: str, config: TopicConfig | None = None, *, topic_id: bytes = bytes(16)
    ) -> Log:
        key = TopicPartition(topic, 0)
        path = self.directory / str(key)
        path.mkdir(exist_ok=True)
        known = KnownLogState(
            directory=str(path),
            partition=key,
            topic_id=topic_id,
            config=config or compacted(segment_bytes=2_000),
            is_clean=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW_MS,
        )
        log = open_log(self.fs, known, lambda _: None)
        self.partitions[key] = Partition(log)
        return log

    def fill(self, log: Log, count: int = 100, keys: int = 5) -> None:
        for number in range(count):
            put(log, [(b"k%d" % (number % keys), b"%d" % number * 10)], timestamp=NOW_MS)
        self.partitions[log.partition].last_stable_offset = log.log_end_offset

    def checkpoints(self) -> dict[TopicPartition, int]:
        return read_offsets(self.fs, f"{self.directory}/{CLEANER_OFFSETS}")


class FailingCompactor:
    def __init__(self, error: Exception, topic: str) -> None:
        self.error = error
        self.topic = topic
        self.calls: list[str] = []

    async def run(
        self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
    ) -> CompactionResult:
        self.calls.append(job.directory.rpartition("/")[2])
        if self.topic in job.directory:
            raise self.error
        return await LocalCompactor(OsFileSystem()).run(job, on_cleaned, is_wanted)


async def clean_until_idle(broker: Broker, compactor: Compactor | None = None) -> Cleaner:
    """Clean until no log is dirty, as `run` does but without its sleeps."""
    cleaner = Cleaner(broker, broker.remove_segments_later, compactor or LocalCompactor(broker.fs))
    await cleaner._checkpoints.load(broker.config.log_dirs)
    while (dirty := await cleaner.find_dirtiest()) is not None:
        await cleaner.clean(dirty)
    return cleaner


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_worker_process_compacts_a_log_and_writes_the_checkpoint(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)
    table, end = latest_values(data_records(log)), log.active.base_offset
    modified = {s.base_offset: os.stat(s.file.path).st_mtime_ns for s in log.segments}
    run(clean_until_idle(broker, WorkerCompactor()))
    assert latest_values(data_records(log)) == table
    assert len(data_records(log)) < 25
    assert broker.checkpoints() == {log.partition: end}
    assert {segment.suffix for segment in broker.removed} == {".deleted"}
    assert not list(tmp_path.rglob("*.cleaned"))
    assert not list(tmp_path.rglob("*.swap"))
    for segment in log.segments[:-1]:
        kept_ms = os.stat(segment.file.path).st_mtime_ns // 1_000_000
        assert kept_ms <= max(modified.values()) // 1_000_000


def test_the_dirtiest_log_comes_first_and_those_not_compacted_never(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for topic, count in (("half", 60), ("all", 60), ("plain", 60)):
        log = broker.add_log(topic, TopicConfig() if topic == "plain" else None)
        broker.fill(log, count)
    recorder = FailingCompactor(CompactionFailed("", is_transient=False), "nothing")
    run(clean_until_idle(broker, recorder))
    assert sorted(recorder.calls) == ["all-0", "half-0"]
    broker.fill(broker.partitions[TopicPartition("half", 0)].log, 200)
    broker.fill(broker.partitions[TopicPartition("all", 0)].log, 800)
    recorder.calls.clear()
    run(clean_until_idle(broker, recorder))
    assert recorder.calls == ["all-0", "half-0"]


def test_a_clean_log_is_left_alone_after_a_restart(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(broker.add_log("orders"))
    run(clean_until_idle(broker))
    recorder = FailingCompactor(CompactionFailed("", is_transient=False), "nothing")
    run(clean_until_idle(broker, recorder))
    assert recorder.calls == []


def test_a_log_that_cannot_be_cleaned_is_skipped_and_the_others_are_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    for topic in ("bad", "good"):
        broker.fill(broker.add_log(topic))
    failing = FailingCompactor(CompactionFailed("it is damaged", is_transient=False), "bad")
    with caplog.at_level(logging.ERROR):
        cleaner = run(clean_until_idle(broker, failing))
    assert sorted(failing.calls) == ["bad-0", "good-0"]
    assert cleaner.is_uncleanable(TopicPartition("bad", 0))
    assert not cleaner.is_uncleanable(TopicPartition("good", 0))
    assert "Could not compact bad-0; marking it as uncleanable: it is damaged" in caplog.text
    broker.clock.now_ms += 1_000 * RETRY_MS
    assert run(cleaner.find_dirtiest()) is None


def test_a_damaged_log_is_found_out_by_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("bad")
    broker.fill(log)
    with open(log.segments[0].file.path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    cleaner = run(clean_until_idle(broker, WorkerCompactor()))
    assert cleaner.is_uncleanable(log.partition)
    assert "is damaged at byte 0" in caplog.text
    assert not list(tmp_path.rglob("*.cleaned"))


def test_a_full_disk_is_tried_again_after_a_while(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)
    failing = FailingCompactor(CompactionFailed("No space", is_transient=True), "orders")
    cleaner = run(clean_until_idle(broker, failing))
    assert run(cleaner.find_dirtiest()) is None
    assert not cleaner.is_uncleanable(log.partition)
    broker.clock.now_ms += RETRY_MS
    dirty = run(cleaner.find_dirtiest())
    assert dirty is not None
    assert dirty.log is log


def test_a_log_that_lost_its_head_meanwhile_is_not_swapped(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)

    class CutMeanwhile:
        async def run(
            self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
        ) -> CompactionResult:
            assert log.detach_head(1, NOW_MS)
            return await LocalCompactor(broker.fs).run(job, on_cleaned, is_wanted)

    table = latest_values(data_records(log))

    async def scenario() -> Cleaner:
        cleaner = Cleaner(broker, broker.remove_segments_later, CutMeanwhile())
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        await cleaner.clean(dirty)
        return cleaner

    cleaner = run(scenario())
    assert latest_values(data_records(log)) == table
    assert broker.checkpoints() == {}
    assert not cleaner.is_uncleanable(log.partition)
    assert not cleaner.is_cleaning(log.partition)
    assert not list(tmp_path.rglob("*.cleaned"))
    assert not list(tmp_path.rglob("*.swap"))


def slow_job(broker: Broker, log: Log) -> None:
    """Make the log dirty and throttle the cleaner, so that its worker reads very slowly."""
    broker.config = BrokerConfig(
        {"log.dirs": str(broker.directory), "log.cleaner.io.max.bytes.per.second": "100"}
    )
    broker.fill(log)


async def started_worker(monkeypatch: pytest.MonkeyPatch) -> asyncio.Future[Any]:
    """Return a future that completes with the worker process once it has started."""
    started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start = compactor_module._start_worker

    async def start_and_tell() -> Any:
        process = await start()
        started.set_result(process)
        return process

    monkeypatch.setattr(compactor_module, "_start_worker", start_and_tell)
    return started


def test_the_worker_is_ended_when_its_log_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor_module, "POLL_INTERVAL_S", 0.01)
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    slow_job(broker, log)

    async def scenario() -> None:
        worker = await started_worker(monkeypatch)
        cleaner = Cleaner(broker, broker.remove_segments_later)
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        cleaning = asyncio.ensure_future(cleaner.clean(dirty))
        process = await worker
        assert cleaner.is_cleaning(log.partition)
        del broker.partitions[log.partition]
        await cleaning
        assert process.returncode == -signal.SIGKILL

    run(scenario())
    assert broker.checkpoints() == {}
    assert not list(tmp_path.rglob("*.cleaned"))


def test_no_worker_outlives_the_cleaner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    slow_job(broker, log)

    async def scenario() -> None:
        worker = await started_worker(monkeypatch)
        running = asyncio.ensure_future(Cleaner(broker, broker.remove_segments_later).run())
        process = await worker
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert process.returncode == -signal.SIGKILL

    run(scenario())
    assert not list(tmp_path.rglob("*.cleaned"))


def test_the_worker_ends_with_its_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    slow_job(broker, log)

    async def scenario() -> int:
        worker = await started_worker(monkeypatch)
        cleaner = Cleaner(broker, broker.remove_segments_later)
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        cleaning = asyncio.ensure_future(cleaner.clean(dirty))
        process = await worker
        process.stdin.close()  # as happens when the broker dies
        code: int = await process.wait()
        await cleaning
        return code

    assert run(scenario()) == 3


def test_the_loop_cleans_again_when_there_is_something_new(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_cleaner_backoff_ms="1")
    log = broker.add_log("orders")
    broker.fill(log)

    class Counting(LocalCompactor):
        rounds = 0
        changed: asyncio.Event

        async def run(
            self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
        ) -> CompactionResult:
            result = await super().run(job, on_cleaned, is_wanted)
            Counting.rounds += 1
            self.changed.set()
            return result

    async def scenario() -> None:
        counting = Counting(broker.fs)
        counting.changed = asyncio.Event()
        running = asyncio.ensure_future(
            Cleaner(broker, broker.remove_segments_later, counting).run()
        )
        await counting.changed.wait()
        counting.changed.clear()
        broker.fill(log, 500)
        await counting.changed.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario())
    assert Counting.rounds >= 2


def test_a_topic_created_anew_does_not_inherit_how_far_the_old_one_was_clean(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path)
    old = broker.add_log("orders", topic_id=b"1" * 16)
    broker.fill(old)

    async def scenario() -> None:
        cleaner = await clean_until_idle(broker)
        assert broker.checkpoints()[old.partition] > 0
        del broker.partitions[old.partition]
        await cleaner._checkpoints.drop_deleted()
        assert broker.checkpoints() == {}
        os.rename(old.directory, f"{old.directory}.deleted-dir")
        new = broker.add_log("orders", topic_id=b"2" * 16)
        broker.fill(new)
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        assert dirty.first_dirty_offset == 0

    run(scenario())


def test_a_checkpoint_that_cannot_be_read_means_that_all_is_dirty(tmp_path: Path) -> None:
    (tmp_path / CLEANER_OFFSETS).write_text("what\n")
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)
    run(clean_until_idle(broker))
    assert broker.checkpoints() == {log.partition: log.active.base_offset}


def test_what_is_not_flushed_is_flushed_before_it_is_cleaned(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)
    assert log.recovery_point < log.active.base_offset
    run(clean_until_idle(broker))
    assert log.recovery_point >= log.active.base_offset
    assert len(data_records(log)) < 25


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_threads_share_memory_and_throughput(tmp_path: Path, threads: str) -> None:
    broker = Broker(
        tmp_path,
        log_cleaner_threads=threads,
        log_cleaner_dedupe_buffer_size=str(4 << 20),
        log_cleaner_io_max_bytes_per_second="4000",
    )
    limits = Cleaner(broker, broker.remove_segments_later)._limits()
    assert limits.memory_bytes == (4 << 20) // int(threads)
    assert limits.max_bytes_per_second == 4_000 / int(threads)


def test_a_worker_that_dies_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compactor_module, "WORKER", "no.such.worker")
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    broker.fill(log)

    async def scenario() -> None:
        cleaner = Cleaner(broker, broker.remove_segments_later)
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        await cleaner.clean(dirty)
        assert cleaner.is_uncleanable(log.partition)

    run(scenario())
    assert "the compaction worker exited with code 1: " in caplog.text
    assert "No module named 'no'" in caplog.text


def test_a_worker_that_is_killed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    log = broker.add_log("orders")
    slow_job(broker, log)

    async def scenario() -> None:
        worker = await started_worker(monkeypatch)
        cleaner = Cleaner(broker, broker.remove_segments_later)
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        cleaning = asyncio.ensure_future(cleaner.clean(dirty))
        (await worker).kill()
        await cleaning
        assert not cleaner.is_uncleanable(log.partition)
        assert await cleaner.find_dirtiest() is None

    run(scenario())
