"""Tests of the coordinator's reactions to transaction marker responses.

They match Kafka's, except for the deviations listed in core/txn/marker_answers.py."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.core.txn.marker_answers import Verdict, judge

E = ErrorCode


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (E.NONE, Verdict.WRITTEN),
        (E.UNSUPPORTED_FOR_MESSAGE_FORMAT, Verdict.WRITTEN),
        (E.UNSUPPORTED_VERSION, Verdict.WRITTEN),
        (E.INVALID_PRODUCER_EPOCH, Verdict.WRITTEN),
        (E.UNKNOWN_TOPIC_OR_PARTITION, Verdict.AGAIN),
        (E.NOT_LEADER_OR_FOLLOWER, Verdict.AGAIN),
        (E.NOT_ENOUGH_REPLICAS, Verdict.AGAIN),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Verdict.AGAIN),
        (E.REQUEST_TIMED_OUT, Verdict.AGAIN),
        (E.KAFKA_STORAGE_ERROR, Verdict.AGAIN),
        (E.NETWORK_EXCEPTION, Verdict.AGAIN),
        (E.CORRUPT_MESSAGE, Verdict.AGAIN),
        (E.TRANSACTION_COORDINATOR_FENCED, Verdict.OVER),
    ],
)
def test_the_verdict(code: ErrorCode, verdict: Verdict) -> None:
    assert judge(code) is verdict
