"""TxnOffsetCommit (key 28), versions 0–5: the commit of a group's offsets in a transaction.

The offsets take effect when the transaction is committed. Until then OffsetFetch with
`require_stable` returns UNSTABLE_OFFSET_COMMIT for them.

- The group's partition of the offsets topic must be part of the transaction
  (transaction_verification.py); from version 5 on it is added to it (KIP-890).
- From version 3 on the request has the member ID, instance ID and generation, so that a member of
  an old generation cannot commit (KIP-447).
- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION; the others are committed
  all the same.
- COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before version 2, whose clients would
  fail on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID, TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import CLIENT_ERRORS, DelayedResponse
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.transaction_verification import TransactionVerification, offset_commit_operation
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.group.commit_request import (
    RequestedTopic,
    failed_partitions,
    merge_results,
    split_known,
)
from ottla.core.group.events import CommitRequested
from ottla.core.group.offsets import commit_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 28
_FIRST_WITH_LOADING = 2
_NO_RETENTION = -1


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    if not request.transactional_id or not request.group_id:
        return _all_failed(request, ErrorCode.INVALID_REQUEST)
    index = broker.group_coordinator.topic.partition_for(request.group_id)
    if index is None:
        return _all_failed(request, ErrorCode.NOT_COORDINATOR)
    verification = TransactionVerification(
        broker,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(OFFSETS_TOPIC, index)],
        offset_commit_operation(context.api_version),
    )
    if verification.verify_now():
        return _commit_verified(broker, context, request, verification)
    return _verify_and_commit(broker, context, request, verification)


async def _verify_and_commit(
    broker: Broker, context: RequestContext, request: Any, verification: TransactionVerification
) -> Body | None:
    await verification.verify()
    response = _commit_verified(broker, context, request, verification)
    return response if isinstance(response, dict) else await response  # type: ignore[misc]


def _commit_verified(
    broker: Broker, context: RequestContext, request: Any, verification: TransactionVerification
) -> Response:
    if verification.rejected:
        (code,) = verification.rejected.values()
        error = verification.offset_commit_error(code)
        return _all_failed(request, _error_for_version(error.code, context.api_version))
    try:
        for key in verification.keys:
            verification.check_guard(key)
    except KafkaError as error:
        return _all_failed(request, CLIENT_ERRORS.get(error.code, error.code))
    return _commit(broker, context, request)


def _commit(broker: Broker, context: RequestContext, request: Any) -> Response:
    version = context.api_version
    requested = (
        RequestedTopic(each.name, ZERO_UUID, broker.image.topics.get(each.name), each.partitions)
        for each in request.topics
    )
    topics, refused = split_known(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not topics:
        return {"topics": _results(refused, version)}

    def finish(body: Body) -> Body:
        return {"topics": _results(merge_results(refused, body["topics"]), version)}

    event = CommitRequested(
        None,
        request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        retention_ms=_NO_RETENTION,
        topics=topics,
        producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
    )
    delayed = DelayedResponse(lambda code: finish(commit_error(event, code)), finish)
    event.token = delayed
    broker.group_coordinator.submit(event)
    return delayed.response()


def _results(topics: list[Body], version: int) -> list[Body]:
    return [
        {
            "name": topic["name"],
            "partitions": [
                {**each, "error_code": _error_for_version(each["error_code"], version)}
                for each in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _all_failed(request: Any, code: ErrorCode) -> Body:
    return {
        "topics": [
            {"name": each.name, "partitions": failed_partitions(each.partitions, code)}
            for each in request.topics
        ]
    }
