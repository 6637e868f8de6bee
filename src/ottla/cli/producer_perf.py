"""Implementation of `kafka-producer-perf-test`."""

from __future__ import annotations

import os
import random
import re
import string
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import click

from ottla.base.errors import UserError
from ottla.cli.connection_options import CALL_TIMEOUT_MS, ClusterOptions
from ottla.cli.failure import sentence
from ottla.cli.interruption import INTERRUPTED, TERMINATED, Terminated, termination_as_exit
from ottla.cli.output import Output
from ottla.cli.perf_stats import ProducerStats, Throttle
from ottla.cli.perf_tables import COLUMN, tables
from ottla.cli.property_options import client_properties
from ottla.client.producer.producer import Producer

DEFAULTS = {"client.id": "perf-producer-client", "max.block.ms": CALL_TIMEOUT_MS}
DEFAULT_TRANSACTION_MS = 3_000
BLOCK_BYTES = 1 << 20
SEED = 0
MAX_REPORTED_ERRORS = 10
INTERRUPTED_CLOSE_S = 2.0
"""Seconds that an interrupted run waits for in-flight records, so that the summary counts them."""

Payloads = Callable[[int], bytes]
"""Returns the value of the record with the given number."""


def measure_producer(
    cluster: ClusterOptions,
    output: Output,
    *,
    topic: str,
    num_records: int,
    throughput: float,
    client_texts: tuple[str, ...],
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    warmup_records: int,
    reporting_interval: int,
    print_metrics: bool,
    columnar: bool,
    **payload: Any,
) -> int:
    """Run the test with the options of the command line, and return the exit code."""
    if warmup_records >= num_records:
        raise click.UsageError("--warmup-records must be less than --num-records.")
    payloads = _payloads(output, **payload)
    properties = client_properties(
        cluster, client_texts, {"transactional.id": transactional_id}, DEFAULTS
    )
    if transaction_duration_ms is not None and not properties.get("transactional.id"):
        properties["transactional.id"] = f"performance-producer-{uuid.uuid4()}"
    in_transactions = bool(properties.get("transactional.id"))
    code = 0
    with termination_as_exit(), Producer(cluster.bootstrap, profile=properties) as producer:
        run = PerfRun(output, num_records, warmup_records, reporting_interval)
        try:
            if columnar:
                run.send_tables(producer, topic, payload["record_size"], payloads, throughput)
            elif in_transactions:
                duration_ms = transaction_duration_ms or DEFAULT_TRANSACTION_MS
                run.send_in_transactions(producer, topic, payloads, throughput, duration_ms)
            else:
                run.send(producer, topic, payloads, throughput)
            producer.flush()
        except (KeyboardInterrupt, Terminated) as interruption:
            code = TERMINATED if isinstance(interruption, Terminated) else INTERRUPTED
            run.interrupt()
            producer.close(INTERRUPTED_CLOSE_S)
    has_errors = run.finish(print_metrics=print_metrics, client_id=properties["client.id"])
    return code or int(has_errors)


class PerfRun:
    def __init__(self, output: Output, count: int, warmup: int, interval_ms: int) -> None:
        self._output = output
        self._count = count
        self._warmup = warmup
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        """Guards the statistics, because callbacks run in the producer's thread."""
        self._stats = ProducerStats(count, _now_ms(), interval_ms)
        self._steady: ProducerStats | None = None
        self._errors = self._failures = 0
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Stop counting errors. Records that are unsent after Ctrl-C were given up on purpose."""
        self._is_interrupted = True

    def send(self, producer: Any, topic: str, payloads: Payloads, throughput: float) -> None:
        throttle = Throttle(throughput, time.monotonic())
        for number in range(self._count):
            self._send_one(producer, topic, payloads(number))
            if throughput >= 0:
                _pause(throttle, number + 1)
            if not number & 0xFF:
                self._report()

    def send_in_transactions(
        self, producer: Any, topic: str, payloads: Payloads, throughput: float, duration_ms: int
    ) -> None:
        throttle = Throttle(throughput, time.monotonic())
        began_ms: float | None = None
        for number in range(self._count):
            if began_ms is None:
                producer.begin_transaction()
                began_ms = _now_ms()
            self._send_one(producer, topic, payloads(number))
            if _now_ms() - began_ms >= duration_ms:
                producer.commit_transaction()
                began_ms = None
            _pause(throttle, number + 1)
            self._report()
        if began_ms is not None:
            producer.commit_transaction()

    def send_tables(
        self, producer: Any, topic: str, size: int | None, payloads: Payloads, throughput: float
    ) -> None:
        throttle = Throttle(throughput, time.monotonic())
        sent = 0
        for table, table_bytes in tables(self._count, size, payloads, SEED):
            settled = self._on_completion(table_bytes, table.num_rows)
            producer.send_table(topic, table, value=COLUMN).add_done_callback(settled)
            sent += table.num_rows
            _pause(throttle, sent)
            self._report()

    def _send_one(self, producer: Any, topic: str, value: bytes) -> None:
        settled = self._on_completion(len(value), 1)
        producer.send(topic, value).add_done_callback(settled)

    def _on_completion(self, size: int, count: int) -> Callable[[Any], None]:
        began_ms = _now_ms()

        def completed(future: Any) -> None:
            error = future.exception()
            with self._lock:
                if error is None:
                    self._count_some(int(_now_ms() - began_ms), size, count)
                    return
                if self._is_interrupted:
                    return
                self._errors += count
                is_reported = self._failures < MAX_REPORTED_ERRORS
                self._failures += 1
            if is_reported:
                self._output.failure(sentence(error))

        return completed

    def _count_some(self, latency_ms: int, size: int, count: int) -> None:
        self._stats.record(latency_ms, size, count)
        if self._steady is not None:
            self._steady.record(latency_ms, size, count)
        elif self._warmup and self._stats.count >= self._warmup:
            steady = self._count - self._warmup
            self._steady = ProducerStats(steady, _now_ms(), self._interval_ms)

    def _report(self) -> None:
        with self._lock:
            now_ms = _now_ms()
            if not self._stats.window_is_over(now_ms):
                return
            line = self._stats.window_line(now_ms)
        # Interim reports are progress notes with --json, where only the summary is a result.
        self._output.note(line) if self._output.as_json else click.echo(line)

    def finish(self, *, print_metrics: bool, client_id: str) -> bool:
        """Print the summary, and return whether a record could not be sent."""
        now_ms = _now_ms()
        stats, steady = self._stats, self._steady
        figures: dict[str, Any] = {**stats.total(now_ms), "errors": self._errors}
        lines = [stats.total_line(now_ms)]
        if steady is not None:
            figures["steadyState"] = steady.total(now_ms)
            lines.append(steady.total_line(now_ms, label=" steady state"))
        if print_metrics:
            lines += _metric_lines(figures, client_id)
        self._output.show(figures, lambda: lines)
        return self._errors > 0


def _metric_lines(figures: dict[str, Any], client_id: str) -> list[str]:
    """Return the tool's own measurements under the names of Kafka's client metrics."""
    metrics = {
        "record-error-total": figures["errors"],
        "record-send-rate": figures["recordsPerSec"],
        "record-send-total": figures["records"],
        "request-latency-avg": figures["avgLatencyMs"],
        "request-latency-max": figures["maxLatencyMs"],
    }
    names = [f"producer-metrics:{name}:{{client-id={client_id}}}" for name in metrics]
    width = max(map(len, names))
    title = f"{'Metric Name':<{width}}   Value"
    return [
        "",
        title,
        *(
            f"{name:<{width}} : {value:.3f}"
            for name, value in zip(names, metrics.values(), strict=True)
        ),
    ]


def _pause(throttle: Throttle, sent: int) -> None:
    pause_s = throttle.pause_s(sent, time.monotonic())
    if pause_s:
        time.sleep(pause_s)


def _now_ms() -> float:
    return time.monotonic() * 1000


# ------------------------------------------------------------------------------------ payloads


def _payloads(
    output: Output,
    *,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    payload_monotonic: bool,
) -> Payloads:
    sources = sum((record_size is not None, payload_file is not None, payload_monotonic))
    if sources != 1:
        raise click.UsageError(
            "Give exactly one of --record-size, --payload-file and --payload-monotonic."
        )
    if payload_monotonic:
        return lambda number: b"%d" % number
    chance = random.Random(SEED)
    if payload_file is not None:
        values = _read_payloads(output, payload_file, payload_delimiter)
        return lambda number: values[chance.randrange(len(values))]
    assert record_size is not None
    size = record_size
    letters = string.ascii_uppercase.encode()
    block = bytes(chance.choices(letters, k=max(BLOCK_BYTES, 2 * size)))
    places = len(block) - size
    step = 7_919  # a prime, so that consecutive records use different parts of the block
    return lambda number: block[(at := number * step % places) : at + size]


def _read_payloads(output: Output, path: str, delimiter: str) -> list[bytes]:
    output.note(f"Reading payloads from: {os.path.abspath(path)}")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UserError(f"Cannot read {path}: {reason}.") from error
    try:
        values = re.split(delimiter.encode(), data)
    except re.error as error:
        raise UserError(
            f"--payload-delimiter is not a valid regular expression: {error}."
        ) from None
    while values and not values[-1]:
        values.pop()
    if not values:
        raise UserError(f"The payload file {path} is empty, so there is nothing to send.")
    output.note(f"Number of records read: {len(values)}")
    return values
