"""A range of a topic as one Arrow table, or as a sequence of record batches.

`start` and `end` are "earliest", "latest", an offset for all partitions, a mapping of partitions to
offsets, or a datetime, which stands for the first record at or after it. A partition that a mapping
omits is read from its start, or to its end. The end is determined when the call starts, so records
written later are not read and the call always finishes. The records of a partition are in order;
those of different partitions are interleaved as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from ottla.base.types import TopicPartition
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import timed_out
from ottla.client.properties import ConsumerProperties

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.consumer.table import TableReader

Bound = int | str | datetime | Mapping[int, int]

FETCH_DEFAULTS: ConsumerProperties = {
    "max_partition_fetch_bytes": 4 * 1024 * 1024,
    "fetch_max_bytes": 64 * 1024 * 1024,
    "enable_auto_commit": False,
    "allow_auto_create_topics": False,
}
"""Larger fetches than the consumer's defaults, because all data is wanted and latency is not an
issue."""


def read_table(
    bootstrap: Bootstrap | None,
    topic: str | Iterable[str],
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    columns: Sequence[str] | None = None,
    value: str | None = None,
    schema: pyarrow.Schema | None = None,
    profile: Profile | None = None,
    **properties: Unpack[ConsumerProperties],
) -> pyarrow.Table:
    """Read records of a topic into an Arrow table.

    No group is involved and no offset is committed. Needs the `arrow` extra.

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        topic: One topic or several.
        start: First record: `"earliest"`, an offset, a datetime, or an offset for each partition.
        end: Record to stop before: `"latest"`, an offset, a datetime, or an offset for each
            partition.
        columns: Columns to return; see `Consumer.poll_table`.
        value: `"json"` to parse values; see `Consumer.poll_table`.
        schema: Arrow schema for the fields of JSON values.
        profile: Properties to use unless they are given here.
        properties: Kafka's consumer properties, with underscores for dots.

    Raises:
        UnknownTopic: A topic does not exist.
        DeserializationFailed: A value is not valid JSON, or does not match the schema.

    Example:
        orders = ottla.read_table("localhost:9092", "orders", value="json")
    """
    from ottla.client.consumer.table import TableReader

    reader = TableReader(columns, value, schema)
    return reader.table(list(_read(reader, bootstrap, topic, start, end, profile, properties)))


def read_batches(
    bootstrap: Bootstrap | None,
    topic: str | Iterable[str],
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    columns: Sequence[str] | None = None,
    value: str | None = None,
    schema: pyarrow.Schema | None = None,
    profile: Profile | None = None,
    **properties: Unpack[ConsumerProperties],
) -> Iterator[pyarrow.RecordBatch]:
    """Yield records of a topic as Arrow record batches, with bounded memory.

    No group is involved and no offset is committed. Needs the `arrow` extra.

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        topic: One topic or several.
        start: First record: `"earliest"`, an offset, a datetime, or an offset for each partition.
        end: Record to stop before: `"latest"`, an offset, a datetime, or an offset for each
            partition.
        columns: Columns to return; see `Consumer.poll_table`.
        value: `"json"` to parse values; see `Consumer.poll_table`.
        schema: Arrow schema for the fields of JSON values.
        profile: Properties to use unless they are given here.
        properties: Kafka's consumer properties, with underscores for dots.

    Raises:
        UnknownTopic: A topic does not exist.
        DeserializationFailed: A value is not valid JSON, or does not match the schema.

    Example:
        for batch in ottla.read_batches("localhost:9092", "orders"):
            print(batch.num_rows)
    """
    from ottla.client.consumer.table import TableReader

    reader = TableReader(columns, value, schema)
    return _read(reader, bootstrap, topic, start, end, profile, properties)


def _read(
    reader: TableReader,
    bootstrap: Bootstrap | None,
    topic: str | Iterable[str],
    start: Bound,
    end: Bound,
    profile: Profile | None,
    properties: ConsumerProperties,
) -> Iterator[pyarrow.RecordBatch]:
    topics = [topic] if isinstance(topic, str) else list(topic)
    settings: ConsumerProperties = {**FETCH_DEFAULTS, **properties}
    with Consumer(bootstrap, profile=profile, **settings) as consumer:
        partitions = [tp for name in topics for tp in consumer.partitions_for(name)]
        first, last = _bounds(consumer, partitions, start, end)
        wanted = [tp for tp in partitions if first[tp] < last[tp]]
        consumer._assign_range({tp: (first[tp], last[tp]) for tp in wanted})
        yield from _until_done(consumer, reader, {tp: last[tp] for tp in wanted})


def _until_done(
    consumer: Consumer, reader: Any, last: dict[TopicPartition, int]
) -> Iterator[pyarrow.RecordBatch]:
    patience_s = consumer.config.default_api_timeout_ms / 1000
    while last:
        batches = consumer._poll_batches(patience_s, reader, None, None)
        yield from batches
        left = {tp: end for tp, end in last.items() if consumer._position_now(tp) < end}
        if not batches and left == last:
            names = ", ".join(map(str, sorted(left)))
            raise timed_out(
                f"reading {names}", int(patience_s * 1000), consumer._unreachable_reason
            )
        last = left


def _bounds(
    consumer: Consumer, partitions: list[TopicPartition], start: Bound, end: Bound
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    earliest = consumer.beginning_offsets(*partitions)
    latest = consumer.end_offsets(*partitions)
    first = _resolve(consumer, start, earliest, latest, earliest)
    last = _resolve(consumer, end, earliest, latest, latest)
    return (
        {tp: max(offset, earliest[tp]) for tp, offset in first.items()},
        {tp: min(offset, latest[tp]) for tp, offset in last.items()},
    )


def _resolve(
    consumer: Consumer,
    bound: Bound,
    earliest: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    default: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if bound == "earliest":
        return earliest
    if bound == "latest":
        return latest
    if isinstance(bound, bool | str):
        raise ValueError(
            f"start and end must be 'earliest', 'latest', offsets or a datetime, not {bound!r}."
        )
    if isinstance(bound, int):
        return dict.fromkeys(earliest, bound)
    if isinstance(bound, datetime):
        found = consumer.offsets_for_times(dict.fromkeys(earliest, bound))
        return {tp: latest[tp] if offset is None else offset.offset for tp, offset in found.items()}
    unknown = set(bound) - {tp.partition for tp in earliest}
    if unknown:
        raise ValueError(f"Partition {min(unknown)} does not exist.")
    return {tp: bound.get(tp.partition, default[tp]) for tp in earliest}
