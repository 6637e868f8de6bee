"""Responses of partition leaders to transaction markers, and the coordinator's reactions.

    verdict   response                                  consequence
    WRITTEN   NONE; UNSUPPORTED_FOR_MESSAGE_FORMAT and  the partition has the outcome, or does not
              UNSUPPORTED_VERSION, because no record    need it
              of a transaction can have been written
              there; INVALID_PRODUCER_EPOCH
    RETRY     the leader has moved, replicas or a disk  the marker is sent again, to the leader at
              are missing, the connection was lost      that time
    STOP      TRANSACTION_COORDINATOR_FENCED            a newer coordinator has the transaction;
                                                        no further markers are sent for it

UNKNOWN_TOPIC_OR_PARTITION is RETRY, because the leader may not know the partition yet. Whether the
partition was deleted is determined by the coordinator's own image.

Deviations: INVALID_PRODUCER_EPOCH means that the partition has a newer epoch, so the transaction
has ended there. Kafka also stops sending the other markers, and the transactional id is stuck until
another broker loads it. Unexpected errors (CORRUPT_MESSAGE, ...) stop Kafka's sender with an
exception; here the marker is sent again, because the decision is final.
"""

from __future__ import annotations

from enum import Enum

from ottla.base.errors import ErrorCode


class Verdict(Enum):
    WRITTEN = "no marker is needed"
    RETRY = "retrying"
    STOP = "this coordinator is fenced"


_VERDICTS = {
    ErrorCode.NONE: Verdict.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.WRITTEN,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.WRITTEN,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.WRITTEN,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.STOP,
}
EXPECTED = frozenset({
    *_VERDICTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
"""Known responses. All others are logged."""


def verdict_for(code: ErrorCode) -> Verdict:
    """Return the reaction to a leader's response to a marker."""
    return _VERDICTS.get(code, Verdict.RETRY)
