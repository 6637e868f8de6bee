"""Reading ranges and offsets: long ranges, timeouts and retries; no Spark is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.conftest import Topic

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.errors import KafkaError, error_for
from ottla.spark import cluster_offsets
from ottla.spark.cluster_offsets import ClusterOffsets
from ottla.spark.offsets import Earliest
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import OffsetRange
from ottla.spark.range_reader import RangeReader
from ottla.spark.shared_client import shared_client


def options_for(topic: Topic, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name}
    return source_options(
        given | {name.replace("__", "."): text for name, text in more.items()}, is_streaming=False
    )


def reader(options: SourceOptions, wanted: OffsetRange) -> RangeReader:
    return RangeReader(
        shared_client(ConsumerConfig, options.client),
        options.config(),
        wanted,
        ["offset", "value"],
        fail_on_data_loss=options.fail_on_data_loss,
        timeout_ms=options.poll_timeout_ms,
    )


def test_a_range_is_read_whole_over_many_fetches(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill([f"{n:05}" for n in range(3_000)])
    options = options_for(topic, **{"kafka.max.partition.fetch.bytes": "20000"})
    batches = list(reader(options, OffsetRange(topic.name, 0, 17, 2_990)))
    assert len(batches) > 1
    offsets = [offset for batch in batches for offset in batch.column(0).to_pylist()]
    assert offsets == list(range(17, 2_990))


def test_a_read_that_gets_nothing_fails_in_its_time(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    options = options_for(
        topic, **{"kafkaConsumer.pollTimeoutMs": "700", "kafka.fetch.max.wait.ms": "50"}
    )
    start = time.monotonic()
    with pytest.raises(KafkaError, match="before the end at 5"):
        list(reader(options, OffsetRange(topic.name, 0, 1, 5)))
    assert 0.3 < time.monotonic() - start < 30


def test_the_planner_retries_as_often_as_configured(
    make_topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    asked: list[float] = []

    async def unwilling(*_: Any) -> Any:
        asked.append(time.monotonic())
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE)

    monkeypatch.setattr(cluster_offsets, "list_offsets", unwilling)
    options = options_for(
        topic, **{"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "30"}
    )
    with pytest.raises(KafkaError, match="leader not available"):
        ClusterOffsets(options).offsets("x", Earliest(), [TopicPartition(topic.name, 0)])
    assert len(asked) == 4
    assert asked[-1] - asked[0] >= 0.09
