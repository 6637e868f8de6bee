"""Batches that a sink task has polled: single records, or Arrow tables when there are many.

Both kinds are ordered by topic, partition and offset, so that a redelivered batch is identical,
and both know their first offsets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.base.types import TopicPartition
from ottla.connect.pipeline import Row

PUT_RECORDS = 5_000
"""Maximum number of records in one call of `put`."""
WAIT_RECORDS = 500
"""Number of records from which it pays to wait briefly for more."""
DONE_POLL_S = 0.02
"""Time to wait for more records before the last batch is recorded as done."""
MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Approximate maximum size of a batch; polling stops once it is exceeded."""
TABLE_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class SinkBatch(ABC):
    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def first_offsets(self) -> dict[TopicPartition, int]: ...

    @abstractmethod
    def before(self, ends: Mapping[TopicPartition, int]) -> SinkBatch:
        """Return the records before these offsets."""

    @abstractmethod
    def parts(self) -> Iterator[TopicPart]:
        """Yield the parts of the batch, in order."""


class TopicPart(ABC):
    """Part of a batch; in columns, all records are of one topic."""

    @abstractmethod
    def rows(self) -> list[Row]: ...

    def columns(self) -> tuple[str, Any] | None:
        """Return the topic and the Arrow columns, or None if the part holds single records."""
        return None


# --------------------------------------------------------------------------------- single records


class Records(SinkBatch):
    """Batch of records from `Consumer.poll`."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records = sorted(records, key=lambda each: (each.topic, each.partition, each.offset))

    def __len__(self) -> int:
        return len(self._records)

    def first_offsets(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for each in self._records:
            found.setdefault(TopicPartition(each.topic, each.partition), each.offset)
        return found

    def before(self, ends: Mapping[TopicPartition, int]) -> Records:
        return Records([
            each
            for each in self._records
            if each.offset < ends[TopicPartition(each.topic, each.partition)]
        ])  # fmt: skip

    def parts(self) -> Iterator[TopicPart]:
        for first in range(0, len(self._records), PUT_RECORDS):
            yield RowsPart(self._records[first : first + PUT_RECORDS])


class RowsPart(TopicPart):
    def __init__(self, records: Sequence[Any]) -> None:
        self._records = records

    def rows(self) -> list[Row]:
        return [
            Row(
                each.topic, each.partition, each.key, each.value, tuple(each.headers),
                each.timestamp, each.offset,
            )
            for each in self._records
        ]  # fmt: skip


# ------------------------------------------------------------------------------------ in columns


class Tables(SinkBatch):
    """Batch of tables from `Consumer.poll_table`, with TABLE_COLUMNS."""

    def __init__(self, tables: Sequence[Any]) -> None:
        """Order the chunks. Each chunk of a table belongs to one partition."""
        chunks = [each for table in tables for each in table.to_batches() if each.num_rows]
        self._chunks = sorted(chunks, key=lambda each: (*_partition(each), _first(each)))

    def __len__(self) -> int:
        return sum(each.num_rows for each in self._chunks)

    def first_offsets(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for each in self._chunks:
            found.setdefault(_partition(each), _first(each))
        return found

    def before(self, ends: Mapping[TopicPartition, int]) -> Tables:
        import pyarrow as pa
        import pyarrow.compute as pc

        kept = [
            each.filter(pc.less(each.column("offset"), ends[_partition(each)]))
            for each in self._chunks
        ]
        return Tables([pa.Table.from_batches([each]) for each in kept])

    def parts(self) -> Iterator[TopicPart]:
        import pyarrow as pa

        topics: dict[str, list[Any]] = {}
        for each in self._chunks:
            topics.setdefault(_partition(each).topic, []).append(each)
        for topic, chunks in topics.items():
            (whole,) = pa.Table.from_batches(chunks).combine_chunks().to_batches()
            yield ColumnsPart(topic, whole)


class ColumnsPart(TopicPart):
    def __init__(self, topic: str, batch: Any) -> None:
        self._topic = topic
        self._batch = batch

    def columns(self) -> tuple[str, Any]:
        return self._topic, self._batch

    def rows(self) -> list[Row]:
        import pyarrow as pa

        names = ("partition", "key", "value", "headers", "offset")
        partitions, keys, values, headers, offsets = (
            self._batch.column(name).to_pylist() for name in names
        )
        times = self._batch.column("timestamp").cast(pa.int64()).to_pylist()
        return [
            Row(
                self._topic, partition, key, value,
                tuple((header["key"], header["value"]) for header in held or ()), time, offset,
            )
            for partition, key, value, held, time, offset in zip(
                partitions, keys, values, headers, times, offsets, strict=True
            )
        ]  # fmt: skip


# --------------------------------------------------------------------------------------- polling


def poll_records(consumer: Any, wait_s: float, limit: int) -> Records:
    records: list[Any] = consumer.poll(wait_s, limit)
    size_bytes, more = 0, records
    while more and len(records) < limit:
        size_bytes += sum(len(each.value or b"") for each in more)
        if size_bytes > MAX_BATCH_BYTES:
            break
        more = consumer.poll(_more_s(len(records)), limit - len(records))
        records += more
    return Records(records)


def poll_tables(consumer: Any, wait_s: float, limit: int) -> Tables:
    tables = [consumer.poll_table(wait_s, max_records=limit, columns=TABLE_COLUMNS)]
    count, size_bytes = tables[0].num_rows, tables[0].nbytes
    while tables[-1].num_rows and count < limit and size_bytes <= MAX_BATCH_BYTES:
        more = consumer.poll_table(_more_s(count), max_records=limit - count, columns=TABLE_COLUMNS)
        count, size_bytes = count + more.num_rows, size_bytes + more.nbytes
        tables.append(more)
    return Tables(tables)


def _more_s(count: int) -> float:
    return DONE_POLL_S if count >= WAIT_RECORDS else 0.0


def _partition(chunk: Any) -> TopicPartition:
    topic = chunk.column("topic")[0].as_py()
    return TopicPartition(topic, chunk.column("partition")[0].as_py())


def _first(chunk: Any) -> int:
    return int(chunk.column("offset")[0].as_py())
