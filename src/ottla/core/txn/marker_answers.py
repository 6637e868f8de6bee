"""What the leader of a partition may answer to a marker, and what the coordinator makes of it.

    verdict   answer                                    what follows
    WRITTEN   NONE; UNSUPPORTED_FOR_MESSAGE_FORMAT and  the partition knows the end of the
              UNSUPPORTED_VERSION, since nothing of a   transaction, or needs none
              transaction can have been written there;
              INVALID_PRODUCER_EPOCH
    AGAIN     a leader that moved, replicas or a disk   the marker is sent again, to whoever leads
              that are missing, a lost connection       then
    OVER      TRANSACTION_COORDINATOR_FENCED            a newer coordinator has the transaction:
                                                        nothing more is sent for it

UNKNOWN_TOPIC_OR_PARTITION is AGAIN: the leader may not have heard of the partition yet. That it is
gone is seen in the coordinator's own image.

Deviations: INVALID_PRODUCER_EPOCH says that a newer epoch was in the partition, so the transaction
is over there; Kafka stops sending the other markers too, and the id stays as it is until another
broker loads it. An answer that makes no sense (CORRUPT_MESSAGE, ...) stops Kafka's sender with an
exception; here the marker is sent again, because the decision stands."""

from __future__ import annotations

from enum import Enum

from ottla.base.errors import ErrorCode


class Verdict(Enum):
    WRITTEN = "written"
    AGAIN = "again"
    OVER = "over"


_VERDICTS = {
    ErrorCode.NONE: Verdict.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.WRITTEN,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.WRITTEN,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.WRITTEN,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.OVER,
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
"""Anything else is worth a line in the log."""


def judge(code: ErrorCode) -> Verdict:
    return _VERDICTS.get(code, Verdict.AGAIN)
