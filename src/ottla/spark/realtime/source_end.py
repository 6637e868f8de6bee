"""Process that reads one partition of a topic for a task of a real-time query.

The task names an offset once. From then on, this process sends records as it receives them, with
the offset after each row, so that a task can end anywhere. A thread reads the JVM's frames: without
it, a closed pipe would go unnoticed while no records arrive."""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.record import Record
from ottla.client.errors import NoOffsetForPartition, OffsetOutOfRange
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.range_reader import DataLoss
from ottla.spark.realtime.frames import EndOfInputError, FramePipe, Setup, run_end

logger = logging.getLogger(__name__)

POLL_S = 0.2
"""Time after which a poll without records ends, to look for a new position."""
MAX_POLL_RECORDS = 1_000
"""Rows per frame. The JVM queues a few frames, and the pipe delays this process beyond that."""
NEXT_OFFSET = "_next_offset"
_MAX_MS = (2**63 - 1) // 1000
_POSITION = struct.Struct(">iqi")
_HEAD = struct.Struct(">iq")


class Position(NamedTuple):
    generation: int
    tp: TopicPartition
    offset: int


class RecordRows:
    """Converter from records to Arrow rows with the columns of a query, and the next offsets."""

    def __init__(self, columns: Sequence[str]) -> None:
        import pyarrow as pa

        self._pa = pa
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        kinds = {
            "key": pa.binary(),
            "value": pa.binary(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", "UTC"),
            "timestampType": pa.int32(),
            "headers": pa.list_(header),
        }
        self._columns = list(columns)
        fields = [pa.field(name, kinds[name]) for name in columns]
        self.schema = pa.schema([*fields, pa.field(NEXT_OFFSET, pa.int64(), nullable=False)])

    def batch(self, records: Sequence[Record]) -> Any:
        pa, kinds = self._pa, self.schema.types
        arrays = [
            pa.array([_cell(each, name) for each in records], kind)
            for name, kind in zip(self._columns, kinds, strict=False)
        ]
        arrays.append(pa.array([each.offset + 1 for each in records], kinds[-1]))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _cell(record: Record, column: str) -> Any:
    match column:
        case "timestamp":
            return timestamp_us(record)
        case "timestampType":
            return record.timestamp_type
        case "headers":
            # As in Spark's own source, a record without headers has null.
            return [{"key": name, "value": data} for name, data in record.headers] or None
    return getattr(record, column)


def timestamp_us(record: Record) -> int | None:
    """Return the timestamp in Spark's microseconds, or None if they do not fit into 64 bits."""
    return record.timestamp * 1000 if -_MAX_MS <= record.timestamp <= _MAX_MS else None


class PartitionSender:
    """Loop that reads the partition and sends its records."""

    def __init__(self, pipe: FramePipe, options: SourceOptions, rows: RecordRows) -> None:
        self._pipe = pipe
        self._options = options
        self._rows = rows
        self._positions: queue.SimpleQueue[Position] = queue.SimpleQueue()

    def run(self) -> None:
        threading.Thread(target=self._read_frames, name="ottla-frames", daemon=True).start()
        self._pipe.write(b"S", self._rows.schema.serialize())
        properties: Any = {"auto_offset_reset": "none", "max_poll_records": MAX_POLL_RECORDS}
        with Consumer(profile=self._options.client, **properties) as consumer:
            position = self._positions.get()
            self._start(consumer, position)
            freeze_modules()
            sent = position.offset
            while True:
                if not self._positions.empty():
                    position = self._positions.get()
                    self._start(consumer, position)
                    sent = position.offset
                try:
                    records = consumer.poll(timeout_s=POLL_S)
                except OffsetOutOfRange as error:
                    if isinstance(error, NoOffsetForPartition):
                        raise
                    self._skip_lost(consumer, position.tp, sent)
                    continue
                sent = self._send(position, records, consumer, sent)

    def _send(
        self, position: Position, records: Sequence[Record], consumer: Consumer, sent: int
    ) -> int:
        """Send the records, or the position if it moved without any; return the next offset."""
        if records:
            end = records[-1].offset + 1
            head = _HEAD.pack(position.generation, end)
            self._pipe.write(b"B", head, self._rows.batch(records).serialize())
            return end
        end = consumer.position(position.tp)
        if end != sent:  # behind the markers of transactions
            self._pipe.write(b"P", _HEAD.pack(position.generation, end))
        return end

    def _start(self, consumer: Consumer, position: Position) -> None:
        consumer.assign([position.tp])
        consumer.seek(position.tp, position.offset)

    def _skip_lost(self, consumer: Consumer, tp: TopicPartition, offset: int) -> None:
        start = consumer.beginning_offsets(tp)[tp]
        message = (
            f"Cannot read {tp} from offset {offset}: its log starts at offset {start}. "
            "Records were deleted, or the topic was recreated."
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{message} Set failOnDataLoss=false to continue with the remaining records."
            )
        logger.warning("%s", message)
        consumer.seek(tp, start)

    def _read_frames(self) -> None:
        try:
            while True:
                frame = self._pipe.read()
                generation, offset, partition = _POSITION.unpack_from(frame.body)
                topic = frame.body[_POSITION.size :].decode()
                self._positions.put(Position(generation, TopicPartition(topic, partition), offset))
        except (EndOfInputError, OSError):
            os._exit(0)


def run(pipe: FramePipe, setup: Setup) -> None:
    options = source_options(setup.options, is_streaming=True)
    PartitionSender(pipe, options, RecordRows(setup.columns)).run()


if __name__ == "__main__":
    run_end(run)
