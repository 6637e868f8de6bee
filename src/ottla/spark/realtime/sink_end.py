"""Process that writes the rows of a task of a real-time query to topics.

Rows are sent as they arrive. A flush, at the end of each batch, waits for their acknowledgements.
If a record cannot be delivered, the process reports the error and ends, and Spark runs the batch
again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.base.errors import UserError
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.producer import Producer
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.realtime.frames import FramePipe, Setup, error_text, run_end

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")


class RowSender:
    """Converter from Arrow rows to records, which it passes to a producer."""

    def __init__(self, options: SinkOptions, producer: Producer, pipe: FramePipe) -> None:
        self._options = options
        self._producer = producer
        self._pipe = pipe
        self._failure: BaseException | None = None

    def send(self, batch: Any) -> None:
        self._raise_failure()
        names = set(batch.schema.names)
        columns = [
            _values(name, batch.column(name)) if name in names else [None] * batch.num_rows
            for name in COLUMNS
        ]
        topic, include_headers = self._options.topic, self._options.include_headers
        for key, value, headers, own_topic, partition, timestamp in zip(*columns, strict=True):
            to = topic or own_topic
            if to is None:
                raise UserError(
                    "A row has no topic. Fill the column 'topic', or set the option topic."
                )
            if partition is not None and partition < 0:
                raise UserError(f"A row has the invalid partition {partition}.")
            future = self._producer.send(
                to,
                value,
                key=key,
                headers=headers if include_headers else None,
                partition=partition,
                timestamp=timestamp,
            )
            future.add_done_callback(self._note)

    def flush(self) -> None:
        self._producer.flush()
        self._raise_failure()

    def _note(self, future: RecordFuture) -> None:
        error = future.exception()
        if error is not None and self._failure is None:
            self._failure = error
            self._pipe.write(b"E", error_text(error).encode())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _values(name: str, column: Any) -> Sequence[Any]:
    import pyarrow as pa

    if name == "timestamp":
        if pa.types.is_timestamp(column.type):
            times = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
            return [None if each is None else each // 1000 for each in times]
    elif name in ("key", "value"):
        column = column.cast(pa.binary())
    elif name == "headers":
        return [None if each is None else list(_pairs(each)) for each in column.to_pylist()]
    return list(column.to_pylist())


def _pairs(headers: Sequence[Any]) -> Iterator[tuple[str, bytes | None]]:
    for each in headers:
        yield (each["key"], each["value"]) if isinstance(each, dict) else each


def run(pipe: FramePipe, setup: Setup) -> None:
    import pyarrow as pa

    options = sink_options(setup.options, is_streaming=True)
    with Producer(profile=options.client) as producer:
        sender = RowSender(options, producer, pipe)
        schema = pa.ipc.read_schema(pa.py_buffer(pipe.read().body))
        freeze_modules()
        while True:
            frame = pipe.read()
            if frame.kind == b"F":
                sender.flush()
                pipe.write(b"A", frame.body)
                continue
            sender.send(pa.ipc.read_record_batch(pa.py_buffer(frame.body), schema))


if __name__ == "__main__":
    run_end(run)
