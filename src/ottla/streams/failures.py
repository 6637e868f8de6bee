"""Why a query ended, in one line, and whether it is worth starting it again. Pure.

What is lost comes back: brokers that could not be reached, Python workers and executors that died,
transactions that a coordinator timed out. A query that ended of these is started again from its
checkpoint, and neither loses nor repeats anything by it. Everything else would end it again, at the
same record: a record that cannot be parsed, a function that raises, offsets that are gone, an
account without rights."""

from __future__ import annotations

import re

from ottla.base.errors import UserError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_PLAN_FOLLOWS = "=== Streaming Query ==="
_WRAPPERS = ("py4j.", "pyspark.")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ([^\n]+)")
_ONLY_WHERE = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")
_RAISED = re.compile(
    r"^(?:ottla\.[\w.]+|[A-Za-z_][\w.]*(?:Error|Exception|Failed)): .+$", re.MULTILINE
)
_LOST = re.compile(
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
_FOR_GOOD = re.compile(
    r"\b(?:BatchUndecidable|DataLoss|AuthorizationFailed|AuthenticationFailed|InvalidConfig)\b"
    r"|has taken over"
)


class QueryFailed(UserError):
    """A query of the application ended with an error."""


def cause_of(text: str) -> str:
    """Of what Spark tells at length, the one line that says it: the last exception of Python's, the
    first condition of Spark's that names more than where it happened, or the first line."""
    told = text.partition(_PLAN_FOLLOWS)[0]
    raised = [line for line in _RAISED.findall(told) if not line.startswith(_WRAPPERS)]
    if raised:
        return str(raised[-1]).strip()
    for condition, sentence in _CONDITION.findall(told):
        if condition not in _ONLY_WHERE:
            return f"[{condition}] {sentence}".strip()
    return told.strip().partition("\n")[0]


def is_passing(text: str) -> bool:
    """Whether what ended a query is something that comes back."""
    told = text.partition(_PLAN_FOLLOWS)[0]
    return _FOR_GOOD.search(told) is None and _LOST.search(told) is not None


def pause_s(failures: int) -> float:
    """Before starting again, after so many failures in a row without a finished batch."""
    return min(FIRST_PAUSE_S * (1 << min(failures - 1, 10)), LONGEST_PAUSE_S)
