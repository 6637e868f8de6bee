"""Delayed produce: responses that wait for replication or for a proof of leadership.

- An append with acks=all is acknowledged when every in-sync replica has it.
- A refusal that depends on producer state (epoch or sequence number) is sent only once this broker
  has proved that it leads. Without a lease another broker may lead by now and may have accepted
  more batches from the same producer, and a client treats such a refusal as its own error.

Both waits end at the request's timeout. Records that were appended stay in the log, whatever the
response says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.partition import Partition
from ottla.wire.records.errors import BatchError

if TYPE_CHECKING:
    from ottla.wire.messages.produce import PartitionProduceResponseDict, ProduceResponseDict

NO_OFFSET = -1
PRODUCER_STATE_ERRORS = frozenset({
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
})  # fmt: skip
"""Errors that only the current leader can report with certainty."""


Appended: TypeAlias = "tuple[Partition, int, PartitionProduceResponseDict]"
"""A partition, the offset after the appended batch, and its partition response."""

Rejected: TypeAlias = "tuple[asyncio.Future[None], PartitionProduceResponseDict]"
"""A future that completes when leadership is proved, and the partition response."""


def delayed_response(
    response: ProduceResponseDict,
    appended: Sequence[Appended],
    rejected: Sequence[Rejected],
    timeout_ms: int,
) -> asyncio.Future[ProduceResponseDict | None]:
    """Return a future of the response, completed when every part is final or on timeout.

    Args:
        response: The response, which contains the partition responses that are not final yet.
        appended: The batches that wait for replication.
        rejected: The refusals that wait for a proof of leadership.
        timeout_ms: The request's timeout.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ProduceResponseDict | None] = loop.create_future()
    bodies = [body for _, _, body in appended] + [body for _, body in rejected]
    waiting = dict(enumerate(bodies))

    def on_part_done(number: int, error: KafkaError | None) -> None:
        body = waiting.pop(number, None)
        if body is None:
            return
        if error is not None:
            _set_error(body, error)
        if not waiting and not future.done():
            timer.cancel()
            future.set_result(response)

    def on_timeout() -> None:
        for body in waiting.values():
            _set_error(body, _timeout_error(body))
        waiting.clear()
        if not future.done():
            future.set_result(response)

    timer = loop.call_later(max(timeout_ms, 0) / 1000, on_timeout)
    for number, (partition, offset, _) in enumerate(appended):
        partition.wait_for_high_watermark(offset).add_done_callback(
            lambda done, partition=partition, number=number: on_part_done(  # type: ignore[misc]
                number, _error_of(done) or _not_enough_replicas(partition)
            )
        )
    for number, (proof, _) in enumerate(rejected, len(appended)):
        proof.add_done_callback(
            lambda done, number=number: on_part_done(number, _error_of(done))  # type: ignore[misc]
        )
    return future


def error_response(index: int, error: KafkaError) -> PartitionProduceResponseDict:
    """Return the partition response for a batch that was refused."""
    body: PartitionProduceResponseDict = {"index": index}
    _set_error(body, error)
    return body


def _set_error(body: PartitionProduceResponseDict, error: KafkaError) -> None:
    body["error_code"] = error.code
    body["base_offset"] = NO_OFFSET
    body["error_message"] = error.message
    if isinstance(error, BatchError) and error.record_errors:
        body["record_errors"] = [
            {"batch_index": position, "batch_index_error_message": message}
            for position, message in error.record_errors
        ]


def _error_of(done: asyncio.Future[None]) -> KafkaError | None:
    error = done.exception()
    return error if isinstance(error, KafkaError) else None


def _not_enough_replicas(partition: Partition) -> KafkaError | None:
    if partition.in_sync_count >= partition.log.config.min_insync_replicas:
        return None
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        f"{partition.key}: the records were appended, but to fewer in-sync replicas than required",
    )


def _timeout_error(body: PartitionProduceResponseDict) -> KafkaError:
    if body.get("error_code"):
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker may be the leader now")
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, "the in-sync replicas have not replicated the records yet"
    )
