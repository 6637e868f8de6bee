"""The Python processes of real-time queries, driven by frames as the JVM part drives them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from tests.spark.conftest import SOURCE, Topic

from ottla.spark.realtime.frames import EndOfInputError, Frame, FramePipe

pa = pytest.importorskip("pyarrow")
WAIT_S = 60
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class End:
    """A running process, and the JVM's side of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._pipe = FramePipe(process.stdout, process.stdin)  # type: ignore[arg-type]
        self.schema: Any = None

    def send(self, kind: bytes, *parts: bytes) -> None:
        self._pipe.write(kind, *parts)

    def read(self) -> Frame:
        return self._pipe.read()

    def seek(self, generation: int, topic: str, partition: int, offset: int) -> None:
        self.send(b"R", struct.pack(">iqi", generation, offset, partition), topic.encode())

    def rows(self, generation: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the next offset and the rows of the next batch of a generation."""
        while True:
            frame = self.read()
            if frame.kind == b"S":
                self.schema = pa.ipc.read_schema(pa.py_buffer(frame.body))
                continue
            assert frame.kind in (b"B", b"P"), frame
            found, end = struct.unpack_from(">iq", frame.body)
            if found == generation:
                if frame.kind == b"P":
                    return end, []
                batch = pa.ipc.read_record_batch(pa.py_buffer(frame.body[12:]), self.schema)
                return end, batch.to_pylist()


@contextmanager
def running(
    module: str, options: Mapping[str, str], columns: list[str], *, ends_by: str = "input"
) -> Iterator[End]:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen(
        [sys.executable, "-m", f"ottla.spark.realtime.{module}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
    )  # fmt: skip
    end = End(process)
    fields = {"fields": [{"name": name} for name in columns]}
    setup = {"options": options, "path": [], "columns": json.dumps(fields)}
    end.send(b"I", json.dumps(setup).encode())
    try:
        yield end
    finally:
        assert process.stdin is not None
        if ends_by == "input":
            process.stdin.close()
        assert process.wait(WAIT_S) == (0 if ends_by == "input" else 1)
        process.stdin.close()


def reader(topic: Topic, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name, **options
    }  # fmt: skip


def test_source_sends_records_as_they_arrive_and_seeks_on_request(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(2)
    topic.fill(["a"], partition=1, key=b"k", headers=[("h", b"1")], timestamp=7)
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    with running("source_end", reader(topic), [*columns, "headers"]) as end:
        end.seek(1, topic.name, 1, 0)
        after, (row,) = end.rows(1)
        assert after == 1
        assert row.pop("timestamp").timestamp() == 0.007
        assert row == {
            "key": b"k", "value": b"a", "topic": topic.name, "partition": 1, "offset": 0,
            "timestampType": 0, "headers": [{"key": "h", "value": b"1"}], "_next_offset": 1,
        }  # fmt: skip
        topic.fill(["b", "c"], partition=1)
        assert end.rows(1)[1][0]["value"] == b"b"
        end.seek(2, topic.name, 1, 1)
        assert end.rows(2)[1][0]["value"] == b"b"


@pytest.mark.parametrize("fails", [True, False])
def test_lost_records_end_the_source_or_are_skipped(
    make_topic: Callable[..., Topic], fails: bool
) -> None:
    from ottla import Admin, TopicPartition

    topic = make_topic(1)
    topic.fill(["a", "b", "c"])
    with Admin(topic.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, 0): 2})
    options = reader(topic, failOnDataLoss=str(fails).lower())
    with running("source_end", options, ["value"], ends_by="error" if fails else "input") as end:
        end.seek(1, topic.name, 0, 0)
        if not fails:
            assert [row["value"] for row in end.rows(1)[1]] == [b"c"]
            return
        assert end.read().kind == b"S"
        error = end.read()
        assert error.kind == b"E"
        assert b"DataLoss: Cannot read" in error.body
        assert b"its log starts at offset 2" in error.body


def batch_of(rows: list[dict[str, Any]], schema: Any) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=schema).serialize()


def test_sink_writes_all_parts_of_a_record_and_confirms_a_flush(
    make_topic: Callable[..., Topic],
) -> None:
    from ottla import Consumer, TopicPartition

    topic = make_topic(3)
    schema = pa.schema(
        [("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32()),
         ("timestamp", pa.timestamp("us", "UTC")), ("headers", HEADERS)]
    )  # fmt: skip
    options = {
        "kafka.bootstrap.servers": topic.broker.bootstrap, "topic": topic.name, "_realTime": "true"
    }  # fmt: skip
    rows = [
        {"key": "k", "value": b"a", "partition": 2, "timestamp": 7_000,
         "headers": [{"key": "h", "value": b"1"}]},
        {"key": None, "value": None, "partition": 1, "timestamp": None, "headers": None},
    ]  # fmt: skip
    with running("sink_end", options, schema.names) as end:
        end.send(b"S", schema.serialize())
        end.send(b"B", batch_of(rows, schema))
        end.send(b"F", struct.pack(">i", 5))
        assert end.read() == Frame(b"A", struct.pack(">i", 5))
    with Consumer(topic.broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic.name, each) for each in range(3)])
        consumer.seek_to_beginning()
        found = []
        while len(found) < 2:
            found += consumer.poll(timeout_s=1)
    tombstone, whole = sorted(found, key=lambda each: each.partition)
    assert (whole.partition, whole.key, whole.value, whole.timestamp) == (2, b"k", b"a", 7)
    assert whole.headers == (("h", b"1"),)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (None, None, ())


def test_sink_reports_a_row_that_it_cannot_write(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    schema = pa.schema([("value", pa.string()), ("topic", pa.string())])
    options = {"kafka.bootstrap.servers": topic.broker.bootstrap, "_realTime": "true"}
    with running("sink_end", options, schema.names, ends_by="error") as end:
        end.send(b"S", schema.serialize())
        end.send(b"B", batch_of([{"value": "a", "topic": None}], schema))
        error = end.read()
        assert error.kind == b"E"
        assert error.body.startswith(b"ottla.base.errors.UserError: A row has no topic.")
        with pytest.raises(EndOfInputError):
            end.read()
