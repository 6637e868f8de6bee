"""Sending of a source's rows to its producer: large uniform batches as columns, others singly.

Columns are encoded several times faster. They require rows of one topic without headers, explicit
partitions or timestamps, and none so large that a broker might reject it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.client.errors import RecordTooLarge
from ottla.connect.column_pipeline import LARGE_BYTES, TopicTable
from ottla.connect.columns import MANY_RECORDS, has_columns
from ottla.connect.pipeline import Row


def send_rows(
    producer: Any, rows: Sequence[Row], on_too_large: Callable[[Row, RecordTooLarge], None]
) -> None:
    if len(rows) >= MANY_RECORDS and has_columns() and _are_alike(rows):
        _send_columns(producer, rows)
        return
    for row in rows:
        try:
            producer.send(
                row.topic, row.value, key=row.key, headers=row.headers or None,
                partition=row.partition, timestamp=row.timestamp_ms,
            )  # fmt: skip
        except RecordTooLarge as error:
            on_too_large(row, error)


def send_table(producer: Any, rows: TopicTable) -> None:
    there = {name: name for name in ("key", "timestamp") if name in rows.table.column_names}
    producer.send_table(rows.topic, rows.table, value="value", **there)


def _are_alike(rows: Sequence[Row]) -> bool:
    topic = rows[0].topic
    return all(
        row.topic == topic
        and not row.headers
        and row.partition is None
        and row.timestamp_ms is None
        and len(row.value or b"") + len(row.key or b"") < LARGE_BYTES
        for row in rows
    )


def _send_columns(producer: Any, rows: Sequence[Row]) -> None:
    import pyarrow as pa

    values = pa.array([row.value for row in rows], pa.binary())
    keys = pa.array([row.key for row in rows], pa.binary())
    if keys.null_count == len(rows):
        producer.send_table(rows[0].topic, pa.table({"value": values}), value="value")
        return
    table = pa.table({"key": keys, "value": values})
    producer.send_table(rows[0].topic, table, key="key", value="value")
