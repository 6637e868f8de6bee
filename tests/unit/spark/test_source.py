"""The writers of `format("ottla")`, as Spark asks for them."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.spark import exactly_once
from ottla.spark.source import OttlaDataSource

VALUES = StructType([StructField("value", BinaryType())])
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.transactional.id": "q", "topic": "t"}


@pytest.fixture
def preparations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []
    monkeypatch.setattr(exactly_once, "prepare", made.append)
    return made


def test_the_writer_of_a_batch_is_prepared_once(preparations: list[object]) -> None:
    writer = OttlaDataSource(options=OPTIONS).streamWriter(VALUES, overwrite=False)
    assert len(preparations) == 1
    pickle.dumps(writer)
    assert len(preparations) == 1


def test_the_writer_that_commits_a_batch_is_not_prepared(preparations: list[object]) -> None:
    source = pickle.loads(pickle.dumps(OttlaDataSource(options=OPTIONS)))
    source.streamWriter(VALUES, overwrite=False)
    assert not preparations


def test_a_writer_for_at_least_once_needs_no_preparation(preparations: list[object]) -> None:
    options = {**OPTIONS, "delivery": "at-least-once"}
    OttlaDataSource(options=options).streamWriter(VALUES, overwrite=False)
    assert not preparations
