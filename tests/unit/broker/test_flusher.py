"""Tests of group commit, and of its effect on partitions and producers when a flush fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import topic_config
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker import flusher as flusher_module
from ottla.broker.clock import SystemClock
from ottla.broker.flusher import Flusher
from ottla.broker.partition import Partition
from ottla.storage.flush import FlushJob, SyncFailed
from ottla.storage.recovery import KnownLogState, open_log
from ottla.testing.simulation.disk import SimulatedDisk
from ottla.wire.records.batch import read_header
from ottla.wire.records.builder import build_batch


async def here(work: Callable[[], Any]) -> Any:
    return work()


def new_partition() -> Partition:
    disk = SimulatedDisk()
    disk.make_directories("/logs/t-0")
    config = topic_config(BrokerConfig.from_properties({}), {})
    known = KnownLogState("/logs/t-0", TopicPartition("t", 0), bytes(16), config, True, 0, 0, 0)
    return Partition(open_log(disk, known, print), 0, waits_for_sync=True)


def append(partition: Partition) -> int:
    batch = build_batch([(None, b"value", (), 0)])
    return partition.append(batch, read_header(batch), 0).last_offset + 1


def fail_once(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    run = FlushJob.run
    errors = [error]

    def failing(job: FlushJob) -> None:
        if errors:
            raise errors.pop()
        run(job)

    monkeypatch.setattr(FlushJob, "run", failing)


def test_consumers_see_a_record_when_it_is_synced_and_many_share_one_sync() -> None:
    async def scenario() -> None:
        partition = new_partition()
        flusher = Flusher(SystemClock(), here)
        waiting = [flusher.wait_for(partition, append(partition)) for _ in range(5)]
        assert partition.high_watermark == 0
        await asyncio.gather(*waiting)
        assert partition.high_watermark == 5
        assert flusher.rounds == 1

    asyncio.run(scenario())


def test_a_failed_sync_takes_the_partition_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        partition = new_partition()
        flusher = Flusher(SystemClock(), here)
        fail_once(monkeypatch, SyncFailed(errno.EIO, "broken disk"))
        with pytest.raises(KafkaError, match="broken disk") as caught:
            await flusher.wait_for(partition, append(partition))
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError, match="restart the broker"):
            append(partition)
        assert partition.high_watermark == 0

    asyncio.run(scenario())


def test_any_other_failure_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        partition = new_partition()
        flusher = Flusher(SystemClock(), here)
        fail_once(monkeypatch, OSError(errno.ENOSPC, "no room"))
        monkeypatch.setattr(flusher_module, "RETRY_S", 0.0)
        with pytest.raises(KafkaError, match="disk full"):
            await flusher.wait_for(partition, append(partition))
        assert partition.offline_reason is None
        await flusher.wait_for(partition, append(partition))
        assert partition.high_watermark == 2

    asyncio.run(scenario())
