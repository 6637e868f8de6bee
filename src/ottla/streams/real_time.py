"""Real-time applications: their settings, and the operators that they can run. Without Spark.

Spark's real-time mode keeps one task per partition running, and passes each record on when it
arrives. It has no joins of streams, no sessions, and no state in Python. Python functions without
state run beside the tasks, one record at a time (`ottla.spark.realtime.functions`).
"""

from __future__ import annotations

from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import TopologyError, topology_error
from ottla.streams.operators.aggregations import Aggregated, PythonAggregated
from ottla.streams.operators.processing import Deduplicated
from ottla.streams.operators.stateless import (
    Failures,
    Merge,
    RecordOperator,
    Repartitioned,
    Transformed,
)
from ottla.streams.operators.topics import BadRecords, FrameSource, Printed, Sink, Source
from ottla.streams.plan.node import Node, ancestors

MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
DEFAULT_COMMIT_INTERVAL = "30 seconds"
MIN_COMMIT_INTERVAL_MS = 5_000
"""Spark's default of spark.sql.streaming.realTimeMode.minBatchDuration."""
_STATELESS = (RecordOperator, Failures, Merge, Repartitioned, Transformed, BadRecords, FrameSource)


def checked_interval(latency: str, commit_interval: Duration | None) -> str | None:
    """Return the interval between commits of a real-time application, or None for micro-batches.

    Raises:
        TopologyError: An argument is invalid.
    """
    if latency not in (MICRO_BATCH, REAL_TIME):
        raise TopologyError(
            f"latency={latency!r} is invalid. Use {MICRO_BATCH!r} or {REAL_TIME!r}."
        )
    if latency == MICRO_BATCH:
        if commit_interval is not None:
            raise TopologyError(
                "commit_interval applies only to latency='real-time'. Micro-batches are committed "
                "one by one."
            )
        return None
    interval = DEFAULT_COMMIT_INTERVAL if commit_interval is None else commit_interval
    length_ms = duration_ms(interval, name="commit_interval", min_ms=MIN_COMMIT_INTERVAL_MS)
    return f"{length_ms} milliseconds"


def refuse_without_real_time(sink: Sink) -> None:
    """Raise an error that names the first operator of a query that cannot run in real time."""
    for node in ancestors(sink):
        reason = _obstacle(node)
        if reason is not None:
            raise topology_error(
                node.describe()[0],
                f"a real-time application cannot run this, because {reason}; "
                "use latency='micro-batch'",
            )


def _obstacle(node: Node) -> str | None:
    match node:
        case Printed():
            return "Spark prints whole batches only"
        case Sink():
            return None
        case Source(is_table=True):
            return "Spark joins and updates tables in micro-batches only"
        case Source() | Deduplicated():
            return None
        case Aggregated(window=window):
            is_session = window is not None and window.is_session
            return "Spark closes sessions in micro-batches only" if is_session else None
        case PythonAggregated():
            return f"it needs Python state ({node.why})"
    if isinstance(node, _STATELESS):
        return None
    return "Spark has it in micro-batches only"
