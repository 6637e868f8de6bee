"""Large batches are converted in columns, through a broker; other records one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.dataset as ds
from tests.connect.workers import Standalone, send, values, wait_for

from ottla.connect.connectors.file_stream import FileStreamSinkTask
from ottla.connect.pipeline import Conversion

COUNT = 30_000
FIRST_BATCH = 10_000
"""Size of a sink's first batch, which is converted one by one because the backlog is unknown."""


class Spied:
    """Counters of the records that were converted one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written = self.read = 0
        to_row, to_record = Conversion.to_row, Conversion.to_record

        def write(conversion: Conversion, record: Any) -> Any:
            self.written += 1
            return to_row(conversion, record)

        def read(conversion: Conversion, row: Any) -> Any:
            self.read += 1
            return to_record(conversion, row)

        monkeypatch.setattr(Conversion, "to_row", write)
        monkeypatch.setattr(Conversion, "to_record", read)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    return Spied(monkeypatch)


def lines(count: int = COUNT) -> bytes:
    return b"".join(b'{"n": %d, "name": "n\xc3\xa4me %d"}\n' % (n, n) for n in range(count))


def test_a_file_goes_through_a_topic_into_a_file(
    worker: Standalone, tmp_path: Path, spied: Spied
) -> None:
    (tmp_path / "in").write_bytes(lines())
    worker.put("in", "FileStreamSource", file=tmp_path / "in", topic="lines")
    wait_for(lambda: len(values(worker.bootstrap, "lines")) == COUNT)
    assert spied.written == 0
    worker.put("out", "FileStreamSink", file=tmp_path / "out", topics="lines")
    wait_for(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_bytes() == lines())
    assert spied.read <= FIRST_BATCH


def test_transforms_and_schemas_go_along_into_a_lake(
    worker: Standalone, tmp_path: Path, spied: Spied
) -> None:
    (tmp_path / "in").write_bytes(lines())
    transforms = {
        "transforms": "line,by,route", "transforms.line.type": "HoistField$Value",
        "transforms.line.field": "line", "transforms.by.type": "InsertField$Value",
        "transforms.by.static.field": "by", "transforms.by.static.value": "us",
        "transforms.route.type": "RegexRouter", "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "to-$1", "value.converter": "JsonConverter",
    }  # fmt: skip
    worker.put("in", "FileStreamSource", file=tmp_path / "in", topic="lake", **transforms)
    wait_for(lambda: len(values(worker.bootstrap, "to-lake")) == COUNT)
    assert spied.written == 0
    lake = {"value.converter": "JsonConverter", "transforms": "cut",
            "transforms.cut.type": "ReplaceField$Value",
            "transforms.cut.renames": "line:text"}  # fmt: skip
    worker.put(
        "lake", "ParquetSink", path=tmp_path / "lake", topics="to-lake", flush_size=5000, **lake
    )
    wait_for(lambda: (tmp_path / "lake").exists() and len(in_lake(tmp_path)) == COUNT)
    assert spied.read <= FIRST_BATCH
    reported = sorted(in_lake(tmp_path), key=lambda each: json.loads(each["text"])["n"])
    wanted = lines().decode().splitlines()
    assert reported == [{"text": line, "by": "us"} for line in wanted]


def in_lake(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ds.dataset(folder / "lake", format="parquet").to_table().to_pylist()
    )
    return found


def test_one_bad_record_among_many_is_found_and_the_rest_is_there(
    worker: Standalone, tmp_path: Path
) -> None:
    good = [b'{"n": %d}' % n for n in range(25_000)]
    send(worker.bootstrap, "mixed", *good[:15_000], b"{no json", *good[15_000:])
    properties = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false",
                  "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters",
                  "errors.deadletterqueue.topic.replication.factor": "1"}  # fmt: skip
    worker.put(
        "lake", "ParquetSink", path=tmp_path / "lake", topics="mixed", flush_size=5000, **properties
    )
    wait_for(lambda: (tmp_path / "lake").exists() and len(in_lake(tmp_path)) == len(good))
    assert sorted(each["n"] for each in in_lake(tmp_path)) == list(range(25_000))
    assert wait_for(lambda: values(worker.bootstrap, "letters")) == [b"{no json"]


def test_a_batch_that_is_interrupted_in_columns_is_there_once(
    worker: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_columns, has_failed = FileStreamSinkTask.put_columns, []

    def fails_once(task: FileStreamSinkTask, columns: Any) -> None:
        put_columns(task, columns)
        if not has_failed:
            has_failed.append(True)
            raise ValueError("boom")

    monkeypatch.setattr(FileStreamSinkTask, "put_columns", fails_once)
    (tmp_path / "in").write_bytes(lines())
    worker.put("in", "FileStreamSource", file=tmp_path / "in", topic="cut")
    wait_for(lambda: len(values(worker.bootstrap, "cut")) == COUNT)
    worker.put("out", "FileStreamSink", file=tmp_path / "out", topics="cut")
    wait_for(lambda: has_failed and (tmp_path / "out").read_bytes() == lines())
