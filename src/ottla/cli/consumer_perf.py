"""Implementation of `kafka-consumer-perf-test`."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from ottla.base.types import TopicPartition
from ottla.cli.connection_options import CALL_TIMEOUT_MS, ClusterOptions
from ottla.cli.interruption import INTERRUPTED, TERMINATED, Terminated, termination_as_exit
from ottla.cli.output import Output
from ottla.cli.perf_stats import (
    TOTAL_HEADER,
    WINDOW_HEADER,
    Consumed,
    consumer_total,
    consumer_total_line,
    consumer_window_line,
    format_time,
)
from ottla.cli.perf_tables import check_libraries
from ottla.cli.property_options import client_properties
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.rebalance import RebalanceListener

POLL_S = 0.1
_GROUPS = 100_000

Read = Callable[[Consumer], tuple[int, int]]
"""Polls once and returns the number of records, and the bytes of their keys and values."""


def measure_consumer(
    cluster: ClusterOptions,
    output: Output,
    *,
    topic: str | None,
    include: str | None,
    num_records: int,
    group: str | None,
    from_latest: bool,
    fetch_size: int,
    socket_buffer_size: int | None,
    client_texts: tuple[str, ...],
    timeout_ms: int,
    reporting_interval: int,
    show_detailed_stats: bool,
    hide_header: bool,
    date_format: str,
    print_metrics: bool,
    columnar: bool,
) -> int:
    """Run the test with the options of the command line, and return the exit code."""
    topics = _topics(topic, include)
    format_time(0, date_format)  # raises UserError for an unsupported pattern
    properties = client_properties(
        cluster,
        client_texts,
        {
            "group.id": group,
            "max.partition.fetch.bytes": fetch_size,
            "auto.offset.reset": "latest" if from_latest else "earliest",
        },
        {
            "client.id": "perf-consumer-client",
            "group.id": f"perf-consumer-{random.randrange(_GROUPS)}",
            "default.api.timeout.ms": CALL_TIMEOUT_MS,
        },
    )
    if not hide_header and not output.as_json:
        click.echo(WINDOW_HEADER if show_detailed_stats else TOTAL_HEADER)
    window = reporting_interval if show_detailed_stats and not output.as_json else None
    read = _read_tables() if columnar else _read_records
    start = Consumed(_now_ms())
    joins = _RebalanceTimer()
    with termination_as_exit(), Consumer(cluster.bootstrap, profile=properties) as consumer:
        consumer.subscribe(topics, listener=joins)
        code, end = _consume(
            consumer, read, joins, start, num_records, timeout_ms, window, date_format
        )
    if end.count < num_records and not code:
        output.warning(
            f"WARNING: Exiting before consuming the expected number of records: timeout "
            f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    lines = []
    if not show_detailed_stats:
        lines.append(consumer_total_line(start, end, joins.total_ms, date_format))
    figures = consumer_total(start, end, joins.total_ms)
    if print_metrics:
        lines += _metric_lines(figures, properties["client.id"])
    output.show(figures, lambda: lines)
    return code


def _consume(
    consumer: Consumer,
    read: Read,
    joins: _RebalanceTimer,
    start: Consumed,
    wanted: int,
    timeout_ms: int,
    window_ms: int | None,
    date_format: str,
) -> tuple[int, Consumed]:
    """Read until `wanted` records are read, the timeout expires or a signal arrives.

    Returns:
        The exit code, and the final statistics.
    """
    now = last = start
    arrived_ms = start.time_ms
    code = 0
    try:
        while now.count < wanted and now.time_ms - arrived_ms <= timeout_ms:
            count, size = read(consumer)
            now = Consumed(_now_ms(), now.count + count, now.size + size)
            if count:
                arrived_ms = now.time_ms
            if window_ms is not None and now.time_ms - last.time_ms >= window_ms:
                click.echo(consumer_window_line(last, now, joins.pop_ms(), date_format))
                last = now
    except (KeyboardInterrupt, Terminated) as interruption:
        code = TERMINATED if isinstance(interruption, Terminated) else INTERRUPTED
    if window_ms is not None and now != last:
        click.echo(consumer_window_line(last, now, joins.pop_ms(), date_format))
    return code, now


def _read_records(consumer: Consumer) -> tuple[int, int]:
    records = consumer.poll(POLL_S)
    size = 0
    for record in records:
        if record.key is not None:
            size += len(record.key)
        if record.value is not None:
            size += len(record.value)
    return len(records), size


def _read_tables() -> Read:
    check_libraries()
    from pyarrow import compute

    def read(consumer: Any) -> tuple[int, int]:
        table = consumer.poll_table(timeout_s=POLL_S, columns=["key", "value"])
        if table is None or not table.num_rows:
            return 0, 0
        lengths = (compute.sum(compute.binary_length(table[name])) for name in ("key", "value"))
        return table.num_rows, sum(length.as_py() or 0 for length in lengths)

    return read


class _RebalanceTimer(RebalanceListener):
    """Rebalance listener that measures the time spent in rebalances."""

    def __init__(self) -> None:
        self.total_ms = 0
        self._began_ms = _now_ms()
        self._since_report_ms = 0

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        took_ms = _now_ms() - self._began_ms
        self.total_ms += took_ms
        self._since_report_ms += took_ms

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._began_ms = _now_ms()

    def pop_ms(self) -> int:
        taken, self._since_report_ms = self._since_report_ms, 0
        return taken


def _topics(topic: str | None, include: str | None) -> str | re.Pattern[str]:
    if (topic is None) == (include is None):
        raise click.UsageError("Exactly one of --topic and --include is required.")
    if topic is not None:
        return topic
    try:
        return re.compile(include or "")
    except re.error as error:
        raise click.UsageError(f"--include is not a valid regular expression: {error}.") from None


def _metric_lines(figures: dict[str, Any], client_id: str) -> list[str]:
    """Return the tool's own measurements under the names of Kafka's client metrics."""
    metrics = {
        "bytes-consumed-rate": figures["MB.sec"] * 1024 * 1024,
        "records-consumed-rate": figures["nMsg.sec"],
        "records-consumed-total": figures["data.consumed.in.nMsg"],
    }
    names = [f"consumer-fetch-manager-metrics:{name}:{{client-id={client_id}}}" for name in metrics]
    width = max(map(len, names))
    title = f"{'Metric Name':<{width}}   Value"
    values = zip(names, metrics.values(), strict=True)
    return ["", title, *(f"{name:<{width}} : {value:.3f}" for name, value in values)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
