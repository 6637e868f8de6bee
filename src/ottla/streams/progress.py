"""Metrics of queries, from Spark's progress reports, and their formats. Without I/O.

    source    rows read, rows/s, and the lag: records in the topics that are not read yet
    operator  rows of its output. `observed` in `run` counts them, except for operators that emit
              one row for each input row, and for topics whose rows Spark itself reports
    state     keys kept, updated and dropped as late, memory, commit time
    sink      the topic that is written

All figures are those of the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.base import notebook
from ottla.spark.offsets import from_json
from ottla.streams.operators.topics import Sink, Source
from ottla.streams.plan.node import ancestors

CLOCK = "~clock"
"""Key in the offsets of a clock source (`clock_source`); not a valid topic name."""


@dataclass(frozen=True)
class SourceMetrics:
    topic: str
    rows: int
    rows_per_second: float
    lag: int | None
    """Records of the topic that remained unread after the batch, or None if unknown."""


@dataclass(frozen=True)
class OperatorMetrics:
    number: int
    """Number of the operator in `explain()`."""
    operator: str
    rows: int
    """Rows that the operator emitted in the last batch."""


@dataclass(frozen=True)
class StateMetrics:
    operator: str
    rows: int | None
    """Number of keys, or of keys and windows, in the state.

    None if there are none, or if Spark does not count them (see `query_settings`).
    """
    updated: int
    removed: int
    dropped_late: int
    """Records of the last batch that arrived after their window had closed."""
    memory_bytes: int
    commit_ms: int


@dataclass(frozen=True)
class QueryStatus:
    topic: str
    """Topic that the query writes."""
    is_active: bool
    batch: int | None
    """Number of the last finished batch."""
    input_rows_per_second: float
    processed_rows_per_second: float
    batch_ms: int
    lag: int | None
    restarts: int
    message: str
    watermark: str | None = None
    sources: tuple[SourceMetrics, ...] = ()
    operators: tuple[OperatorMetrics, ...] = ()
    state: tuple[StateMetrics, ...] = field(default=())

    def _repr_html_(self) -> str:
        """Return the query's row, and one for each source, operator and state of the last batch."""
        details: list[tuple[Any, ...]] = [
            ("source", each.topic, each.rows, each.lag) for each in self.sources
        ]
        details += [("operator", each.operator, each.rows, None) for each in self.operators]
        details += [("state", each.operator, each.rows, None) for each in self.state]
        headings = ("", "name", "rows", "lag")
        return queries_html([self]) + (notebook.table(headings, details) if details else "")


def queries_html(queries: Sequence[QueryStatus], caption: str = "") -> str:
    """Return an HTML table with a row for each query."""
    headings = (
        "topic",
        "state",
        "batch",
        "input rows/s",
        "processed rows/s",
        "batch ms",
        "lag",
        "restarts",
    )
    rows = [
        (each.topic, each.message if each.is_active else "stopped", each.batch,
         f"{each.input_rows_per_second:,.0f}", f"{each.processed_rows_per_second:,.0f}",
         each.batch_ms, each.lag, each.restarts)
        for each in queries
    ]  # fmt: skip
    return notebook.table(headings, rows, caption=caption)


def query_status(
    topic: str,
    progress: Mapping[str, Any] | None,
    *,
    is_active: bool,
    message: str,
    restarts: int = 0,
) -> QueryStatus:
    """Return the status of a query from Spark's progress report, in its JSON form."""
    if progress is None:
        return QueryStatus(topic, is_active, None, 0.0, 0.0, 0, None, restarts, message)
    sources = tuple(_source(each) for each in progress.get("sources", ()) if not _is_clock(each))
    lags = [each.lag for each in sources if each.lag is not None]
    return QueryStatus(
        topic,
        is_active,
        int(progress["batchId"]),
        _rate(progress, "inputRowsPerSecond"),
        _rate(progress, "processedRowsPerSecond"),
        int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        sum(lags) if lags else None,
        restarts,
        message,
        (progress.get("eventTime") or {}).get("watermark"),
        sources,
        _operators(progress.get("observedMetrics") or {}),
        tuple(_state(each) for each in progress.get("stateOperators", ())),
    )


def observed_name(number: int, operator: str) -> str:
    """Return the name under which an operator's rows are counted."""
    return f"{number} {operator}"


def fully_read_sources(sink: Sink) -> list[Source]:
    """Return the sources that are read once and whose rows are all passed on.

    Spark reports the number of their rows. Counting them again would cost a call per row outside of
    Spark's generated code. Sources with JSON are excluded, because there the count helps: it keeps
    filters from being pushed below it, where they would parse each value a second time.
    """
    sources = [each for each in ancestors(sink) if isinstance(each, Source)]
    topics = [each.topic for each in sources]
    return [
        each
        for each in sources
        if each.bad_records == "stop"
        and topics.count(each.topic) == 1
        and "json" not in (each.key_serde.name, each.value_serde.name)
    ]


def with_inferred_rows(
    sink: Sink, counted: Sequence[OperatorMetrics], sources: Sequence[SourceMetrics] = ()
) -> tuple[OperatorMetrics, ...]:
    """Add the operators that are not counted.

    A topic has the rows that Spark read, a one-to-one operator those of its parent.
    """
    rows = {each.number: each.rows for each in counted}
    names = {each.number: each.operator for each in counted}
    numbers: dict[int, int] = {}
    read = {each.topic: each.rows for each in sources}
    whole = {id(each): read[each.topic] for each in fully_read_sources(sink) if each.topic in read}
    for number, node in enumerate(ancestors(sink), 1):
        numbers[id(node)] = number
        if number not in rows and id(node) in whole:
            rows[number], names[number] = whole[id(node)], node.describe()[0]
        elif number not in rows and node.is_one_to_one:
            parent = rows.get(numbers[id(node.parents[0])])
            if parent is not None:
                rows[number], names[number] = parent, node.describe()[0]
    return tuple(OperatorMetrics(each, names[each], rows[each]) for each in sorted(rows))


def _operators(observed: Mapping[str, Any]) -> tuple[OperatorMetrics, ...]:
    found = []
    for name, metrics in observed.items():
        number, _, operator = name.partition(" ")
        rows = _observed_rows(metrics)
        if number.isdecimal():
            found.append(OperatorMetrics(int(number), operator, int(rows or 0)))
    return tuple(sorted(found, key=lambda each: each.number))


def _observed_rows(metrics: Any) -> Any:
    """Return the count of an operator; Spark Connect reports its row as values and a schema."""
    if isinstance(metrics, Mapping):
        return metrics["values"][0] if "values" in metrics else metrics.get("rows")
    return metrics[0]


def _source(report: Mapping[str, Any]) -> SourceMetrics:
    end, latest = _offsets(report.get("endOffset")), _offsets(report.get("latestOffset"))
    lag = None
    if end is not None and latest is not None:
        lag = sum(max(offset - end.get(tp, offset), 0) for tp, offset in latest.items())
    topics = sorted({tp.topic for tp in end or ()})
    rate = _number(report.get("inputRowsPerSecond"))
    return SourceMetrics(",".join(topics), int(report.get("numInputRows", 0)), rate, lag)


def _is_clock(report: Mapping[str, Any]) -> bool:
    return CLOCK in str(report.get("endOffset"))


def _offsets(reported: Any) -> Any:
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return None
    if not isinstance(reported, Mapping):
        return None
    try:
        return from_json(reported)
    except (ValueError, AttributeError):
        return None  # not a topic: a source of the user's own DataFrame


def _state(report: Mapping[str, Any]) -> StateMetrics:
    return StateMetrics(
        str(report.get("operatorName", "")),
        int(report.get("numRowsTotal", 0)) or None,
        int(report.get("numRowsUpdated", 0)),
        int(report.get("numRowsRemoved", 0)),
        int(report.get("numRowsDroppedByWatermark", 0)),
        int(report.get("memoryUsedBytes", 0)),
        int(report.get("commitTimeMs", 0)),
    )


def _rate(progress: Mapping[str, Any], name: str) -> float:
    """Return a rate of the whole query, which Spark Connect reports for its sources only."""
    if name in progress:
        return _number(progress[name])
    return sum(_number(each.get(name)) for each in progress.get("sources", ()))


def _number(reported: Any) -> float:
    """Return a rate, or 0 for the NaN or "Infinity" that Spark reports for an instant batch."""
    try:
        number = float(reported)
    except (TypeError, ValueError):
        return 0.0
    return number if number - number == 0 else 0.0


# ------------------------------------------------------------------------------------ the console


def status_line(status: QueryStatus, now: str) -> str:
    """Return the status as a line.

    `12:00:05  totals  batch 12 in 1.2 s, 500 rows, 120,000 rows/s, state 2.1 MB, lag 0`
    """
    if status.batch is None:
        return f"{now}  {status.topic}  {status.message}"
    parts = [
        f"batch {status.batch} in {status.batch_ms / 1000:.1f} s",
        f"{sum(each.rows for each in status.sources):,} rows",
        f"{status.processed_rows_per_second:,.0f} rows/s",
    ]
    if status.state:
        kept = sum(each.rows or 0 for each in status.state)
        memory_mb = sum(each.memory_bytes for each in status.state) / 1_000_000
        parts.append(f"state {f'{kept:,} rows, ' if kept else ''}{memory_mb:.1f} MB")
        late = sum(each.dropped_late for each in status.state)
        if late:
            parts.append(f"{late:,} late")
    if status.lag is not None:
        parts.append(f"lag {status.lag:,}")
    if status.restarts:
        parts.append(f"restarted {status.restarts} times")
    return f"{now}  {status.topic}  " + ", ".join(parts)


def prometheus(app: str, statuses: Sequence[QueryStatus]) -> str:
    """Return the metrics in the text format of Prometheus."""
    samples: dict[str, list[tuple[dict[str, object], float]]] = {}

    def add(name: str, value: float | None, **labels: object) -> None:
        if value is not None:
            samples.setdefault(name, []).append(({"app": app, **labels}, value))

    for each in statuses:
        add("query_active", each.is_active, topic=each.topic)
        add("query_batch", each.batch, topic=each.topic)
        add("query_batch_milliseconds", each.batch_ms, topic=each.topic)
        add("query_input_rows_per_second", each.input_rows_per_second, topic=each.topic)
        add("query_processed_rows_per_second", each.processed_rows_per_second, topic=each.topic)
        add("query_lag_records", each.lag, topic=each.topic)
        add("query_restarts", each.restarts, topic=each.topic)
        for source in each.sources:
            add("source_lag_records", source.lag, topic=each.topic, source=source.topic)
            add("source_rows", source.rows, topic=each.topic, source=source.topic)
        for operator in each.operators:
            labels = {"operator": operator.operator, "number": operator.number}
            add("operator_rows", operator.rows, topic=each.topic, **labels)
        for state in each.state:
            labels = {"topic": each.topic, "operator": state.operator}
            add("state_rows", state.rows, **labels)
            add("state_memory_bytes", state.memory_bytes, **labels)
            add("state_dropped_late_rows", state.dropped_late, **labels)
            add("state_commit_milliseconds", state.commit_ms, **labels)
    lines = []
    for name, found in samples.items():
        lines.append(f"# TYPE ottla_streams_{name} gauge")
        for labels, value in found:
            label_text = ",".join(f'{label}="{_escaped(str(of))}"' for label, of in labels.items())
            lines.append(f"ottla_streams_{name}{{{label_text}}} {_sample(value)}")
    return "\n".join([*lines, ""])


def _sample(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
