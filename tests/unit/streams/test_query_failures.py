"""Tests of summarizing why a query failed in one line, and of which failures are retried."""

from __future__ import annotations

import pytest

from ottla.streams.query_failures import MAX_PAUSE_S, cause_of, is_transient, pause_s

LOST_BROKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Traceback (most recent call last):
  File "source.py", line 1, in latestOffset
ottla.client.errors.BrokersUnreachable: none of localhost:1 could be reached in 60 s

=== Streaming Query ===
Identifier: ValueError: not this
"""
DEAD_WORKER = (
    "[STREAM_FAILED] Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: "
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
)
BAD_RECORD = (
    "[STREAM_FAILED] Query terminated\n"
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected: '{'."
)
RAISED = "Traceback\n  File x\nValueError: invalid literal for int()\n"
TAKEN_OVER = (
    "ottla.base.errors.UserError: Another run of query 'q' has taken over. Connection reset"
)


def test_the_last_exception_of_python_is_the_cause() -> None:
    cause = "ottla.client.errors.BrokersUnreachable: none of localhost:1 could be reached in 60 s"
    assert cause_of(LOST_BROKER) == cause
    assert cause_of(RAISED) == "ValueError: invalid literal for int()"


def test_without_one_sparks_own_condition_is() -> None:
    assert cause_of(BAD_RECORD).startswith("[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION]")


@pytest.mark.parametrize(
    "text",
    [
        LOST_BROKER,
        DEAD_WORKER,
        "ExecutorLostFailure (executor 1 exited unrelated to the running tasks)",
        "UserError: Batch 3 is decided, but 1 of its 2 transactions were aborted before the commit "
        "(the first: x/0/1). transaction.timeout.ms may be shorter than the batch. Start the query "
        "again to write the missing rows.",
    ],
)
def test_what_was_lost_comes_back(text: str) -> None:
    assert is_transient(text)


@pytest.mark.parametrize("text", [BAD_RECORD, RAISED, TAKEN_OVER, ""])
def test_what_would_fail_again_is_not_tried_again(text: str) -> None:
    assert not is_transient(text)


def test_a_word_in_the_plan_is_no_cause() -> None:
    assert not is_transient(f"{RAISED}=== Streaming Query ===\nConnection refused")


def test_pauses_double_up_to_a_bound() -> None:
    assert [pause_s(each) for each in (1, 2, 3)] == [1, 2, 4]
    assert pause_s(100) == MAX_PAUSE_S
