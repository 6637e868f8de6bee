"""Tests of the coordinator's reactions to transaction marker responses.

They match Kafka's, except for the deviations listed in core/txn/marker_responses.py."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.core.txn.marker_responses import Verdict, verdict_for

E = ErrorCode


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (E.NONE, Verdict.WRITTEN),
        (E.UNSUPPORTED_FOR_MESSAGE_FORMAT, Verdict.WRITTEN),
        (E.UNSUPPORTED_VERSION, Verdict.WRITTEN),
        (E.INVALID_PRODUCER_EPOCH, Verdict.WRITTEN),
        (E.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (E.NOT_LEADER_OR_FOLLOWER, Verdict.RETRY),
        (E.NOT_ENOUGH_REPLICAS, Verdict.RETRY),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Verdict.RETRY),
        (E.REQUEST_TIMED_OUT, Verdict.RETRY),
        (E.KAFKA_STORAGE_ERROR, Verdict.RETRY),
        (E.NETWORK_EXCEPTION, Verdict.RETRY),
        (E.CORRUPT_MESSAGE, Verdict.RETRY),
        (E.TRANSACTION_COORDINATOR_FENCED, Verdict.STOP),
    ],
)
def test_the_verdict(code: ErrorCode, verdict: Verdict) -> None:
    assert verdict_for(code) is verdict
