"""TxnOffsetCommit (key 28), versions 0–5: the commit of a group's offsets in a transaction.

The offsets take effect when the transaction is committed. Until then OffsetFetch with
`require_stable` returns UNSTABLE_OFFSET_COMMIT for them.

- The group's partition of the offsets topic must be part of the transaction
  (transaction_verification.py); from version 5 on it is added to it (KIP-890).
- From version 3 on the request has the member ID, instance ID and generation, so that a member of
  an old generation cannot commit (KIP-447).
- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION; the others are committed
  all the same.
- With an authorizer, the client needs WRITE on the transactional ID, or all partitions are
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and READ on the group, or they are
  GROUP_AUTHORIZATION_FAILED. It also needs READ on each topic, or those of that topic are
  TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not.
- COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before version 2, whose clients would
  fail on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID, TopicPartition
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import CLIENT_ERRORS, ConvertedToken, DelayedResponse
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.ports import GroupSubmitter, Metadata
from ottla.broker.transaction_verification import (
    TransactionVerification,
    VerificationPorts,
    offset_commit_operation,
)
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.group.commit_request import RequestedTopic, merge_results, split_known
from ottla.core.group.events import CommitRequested
from ottla.core.group.offsets import commit_error
from ottla.core.security.permissions import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import (
        OffsetCommitResponseDict,
        OffsetCommitResponseTopicDict,
    )
    from ottla.wire.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponseDict,
        TxnOffsetCommitResponseTopicDict,
    )

_FIRST_WITH_LOADING = 2
_NO_RETENTION = -1


class GroupCoordinator(GroupSubmitter, Protocol):
    @property
    def topic(self) -> InternalTopic: ...


class Ports(VerificationPorts, Metadata, Protocol):
    """The parts of a broker that TxnOffsetCommit uses."""

    @property
    def group_coordinator(self) -> GroupCoordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: TxnOffsetCommitRequest
) -> Response[TxnOffsetCommitResponseDict]:
    for permission, name in (
        (WRITE_TRANSACTIONAL_ID, request.transactional_id),
        (READ_GROUP, request.group_id),
    ):
        if not context.may(permission, name):
            return _all_failed(request, permission.error)
    if not request.transactional_id or not request.group_id:
        return _all_failed(request, ErrorCode.INVALID_REQUEST)
    commit = _Commit(broker, context, request)
    if not commit.event.topics:
        return commit.failed(ErrorCode.NONE)
    index = broker.group_coordinator.topic.partition_for(request.group_id)
    if index is None:
        return commit.failed(ErrorCode.NOT_COORDINATOR)
    verification = TransactionVerification(
        broker,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [TopicPartition(OFFSETS_TOPIC, index)],
        offset_commit_operation(context.api_version),
    )
    if verification.verify_now():
        return commit.submit(verification)
    return _verify_and_commit(commit, verification)


async def _verify_and_commit(
    commit: _Commit, verification: TransactionVerification
) -> TxnOffsetCommitResponseDict | None:
    await verification.verify()
    response = commit.submit(verification)
    return await response if isinstance(response, asyncio.Future) else response


class _Commit:
    """The commit of those topics of a request that exist and that the client may read."""

    def __init__(
        self, broker: Ports, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> None:
        self._broker = broker
        self._version = context.api_version
        known = broker.image.topics
        topics, self._refused = split_known(
            (
                RequestedTopic(
                    each.name,
                    ZERO_UUID,
                    known.get(each.name),
                    each.partitions,
                    is_denied=not context.may(READ_TOPIC, each.name),
                )
                for each in request.topics
            ),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        self.event = CommitRequested(
            None,
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            retention_ms=_NO_RETENTION,
            topics=topics,
            producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        )

    def submit(
        self, verification: TransactionVerification
    ) -> TxnOffsetCommitResponseDict | asyncio.Future[TxnOffsetCommitResponseDict | None]:
        """Commit the offsets, unless the verification has failed."""
        if verification.rejected:
            (code,) = verification.rejected.values()
            return self.failed(verification.offset_commit_error(code).code)
        try:
            for key in verification.keys:
                verification.check_guard(key)
        except KafkaError as error:
            return self.failed(CLIENT_ERRORS.get(error.code, error.code))
        delayed = DelayedResponse(self.failed)
        self.event.token = ConvertedToken(delayed, self._finish)
        self._broker.group_coordinator.submit(self.event)
        return delayed.response()

    def failed(self, code: ErrorCode) -> TxnOffsetCommitResponseDict:
        """Return the response with an error for all partitions that could have been committed."""
        return self._finish(commit_error(self.event, code))

    def _finish(self, body: OffsetCommitResponseDict) -> TxnOffsetCommitResponseDict:
        return {"topics": _results(merge_results(self._refused, body["topics"]), self._version)}


def _results(
    topics: Iterable[OffsetCommitResponseTopicDict], version: int
) -> list[TxnOffsetCommitResponseTopicDict]:
    return [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": each["partition_index"],
                    "error_code": _error_for_version(each["error_code"], version),
                }
                for each in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _error_for_version(code: int, version: int) -> int:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _all_failed(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponseDict:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": code}
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
