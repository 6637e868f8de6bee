"""Tests of the lines that the perf tools print, in the format of Kafka's tools."""

from __future__ import annotations

import re

import pytest

from ottla.base.errors import UserError
from ottla.cli.perf_stats import (
    Consumed,
    ProducerStats,
    Throttle,
    consumer_total_line,
    consumer_window_line,
    format_time,
)

FORMAT = "HH:mm:ss:SSS"


def test_the_producers_lines_are_kafkas() -> None:
    stats = ProducerStats(1_000, 0, 500)
    for latency in range(1, 101):
        stats.record(latency, 1_048_576)
    assert not stats.window_is_over(499)
    assert stats.window_is_over(500)
    assert stats.window_line(1_000) == (
        "100 records sent, 100.0 records/sec (100.00 MB/sec), 50.5 ms avg latency, "
        "100.0 ms max latency."
    )
    stats.record(7, 0)
    assert stats.window_line(2_000) == (
        "1 records sent, 1.0 records/sec (0.00 MB/sec), 7.0 ms avg latency, 7.0 ms max latency."
    )
    assert stats.total_line(2_000) == (
        "101 records sent, 50.5 records/sec (50.00 MB/sec), 50.07 ms avg latency, "
        "100.00 ms max latency, 50 ms 50th, 95 ms 95th, 99 ms 99th, 100 ms 99.9th."
    )


def test_long_runs_are_sampled() -> None:
    stats = ProducerStats(2_000_000, 0, 500)
    for latency in range(10):
        stats.record(latency, 1)
    assert stats._latencies == [0, 4, 8]


def test_records_acknowledged_together_count_as_many() -> None:
    one, many = ProducerStats(2_000_000, 0, 500), ProducerStats(2_000_000, 0, 500)
    for _ in range(7):
        one.record(3, 10)
    many.record(3, 50, 5)
    many.record(3, 20, 2)
    assert one._latencies == many._latencies == [3, 3]
    assert one.total_line(1_000) == many.total_line(1_000)


def test_nothing_sent_divides_by_nothing() -> None:
    stats = ProducerStats(1, 5, 500)
    assert stats.window_line(5).startswith("0 records sent, 0.0 records/sec")
    assert stats.total_line(5).startswith("0 records sent")


def test_a_throttle_keeps_to_its_rate() -> None:
    throttle = Throttle(1_000, 10.0)
    assert throttle.pause_s(100, 10.05) == pytest.approx(0.05)
    assert throttle.pause_s(51, 10.05) == 0.0
    assert Throttle(-1, 0.0).pause_s(10**9, 0.0) == 0.0


def test_the_consumers_lines_are_kafkas() -> None:
    start, end = Consumed(0), Consumed(2_000, 400, 4 * 1_048_576)
    line = consumer_total_line(start, end, 1_000, FORMAT)
    assert line.split(", ")[2:] == [
        "4.0000", "2.0000", "400", "200.0000", "1000", "1000", "4.0000", "400.0000",
    ]  # fmt: skip
    window = consumer_window_line(Consumed(1_000, 100, 1_048_576), end, 0, FORMAT)
    assert window.split(", ")[1:] == [
        "0", "4.0000", "3.0000", "400", "300.0000", "0", "1000", "3.0000", "300.0000",
    ]  # fmt: skip


def test_times_are_shown_by_javas_patterns() -> None:
    shown = format_time(1_700_000_000_123, "yyyy-MM-dd'T'HH:mm:ss:SSS")
    assert re.fullmatch(r"2023-11-1\dT\d\d:\d\d:\d\d:123", shown)
    with pytest.raises(UserError, match="--date-format: the pattern letters EEE are not supported"):
        format_time(0, "EEE")
