"""Causes of failed queries, in one line, and whether a restart can help. Without I/O.

Some failures are transient: unreachable brokers, dead Python workers and executors, transactions
that the coordinator timed out. After these, the query is restarted from its checkpoint, without
loss or repetition. Any other failure would recur at the same record: a record that cannot be
parsed, a function that raises, offsets that are gone, a principal that is not authorized.
"""

from __future__ import annotations

import re

from ottla.base.errors import UserError

MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0

_PLAN_FOLLOWS = "=== Streaming Query ==="
_WRAPPERS = ("py4j.", "pyspark.")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ([^\n]+)")
_LOCATION_CONDITIONS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")
_RAISED = re.compile(
    r"^(?:ottla\.[\w.]+|[A-Za-z_][\w.]*(?:Error|Exception|Failed)): .+$", re.MULTILINE
)
_TRANSIENT = re.compile(
    r"""
    \b(?: KafkaTimeout | BrokersUnreachable | ConnectionLost ) \b
    | \b(?: ConnectionRefusedError | ConnectionResetError | BrokenPipeError | EOFError ) \b
    | Python\ worker\ (?: exited\ unexpectedly | failed\ to\ connect\ back )
    | PYTHON_WORKER_EXITED
    | ExecutorLostFailure | executor\ lost | Lost\ executor | FetchFailed | SparkOutOfMemory
    | java\.io\.EOFException | java\.net\.(?: Socket | Connect )Exception
    | Connection\ (?: reset | refused ) | Broken\ pipe
    | Start\ the\ query\ again
    """,
    re.VERBOSE,
)
_PERMANENT = re.compile(
    r"\b(?:BatchUndecidable|DataLoss|AuthorizationFailed|AuthenticationFailed|InvalidConfig)\b"
    r"|has taken over"
)


class QueryFailed(UserError):
    """A query of the application ended with an error."""


def cause_of(text: str) -> str:
    """Return the line of Spark's error report that names the cause.

    This is the last exception raised in Python; else the first of Spark's error conditions that
    says more than where the failure happened; else the first line.
    """
    report = text.partition(_PLAN_FOLLOWS)[0]
    raised = [line for line in _RAISED.findall(report) if not line.startswith(_WRAPPERS)]
    if raised:
        return str(raised[-1]).strip()
    for condition, sentence in _CONDITION.findall(report):
        if condition not in _LOCATION_CONDITIONS:
            return f"[{condition}] {sentence}".strip()
    return report.strip().partition("\n")[0]


def is_transient(text: str) -> bool:
    """Return whether the failure is transient, so that the query should be restarted."""
    report = text.partition(_PLAN_FOLLOWS)[0]
    return _PERMANENT.search(report) is None and _TRANSIENT.search(report) is not None


def pause_s(failures: int) -> float:
    """Return the pause before a restart, after `failures` in a row without a finished batch."""
    return min(MIN_PAUSE_S * (1 << min(failures - 1, 10)), MAX_PAUSE_S)
