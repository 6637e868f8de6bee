"""What a source's tasks handed out and topics do not have yet: rows on disk, as Arrow.

    DIRECTORY/00000017.0     what task 0 gave in the 17th poll

A poll is written before Spark learns of it, and removed when its batch is in topics for good. So a
batch that is run again has the same rows, whatever became of the source. A file without its batch
(the worker died in between) is written over by the next poll of that number. Nothing is synced, as
Spark does not sync its own log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ottla.connect.pipeline import Row


def arrow_schema() -> Any:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema([
        ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()),
        ("value", pa.binary()), ("headers", pa.list_(pa.field("element", header))),
        ("timestamp", pa.int64()),
    ])  # fmt: skip


SPARK_SCHEMA = (
    "topic STRING, partition INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp BIGINT"
)


class Spool:
    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, task: int, rows: Iterable[Row]) -> None:
        path = self._path(number, task)
        made = path.with_name(f"{path.name}.new")
        made.write_bytes(to_arrow(rows))
        os.replace(made, path)

    def read(self, number: int, tasks: int) -> list[bytes]:
        """What each task gave; those that gave nothing are left out."""
        found = []
        for task in range(tasks):
            path = self._path(number, task)
            if path.exists():
                found.append(path.read_bytes())
        return found

    def remove_until(self, number: int) -> None:
        for path in self._directory.iterdir():
            first = path.name.partition(".")[0]
            if first.isdecimal() and int(first) <= number:
                path.unlink(missing_ok=True)

    def remove(self, number: int, tasks: int) -> None:
        for task in range(tasks):
            self._path(number, task).unlink(missing_ok=True)

    def _path(self, number: int, task: int) -> Path:
        return self._directory / f"{number:08}.{task}"


def to_arrow(rows: Iterable[Row]) -> bytes:
    import pyarrow as pa

    rows = list(rows)
    schema = arrow_schema()
    columns: list[list[Any]] = [
        [each.topic for each in rows],
        [each.partition for each in rows],
        [each.key for each in rows],
        [each.value for each in rows],
        [[{"key": key, "value": value} for key, value in each.headers] for each in rows],
        [each.timestamp_ms for each in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def from_arrow(data: bytes) -> Iterator[Any]:
    import pyarrow as pa

    yield from pa.ipc.open_stream(data)
