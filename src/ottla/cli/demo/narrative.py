"""The steps of the demo.

1. Start all processes and wait for the first results.
2. Add lines while the pipeline runs; with several brokers, kill a leader.
3. Wait until all lines are processed, and verify the result."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.demo.application import COUNTS, LINES, WINDOWS
from ottla.cli.demo.failover import Failover
from ottla.cli.demo.pipeline import PARTITIONS, Pipeline
from ottla.cli.demo.screen import Screen
from ottla.cli.demo.verification import (
    Check,
    ReadRecords,
    WrittenLines,
    checks,
    has_arrived,
    numbered_lines,
    words_of,
)
from ottla.spark.kernels import compile_in_background

PICTURE = """\
lines.txt ─► topic lines ─► Streams on Spark ─┬► word-counts ──► counts.txt
     file source                              └► word-windows ─► windows.txt
      on Spark                                        file sinks on Spark"""
STAGES = ("lines.txt", "topic lines", "counted", "counts.txt")
FIRST_LINES = 10
LINES_PER_S = 20
POLL_TIMEOUT_S = 0.1
FIRST_TIMEOUT_S = 400.0
"""Time to wait for the first results, with the start of Spark on a very busy machine."""
QUIET_TIMEOUT_S = 180.0
"""Time without any progress after which the demo stops waiting for missing records."""


@dataclass
class Outcome:
    """The result of the demo."""

    checks: list[Check]
    flow: list[tuple[str, str]]
    """Rows of the summary: a label and a text."""

    @property
    def is_right(self) -> bool:
        return all(each.is_right for each in self.checks)


class Narrative:
    """One run of the demo."""

    def __init__(self, pipeline: Pipeline, screen: Screen, brokers: int, lines: int) -> None:
        self._pipeline = pipeline
        self._screen = screen
        self._brokers = brokers
        self._total = max(lines, FIRST_LINES)
        self._source = numbered_lines()
        self._written = WrittenLines()
        self._read = ReadRecords()
        self._failover: Failover | None = None

    def run(self) -> Outcome:
        """Run all steps and return the result."""
        self._start()
        with self._open_consumer():
            self._wait_for_the_first()
            self._add_lines()
            self._wait_for_the_rest()
        return Outcome(
            checks(
                self._written,
                self._read,
                self._pipeline.counts.counted,
                self._pipeline.windows.counted,
            ),
            self._flow(),
        )

    # ---------------------------------------------------------------------------------- start

    def _start(self) -> None:
        pipeline, screen = self._pipeline, self._screen
        screen.title(f"Ottla: a pipeline on {_brokers(self._brokers)}", PICTURE)
        with screen.waiting("starting brokers"):
            pipeline.brokers.start()
        screen.done(f"{_brokers(self._brokers)} at {pipeline.bootstrap}")
        pipeline.create_topics()
        screen.done(
            f"topics {LINES}, {COUNTS}, {WINDOWS}: "
            f"{PARTITIONS} partitions, replication factor {pipeline.replicas}"
        )
        self._write(FIRST_LINES)
        screen.done(f"wrote {FIRST_LINES} lines to {pipeline.lines}")
        pipeline.start_spark()
        compile_in_background()
        screen.done("started Spark, with 3 connectors of Connect and a Streams application")

    def _write(self, count: int) -> None:
        lines = list(itertools.islice(self._source, count))
        with self._pipeline.lines.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        for line in lines:
            self._written.add(line)

    # --------------------------------------------------------------------------------- consume

    @contextmanager
    def _open_consumer(self) -> Iterator[None]:
        """Open the consumer that `_poll` reads from while the body runs."""
        from ottla import Consumer

        with Consumer(
            self._pipeline.bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50
        ) as consumer:
            consumer.assign(
                [
                    TopicPartition(topic, partition)
                    for topic in (LINES, COUNTS, WINDOWS)
                    for partition in range(PARTITIONS)
                ]
            )
            consumer.seek_to_beginning()
            self._consumer = consumer
            yield

    def _poll(self) -> None:
        """Read new records and new lines of the result files.

        Raises:
            UserError: A process has exited.
        """
        self._pipeline.check()
        for record in self._consumer.poll(timeout_s=POLL_TIMEOUT_S, max_records=5_000):
            if record.topic == LINES:
                self._read.lines.append(record.value.decode())
            else:
                counted = self._read.counts if record.topic == COUNTS else self._read.windows
                counted.add(record.value)
        self._pipeline.counts.read_on()
        self._pipeline.windows.read_on()

    def _wait_for_the_first(self) -> None:
        stages: list[tuple[str, Callable[[], object]]] = [
            (f"first line from the file source in topic {LINES}", lambda: self._read.lines),
            (
                f"first count from Streams in topic {COUNTS}",
                lambda: self._read.counts.changes,
            ),
            (f"first window from Streams in topic {WINDOWS}", lambda: self._read.windows.changes),
            ("first lines from the sinks in counts.txt and windows.txt", self._files_have_begun),
        ]
        deadline = time.monotonic() + FIRST_TIMEOUT_S
        with self._screen.waiting("starting Spark"):
            for text, has_come in stages:
                while not has_come():
                    self._poll()
                    self._check_deadline(deadline, FIRST_TIMEOUT_S, text)
                self._screen.done(text)

    def _files_have_begun(self) -> bool:
        files = (self._pipeline.counts, self._pipeline.windows)
        return all(each.counted.changes for each in files)

    # ------------------------------------------------------------------------------- add lines

    def _add_lines(self) -> None:
        left = self._total - len(self._written.lines)
        began, already = time.monotonic(), len(self._written.lines)
        middle = already + left // 2
        with self._bars() as show:
            while len(self._written.lines) < self._total:
                due = already + int((time.monotonic() - began) * LINES_PER_S) + 1
                self._write(min(due, self._total) - len(self._written.lines))
                if self._brokers > 1 and not self._failover and len(self._written.lines) >= middle:
                    self._failover = Failover(self._pipeline)
                    self._screen.note(f"{self._failover.victim} was killed (kill -9)")
                self._poll()
                show()
        self._screen.done(f"added {left} more lines while the pipeline was running")
        if self._failover is not None:
            self._screen.done(self._failover.outcome())

    def _wait_for_the_rest(self) -> None:
        before, since = self._progress(), time.monotonic()
        with self._bars() as show:
            while not self._has_arrived():
                self._poll()
                show()
                now = self._progress()
                if now != before:
                    before, since = now, time.monotonic()
                if time.monotonic() - since > QUIET_TIMEOUT_S:
                    return  # the checks report the missing records
        self._screen.done("all lines have been processed")

    def _has_arrived(self) -> bool:
        counts, windows = self._pipeline.counts.counted, self._pipeline.windows.counted
        return has_arrived(self._written, self._read, counts, windows)

    def _progress(self) -> tuple[int, ...]:
        counts, windows = self._pipeline.counts.counted, self._pipeline.windows.counted
        read = self._read
        found = (read.counts.changes, read.windows.changes, counts.changes, windows.changes)
        return (len(read.lines), *found)

    @contextmanager
    def _bars(self) -> Iterator[Callable[[], None]]:
        """Show progress bars, and yield a function that updates them."""
        written, read, counts = self._written, self._read, self._pipeline.counts
        with self._screen.bars(STAGES, self._total) as bars:

            def show() -> None:
                lines_per_word = len(written.lines) / max(1, written.words.total())
                counted, filed = read.counts.words().total(), counts.counted.words().total()
                in_lines = (int(words * lines_per_word) for words in (counted, filed))
                bars.show(len(written.lines), len(read.lines), *in_lines)

            yield show

    @staticmethod
    def _check_deadline(deadline: float, timeout_s: float, what: str) -> None:
        if time.monotonic() > deadline:
            raise UserError(f"Timed out after {timeout_s:g} s while waiting for: {what}.")

    # --------------------------------------------------------------------------------- summary

    def _flow(self) -> list[tuple[str, str]]:
        written, read, pipeline = self._written, self._read, self._pipeline
        most = written.words.most_common(5)
        flow = [
            ("produced", f"{len(read.lines):,} records to {LINES}, by the file source connector"),
            (
                "processed",
                f"{sum(len(words_of(line)) for line in read.lines):,} words; "
                f"{read.counts.changes:,} changes of counts, "
                f"{read.windows.changes:,} changes of {read.windows.windows} windows",
            ),
            (
                "consumed",
                f"{len(read.lines) + read.counts.changes + read.windows.changes:,} records, "
                "by the demo's own consumer",
            ),
            (
                "written",
                f"{pipeline.counts.counted.changes:,} lines to counts.txt, "
                f"{pipeline.windows.counted.changes:,} to windows.txt, by the file sink connectors",
            ),
            ("most frequent", ", ".join(f"{word} {n:,}" for word, n in most)),
        ]
        if self._failover is not None:
            flow.append(("failover", self._failover.outcome()))
        return flow


def _brokers(count: int) -> str:
    return "one broker" if count == 1 else f"{count} brokers"
