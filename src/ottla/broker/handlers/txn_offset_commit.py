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

from typing import Any, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import CLIENT_ERRORS, DelayedResponse
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.ports import GroupSubmitter, Metadata
from ottla.broker.transaction_verification import (
    TransactionVerification,
    VerificationPorts,
    offset_commit_operation,
)
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.group.events import CommitPartition, CommitRequested, CommitTopic
from ottla.core.group.offsets import commit_error

API_KEY = 28
_FIRST_WITH_LOADING = 2
_NO_RETENTION = -1


class GroupCoordinator(GroupSubmitter, Protocol):
    @property
    def topic(self) -> InternalTopic: ...


class Ports(VerificationPorts, Metadata, Protocol):
    """The parts of a broker that TxnOffsetCommit uses."""

    @property
    def group_coordinator(self) -> GroupCoordinator: ...


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
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
    broker: Ports, context: RequestContext, request: Any, verification: TransactionVerification
) -> Body | None:
    await verification.verify()
    response = _commit_verified(broker, context, request, verification)
    return response if isinstance(response, dict) else await response  # type: ignore[misc]


def _commit_verified(
    broker: Ports, context: RequestContext, request: Any, verification: TransactionVerification
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


def _commit(broker: Ports, context: RequestContext, request: Any) -> Response:
    topics, unknown = _split_known(broker, request)
    if not topics:
        return {"topics": unknown}

    def finish(body: Body) -> Body:
        return {"topics": _merge(unknown, body["topics"], context.api_version)}

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


def _split_known(broker: Ports, request: Any) -> tuple[list[CommitTopic], list[Body]]:
    """Return the topics to commit, and the results of those that do not exist."""
    topics: list[CommitTopic] = []
    unknown: list[Body] = []
    for requested in request.topics:
        topic = broker.image.topics.get(requested.name)
        count = 0 if topic is None else len(topic.partitions)
        known = [
            CommitPartition(
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for each in requested.partitions
            if 0 <= each.partition_index < count
        ]
        if len(known) < len(requested.partitions):
            missing = [
                each for each in requested.partitions if not 0 <= each.partition_index < count
            ]
            unknown.append(
                _failed_topic(requested.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
        if known and topic is not None:
            topics.append(CommitTopic(topic.name, topic.topic_id, known))
    return topics, unknown


def _merge(unknown: list[Body], committed: list[Body], version: int) -> list[Body]:
    """Merge the results so that each topic occurs once, as clients expect."""
    merged: dict[str, list[Body]] = {}
    for topic in (*unknown, *committed):
        partitions = merged.setdefault(topic["name"], [])
        partitions += [
            {**each, "error_code": _error_for_version(each["error_code"], version)}
            for each in topic["partitions"]
        ]
    return [{"name": name, "partitions": partitions} for name, partitions in merged.items()]


def _error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _failed_topic(name: str, partitions: list[Any], code: ErrorCode) -> Body:
    results = [{"partition_index": each.partition_index, "error_code": code} for each in partitions]
    return {"name": name, "partitions": results}


def _all_failed(request: Any, code: ErrorCode) -> Body:
    return {
        "topics": [_failed_topic(topic.name, topic.partitions, code) for topic in request.topics]
    }
