"""Tests of reading a query's last decision from a leader whose high watermark is stale."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.client.admin.partitions import OffsetSpec
from ottla.client.errors import OffsetOutOfRange
from ottla.spark import exactly_once
from ottla.spark.decisions import Decision
from ottla.wire.records.builder import build_batch

DECISION = Decision("query", 7, ())
RECORDS = build_batch([(b"name", DECISION.to_bytes(), (), 1)])
OPTIONS: Any = SimpleNamespace(transactional_id="name", commit_topic="commits")


class Cluster:
    config = SimpleNamespace(bootstrap_servers=["b:1"], default_api_timeout_ms=60_000)

    async def topic(self, name: str) -> Any:
        return SimpleNamespace(partition_count=1)

    async def retrying(self, attempt: Any, **given: Any) -> Any:
        return await attempt()


def last_decision(
    monkeypatch: pytest.MonkeyPatch, ends: dict[OffsetSpec, int], answers: list[Any]
) -> Decision | None:
    async def list_offsets(cluster: Any, asked: dict[TopicPartition, Any], isolation: Any) -> Any:
        offsets = {tp: SimpleNamespace(offset=ends[spec]) for tp, spec in asked.items()}
        return SimpleNamespace(checked=lambda _: offsets)

    async def fetch_partition(*given: Any, **options: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(records=answer, high_watermark=0)

    monkeypatch.setattr(exactly_once, "list_offsets", list_offsets)
    monkeypatch.setattr(exactly_once, "fetch_partition", fetch_partition)
    found = asyncio.run(exactly_once._last_decision(Cluster(), OPTIONS))  # type: ignore[arg-type]
    assert not answers
    return found


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "_logs", {})


def test_a_low_watermark_hides_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_decision(monkeypatch, {OffsetSpec.LATEST: 1}, [b"", RECORDS]) == DECISION


def test_what_was_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_decision(monkeypatch, {OffsetSpec.LATEST: 1}, [RECORDS]) == DECISION
    assert last_decision(monkeypatch, {OffsetSpec.LATEST: 1}, []) == DECISION


def test_a_topic_made_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_decision(monkeypatch, {OffsetSpec.LATEST: 1}, [RECORDS]) == DECISION
    ends = {OffsetSpec.LATEST: 0, OffsetSpec.EARLIEST: 0}
    assert last_decision(monkeypatch, ends, []) is None


def test_a_log_that_begins_later_is_read_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    later = build_batch([(b"name", DECISION.to_bytes(), (), 1)], base_offset=5)
    ends = {OffsetSpec.LATEST: 6, OffsetSpec.EARLIEST: 5}
    gone = OffsetOutOfRange("gone", topic="commits", partition=0)
    assert last_decision(monkeypatch, ends, [gone, later]) == DECISION


def test_an_end_that_cannot_be_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster.config, "default_api_timeout_ms", 50)
    monkeypatch.setattr(exactly_once, "_fetch_records", nothing_there)
    with pytest.raises(UserError, match="ends at offset 3 according to its leader"):
        last_decision(monkeypatch, {OffsetSpec.LATEST: 3}, [])


async def nothing_there(*_: Any) -> bytes:
    return b""
