"""Tests of turning Spark's progress report of a batch into figures and lines."""

from __future__ import annotations

from typing import Any

import ottla.streams as st
from ottla.streams.progress import (
    OperatorMetrics,
    SourceMetrics,
    observed_name,
    prometheus,
    query_status,
    status_line,
    with_inferred_rows,
)

PROGRESS: dict[str, Any] = {
    "batchId": 12,
    "inputRowsPerSecond": 1000.5,
    "processedRowsPerSecond": "Infinity",
    "durationMs": {"triggerExecution": 1200},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "sources": [
        {
            "endOffset": '{"orders": {"0": 10, "1": 5}, "←": {"orders": {"0": 0}}}',
            "latestOffset": '{"orders": {"0": 12, "1": 5}}',
            "numInputRows": 15,
            "inputRowsPerSecond": 1000.5,
        }
    ],
    "stateOperators": [
        {
            "operatorName": "stateStoreSave",
            "numRowsTotal": 7,
            "numRowsUpdated": 3,
            "numRowsRemoved": 1,
            "numRowsDroppedByWatermark": 2,
            "memoryUsedBytes": 2_000_000,
            "commitTimeMs": 40,
        }
    ],
    "observedMetrics": {
        observed_name(3, "aggregate"): {"rows": 3},
        observed_name(2, "inner join"): {"rows": 9},
        "a user's own": {"x": 1},
    },
}


def status(progress: dict[str, Any] | None = PROGRESS) -> Any:
    return query_status("totals", progress, is_active=True, message="Waiting", restarts=1)


def test_lag_is_what_the_topics_have_more_than_was_read() -> None:
    assert status().lag == 2
    assert status().sources[0].topic == "orders"


def test_operators_come_in_the_order_of_explain() -> None:
    assert status().operators == (
        OperatorMetrics(2, "inner join", 9),
        OperatorMetrics(3, "aggregate", 3),
    )


def test_a_report_of_spark_connect_has_the_same_figures() -> None:
    left_out = ("inputRowsPerSecond", "processedRowsPerSecond")
    report = {name: value for name, value in PROGRESS.items() if name not in left_out}
    schema = {"type": "struct", "fields": [{"name": "rows", "type": "long"}]}
    report["observedMetrics"] = {
        name: {"values": list(row.values()), "schema": schema}
        for name, row in PROGRESS["observedMetrics"].items()
    }
    assert status(report).operators == status().operators
    assert status(report).input_rows_per_second == 1000.5


def test_steps_that_are_one_to_one_have_the_rows_of_their_parents() -> None:
    app = st.App("shop")
    orders = app.stream("orders", value=st.Json("n bigint"))
    big = orders.filter(lambda o: o.n > 1).map_values(lambda o: {"m": o.n})
    big.map_values(lambda o: f"{o.m}", schema="string").to("big")
    counted = [OperatorMetrics(2, "filter", 7), OperatorMetrics(4, "map_values", 6)]
    assert with_inferred_rows(app.sinks[0], counted) == (
        OperatorMetrics(2, "filter", 7),
        OperatorMetrics(3, "map_values", 7),
        OperatorMetrics(4, "map_values", 6),
        OperatorMetrics(5, "to", 6),
    )


def test_a_topic_that_is_read_whole_has_the_rows_that_spark_read() -> None:
    app = st.App("shop")
    app.stream("orders", value=st.Long).map_values(lambda n: {"m": n}).to("all")
    assert with_inferred_rows(app.sinks[0], [], [SourceMetrics("orders", 5, 1.0, 0)]) == (
        OperatorMetrics(1, "stream", 5),
        OperatorMetrics(2, "map_values", 5),
        OperatorMetrics(3, "to", 5),
    )


def test_a_topic_of_which_rows_are_dropped_or_that_is_read_twice_is_counted_row_by_row() -> None:
    read = [SourceMetrics("orders", 5, 1.0, 0)]
    dropping = st.App("dropping")
    dropping.stream("orders", value=st.Long, bad_records="drop").to("all")
    assert with_inferred_rows(dropping.sinks[0], [], read) == ()
    twice = st.App("twice")
    twice.stream("orders").merge(twice.stream("orders")).to("all")
    assert with_inferred_rows(twice.sinks[0], [], read) == ()


def test_state_has_what_is_kept_and_what_was_late() -> None:
    (state,) = status().state
    assert (state.rows, state.updated, state.removed, state.dropped_late) == (7, 3, 1, 2)


def test_state_that_spark_does_not_count_is_reported_by_its_size() -> None:
    (operator,) = PROGRESS["stateOperators"]
    uncounted = status({**PROGRESS, "stateOperators": [{**operator, "numRowsTotal": 0}]})
    assert uncounted.state[0].rows is None
    assert "state 2.0 MB, 2 late" in status_line(uncounted, "12:00:05")
    assert "state_rows" not in prometheus("app", [uncounted])


def test_a_source_of_another_kind_has_no_lag() -> None:
    progress = {**PROGRESS, "sources": [{"endOffset": "3", "latestOffset": None}]}
    assert status(progress).lag is None


def test_progress_is_printed_as_a_line() -> None:
    assert status_line(status(), "12:00:05") == (
        "12:00:05  totals  batch 12 in 1.2 s, 15 rows, 0 rows/s, state 7 rows, 2.0 MB, 2 late, "
        "lag 2, restarted 1 times"
    )
    assert status_line(status(None), "12:00:05") == "12:00:05  totals  Waiting"


def test_prometheus_reads_it() -> None:
    text = prometheus('a"pp', [status()])
    assert "# TYPE ottla_streams_query_lag_records gauge\n" in text
    assert 'ottla_streams_query_lag_records{app="a\\"pp",topic="totals"} 2\n' in text
    assert 'ottla_streams_query_input_rows_per_second{app="a\\"pp",topic="totals"} 1000.5\n' in text
    assert (
        'ottla_streams_operator_rows{app="a\\"pp",topic="totals",operator="aggregate",number="3"} 3'
        in text
    )
