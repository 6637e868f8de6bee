"""Statistics of the perf tests, and the lines they print in the format of Kafka's tools.

The code is pure: callers pass the time. Latencies are whole milliseconds, and long runs are
sampled, as in Kafka's tools, so that the figures are comparable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ottla.base.errors import UserError

MB = 1024.0 * 1024.0
MAX_SAMPLES = 500_000
PERCENTILES = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))


class ProducerStats:
    """Statistics of acknowledged records: the whole run, and the window since the last report."""

    def __init__(self, expected: int, started_ms: float, interval_ms: int) -> None:
        self._sampling = max(1, expected // MAX_SAMPLES)
        self._interval_ms = interval_ms
        self._started_ms = self._window_started_ms = started_ms
        self._latencies: list[int] = []
        self.count = self._bytes = self._total_latency = self._max_latency = 0
        self._window_count = self._window_bytes = 0
        self._window_latency = self._window_max_latency = 0

    def record(self, latency_ms: int, size: int, count: int = 1) -> None:
        """Add `count` records of `size` bytes in total that were acknowledged together."""
        first = -self.count % self._sampling
        self._latencies += [latency_ms] * len(range(first, count, self._sampling))
        self.count += count
        self._bytes += size
        self._total_latency += latency_ms * count
        self._window_count += count
        self._window_bytes += size
        self._window_latency += latency_ms * count
        if latency_ms > self._window_max_latency:
            self._window_max_latency = latency_ms
            self._max_latency = max(self._max_latency, latency_ms)

    def window_is_over(self, now_ms: float) -> bool:
        return now_ms - self._window_started_ms >= self._interval_ms

    def window_line(self, now_ms: float) -> str:
        """Return the report line of the current window and start the next window."""
        count = self._window_count
        line = (
            f"{count} records sent, "
            f"{_rates(count, self._window_bytes, now_ms - self._window_started_ms)}, "
            f"{self._window_latency / max(count, 1):.1f} ms avg latency, "
            f"{float(self._window_max_latency):.1f} ms max latency."
        )
        self._window_started_ms = now_ms
        self._window_count = self._window_bytes = 0
        self._window_latency = self._window_max_latency = 0
        return line

    def total(self, now_ms: float) -> dict[str, Any]:
        """Return the statistics of the whole run as a JSON object."""
        elapsed_s = max((now_ms - self._started_ms) / 1000, 1e-9)
        return {
            "records": self.count,
            "recordsPerSec": self.count / elapsed_s,
            "mbPerSec": self._bytes / elapsed_s / MB,
            "avgLatencyMs": self._total_latency / max(self.count, 1),
            "maxLatencyMs": self._max_latency,
            **{f"latencyMs{name}": value for name, value in self._percentiles()},
        }

    def total_line(self, now_ms: float, *, label: str = "") -> str:
        percentiles = ", ".join(f"{value} ms {name}" for name, value in self._percentiles())
        return (
            f"{self.count}{label} records sent, "
            f"{_rates(self.count, self._bytes, now_ms - self._started_ms)}, "
            f"{self._total_latency / max(self.count, 1):.2f} ms avg latency, "
            f"{float(self._max_latency):.2f} ms max latency, {percentiles}."
        )

    def _percentiles(self) -> list[tuple[str, int]]:
        ordered = sorted(self._latencies) or [0]
        last = len(ordered) - 1
        return [(name, ordered[min(int(part * len(ordered)), last)]) for part, name in PERCENTILES]


def _rates(count: int, size: int, elapsed_ms: float) -> str:
    elapsed_s = max(elapsed_ms / 1000, 1e-9)
    return f"{count / elapsed_s:.1f} records/sec ({size / elapsed_s / MB:.2f} MB/sec)"


class Throttle:
    """Rate limiter for a maximum number of records per second."""

    MIN_PAUSE_S = 0.002
    """Shorter pauses are accumulated, because the operating system sleeps for longer."""

    def __init__(self, per_second: float, started_s: float) -> None:
        self._per_second = per_second
        self._started_s = started_s

    def pause_s(self, sent: int, now_s: float) -> float:
        """Return the number of seconds to pause after `sent` records."""
        if self._per_second < 0:
            return 0.0
        ahead = sent / max(self._per_second, 1e-9) - (now_s - self._started_s)
        return ahead if ahead >= self.MIN_PAUSE_S else 0.0


# ------------------------------------------------------------------------------------ consumer

EXTENDED_HEADER = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
TOTAL_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    + EXTENDED_HEADER
)
WINDOW_HEADER = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    + EXTENDED_HEADER
)


@dataclass(frozen=True)
class Consumed:
    """Records and bytes read up to a point in time."""

    time_ms: int
    count: int = 0
    size: int = 0


def consumer_total(start: Consumed, end: Consumed, join_ms: int) -> dict[str, Any]:
    elapsed_s = max((end.time_ms - start.time_ms) / 1000, 1e-9)
    fetch_ms = end.time_ms - start.time_ms - join_ms
    fetch_s = max(fetch_ms / 1000, 1e-9)
    megabytes = end.size / MB
    return {
        "data.consumed.in.MB": megabytes,
        "MB.sec": megabytes / elapsed_s,
        "data.consumed.in.nMsg": end.count,
        "nMsg.sec": end.count / elapsed_s,
        "rebalance.time.ms": join_ms,
        "fetch.time.ms": fetch_ms,
        "fetch.MB.sec": megabytes / fetch_s,
        "fetch.nMsg.sec": end.count / fetch_s,
    }


def consumer_window_line(last: Consumed, now: Consumed, join_ms: int, date_format: str) -> str:
    elapsed_ms = max(now.time_ms - last.time_ms, 1)
    fetch_ms = now.time_ms - last.time_ms - join_ms
    megabytes, count = (now.size - last.size) / MB, now.count - last.count
    per_fetch = (1000 * megabytes / fetch_ms, 1000 * count / fetch_ms) if fetch_ms > 0 else (0, 0)
    return (
        f"{format_time(now.time_ms, date_format)}, 0, {now.size / MB:.4f}, "
        f"{1000 * megabytes / elapsed_ms:.4f}, {now.count}, {1000 * count / elapsed_ms:.4f}, "
        f"{join_ms}, {fetch_ms}, {per_fetch[0]:.4f}, {per_fetch[1]:.4f}"
    )


def consumer_total_line(start: Consumed, end: Consumed, join_ms: int, date_format: str) -> str:
    figures = consumer_total(start, end, join_ms).values()
    shown = [f"{each:.4f}" if isinstance(each, float) else str(each) for each in figures]
    times = [format_time(each.time_ms, date_format) for each in (start, end)]
    return ", ".join([*times, *shown])


_LETTERS = re.compile(r"'([^']*)'|([A-Za-z])\2*")
_FIELDS = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S",
}  # fmt: skip


def format_time(time_ms: int, pattern: str) -> str:
    """Format a time with a pattern of Java's SimpleDateFormat.

    Raises:
        UserError: The pattern has letters other than those for years to milliseconds.
    """
    moment = datetime.fromtimestamp(time_ms / 1000)

    def field(match: re.Match[str]) -> str:
        letters = match[0]
        if letters.startswith("'"):
            return match[1] or "'"
        if letters == "SSS":
            return f"{time_ms % 1000:03d}"
        if letters not in _FIELDS:
            raise UserError(
                f"--date-format: the pattern letters {letters} are not supported. "
                f"Use {', '.join(_FIELDS)} and SSS."
            )
        return moment.strftime(_FIELDS[letters])

    return _LETTERS.sub(field, pattern)
