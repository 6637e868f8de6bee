"""What Spark calls, called without Spark: a source's planner, a sink's batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError, SinkTask
from ottla.connect.config import ConnectorConfig
from ottla.connect.data import Record
from ottla.connect.pipeline import Row, StageFailed, context_headers
from ottla.connect.sink_query import SinkBatches
from ottla.connect.source_query import ConnectorReader

WORKER = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
ALL = ReadAllAvailable()


class Planner:
    """A source of lines, as Spark drives it."""

    def __init__(self, folder: Path, **given: str) -> None:
        self.file = folder / "in.txt"
        properties = {
            "name": "s",
            "connector.class": "FileStreamSource",
            "file": str(self.file),
            "topic": "t",
            "value.converter": "StringConverter",
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        self._options = {
            "given": json.dumps(properties),
            "worker": json.dumps(WORKER),
            "spool": str(folder / "spool"),
            "start": "[]",
        }
        self.reader = ConnectorReader(self._options)

    def restart(self) -> None:
        self.reader.stop()
        self.reader = ConnectorReader(self._options)

    def append(self, text: str) -> None:
        with open(self.file, "a") as file:
            file.write(text)

    def rows(self, start: Any, end: Any) -> list[str]:
        return [
            row["value"].decode()
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(tmp_path)


def test_a_batch_that_is_run_again_has_the_same_rows(planner: Planner) -> None:
    planner.append("a\nb\n")
    start = planner.reader.initialOffset()
    end = planner.reader.latestOffset(start, ALL)
    assert end["topics"] == ["t"]
    planner.append("c\n")
    planner.file.unlink()
    planner.restart()
    assert planner.rows(start, end) == ["a", "b"]


def test_nothing_new_is_no_batch(planner: Planner) -> None:
    start = planner.reader.initialOffset()
    assert planner.reader.latestOffset(start, ALL) == start


def test_what_spark_did_not_note_is_told_again(planner: Planner) -> None:
    planner.append("a\n")
    start = planner.reader.initialOffset()
    end = planner.reader.latestOffset(start, ALL)
    planner.append("b\n")
    assert planner.reader.latestOffset(start, ALL) == end
    planner.restart()
    again = planner.reader.latestOffset(start, ALL)
    assert planner.rows(start, again) == ["a", "b"]


def test_a_restart_goes_on_after_the_last_batch(planner: Planner) -> None:
    planner.append("a\n")
    start = planner.reader.initialOffset()
    first = planner.reader.latestOffset(start, ALL)
    planner.reader.commit(first)
    planner.restart()
    planner.append("b\n")
    second = planner.reader.latestOffset(first, ALL)
    assert planner.rows(first, second) == ["b"]
    assert planner.rows(start, first) == [], "what is in topics is not kept"


def test_transforms_are_applied_and_what_they_drop_counts_as_done(tmp_path: Path) -> None:
    planner = Planner(
        tmp_path,
        transforms="route,drop",
        transforms_route_type="RegexRouter",
        transforms_route_regex="(.*)",
        transforms_route_replacement="$1-x",
        transforms_drop_type="Filter",
    )
    planner.append("a\n")
    start = planner.reader.initialOffset()
    end = planner.reader.latestOffset(start, ALL)
    assert end["offsets"][0]["offset"]["position"] == 2
    assert planner.rows(start, end) == []


def test_a_record_that_fails_ends_a_source_that_does_not_tolerate_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = {"transforms": "c", "transforms_c_type": "Cast$Value", "transforms_c_spec": "int32"}
    strict = Planner(tmp_path, **steps)
    strict.append("1\nx\n2\n")
    with pytest.raises(UserError, match=r"TRANSFORMATION in Cast.*errors.tolerance=all"):
        strict.reader.latestOffset(strict.reader.initialOffset(), ALL)
    lenient = Planner(tmp_path, **steps, errors_tolerance="all", errors_log_enable="true")
    start = lenient.reader.initialOffset()
    with caplog.at_level(logging.ERROR):
        assert lenient.rows(start, lenient.reader.latestOffset(start, ALL)) == ["1", "2"]
    assert "failed at TRANSFORMATION" in caplog.text


# --------------------------------------------------------------------------------------- sinks


class Noted(SinkTask):
    def __init__(self, failures: int = 0) -> None:
        self.done: list[Any] = []
        self.failures = failures

    def start(self, directory: Path) -> None:
        self.done.append("start")

    def begin(self, batch: int) -> None:
        self.done.append(batch)

    def put(self, records: Sequence[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise RetriableError("away")
        self.done.append([each.value for each in records])

    def end(self) -> None:
        self.done.append("end")


class Letters:
    def __init__(self) -> None:
        self.sent: list[tuple[StageFailed, Row]] = []

    def send(self, failure: StageFailed, row: Row) -> None:
        self.sent.append((failure, row))

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Rows:
    """A batch as Spark hands it over; values by offset."""

    def __init__(self, **values: str) -> None:
        self._values = {int(name[1:]): value for name, value in values.items()}

    def toArrow(self) -> Any:  # noqa: N802
        return pa.table(
            {
                "topic": ["t"] * len(self._values),
                "partition": [0] * len(self._values),
                "offset": list(self._values),
                "key": [b"k"] * len(self._values),
                "value": [value.encode() for value in self._values.values()],
                "headers": [[{"key": "h", "value": b"1"}]] * len(self._values),
                "timestamp_ms": [5] * len(self._values),
            }
        )


def batches(task: SinkTask, folder: Path, letters: Letters, **given: str) -> SinkBatches:
    properties = {
        "name": "k",
        "connector.class": "FileStreamSink",
        "file": "f",
        "topics": "t",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    made: Any = letters
    return SinkBatches(ConnectorConfig.of(properties, WORKER), task, folder, made)


def test_a_sink_gets_its_batches_in_order(tmp_path: Path) -> None:
    task = Noted()
    run = batches(task, tmp_path, Letters())
    run(Rows(o2="2", o1="1"), 7)
    run(Rows(), 8)
    assert task.done == ["start", 7, [1, 2], "end", 8, "end"]
    assert run.topics == {"t"}


def test_a_poison_record_ends_a_sink_that_does_not_tolerate_it(tmp_path: Path) -> None:
    run = batches(Noted(), tmp_path, Letters())
    with pytest.raises(UserError, match=r"t-0@2 failed at VALUE_CONVERTER in JsonConverter"):
        run(Rows(o1="1", o2="{"), 0)
    assert isinstance(run.failure, UserError)


def test_a_tolerated_poison_record_goes_to_the_dead_letters(tmp_path: Path) -> None:
    task, letters = Noted(), Letters()
    queue = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    batches(task, tmp_path, letters, **queue)(Rows(o1="1", o2="{", o3="3"), 0)
    assert task.done == ["start", 0, [1, 3], "end"]
    ((failure, row),) = letters.sent
    assert (row.key, row.value, row.offset) == (b"k", b"{", 2)
    told = dict(context_headers("k", 0, failure, row))
    assert told["__connect.errors.topic"] == b"t"
    assert told["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert told["__connect.errors.connector.name"] == b"k"
    assert b"no JSON" in told["__connect.errors.exception.message"]


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    task = Noted(failures=1)
    batches(task, tmp_path, Letters(), errors_retry_timeout="60000")(Rows(o1="1"), 0)
    assert task.done == ["start", 0, [1], "end"]
    with pytest.raises(RetriableError):
        batches(Noted(failures=1), tmp_path, Letters())(Rows(o1="1"), 0)
