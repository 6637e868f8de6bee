"""Tests of exempting imported modules from garbage collection in Python workers."""

from __future__ import annotations

import gc
import sys
import types

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from ottla.spark import frozen_modules
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.range_partition import RangePartition, read_range
from ottla.spark.sink import stream_writer

VALUES = StructType([StructField("value", StringType())])
OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "delivery": "at-least-once"}


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record each freeze instead of performing it, because this process has garbage to collect."""
    done: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append(len(sys.modules)))
    monkeypatch.setattr(frozen_modules, "_modules_when_frozen", 0)
    return done


def test_modules_are_frozen_once_and_again_when_there_are_more(
    freezes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze_modules()
    freeze_modules()
    assert len(freezes) == 1
    monkeypatch.setitem(sys.modules, "loaded_by_a_task", types.ModuleType("loaded_by_a_task"))
    freeze_modules()
    freeze_modules()
    assert len(freezes) == 2
    monkeypatch.delitem(sys.modules, "loaded_by_a_task")
    freeze_modules()
    assert len(freezes) == 2


def test_a_reader_freezes_its_modules(freezes: list[int]) -> None:
    assert list(read_range(None, VALUES, RangePartition(None))) == []  # type: ignore[arg-type]
    assert freezes


def test_planning_or_committing_a_write_freezes_its_modules(freezes: list[int]) -> None:
    stream_writer(OPTIONS, VALUES, False)
    assert freezes


def test_a_writer_freezes_its_modules(freezes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    writer = stream_writer(OPTIONS, VALUES, False)
    freezes.clear()
    monkeypatch.setattr(frozen_modules, "_modules_when_frozen", 0)
    with pytest.raises(AssertionError, match="by tasks"):  # the test runs outside a Spark task
        writer.write(iter(()))
    assert freezes
