"""AddPartitionsToTxn (key 24), versions 0–5: partitions that a transaction is about to write to.

- Clients send versions 0–3, for one transaction. From version 4 on brokers ask each other, for
  several transactions at once; a client that is not a broker gets CLUSTER_AUTHORIZATION_FAILED.
  `verify_only` checks whether the partitions are part of the transaction, and changes nothing:
  TRANSACTION_ABORTABLE if not.
- A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION. A partition of an internal topic is
  TOPIC_AUTHORIZATION_FAILED for clients. In both cases none is added, and the other partitions are
  OPERATION_NOT_ATTEMPTED.
- While the producer's previous transaction is being completed, the response waits for up to
  `add.partitions.to.txn.retry.backoff.ms`; then it is CONCURRENT_TRANSACTIONS.
- PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2.
- With an authorizer, a client needs WRITE on the transactional ID, or else all partitions are
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and WRITE on each topic, or else its partitions are
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not, and the others OPERATION_NOT_ATTEMPTED. From
  version 4 on it needs CLUSTER_ACTION on the cluster and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.base.cluster import INTERNAL_TOPICS
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponses
from ottla.broker.peers import report_stranger
from ottla.broker.ports import Metadata, PeerRecognition, TransactionSubmitter
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.security.permissions import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.core.txn.events import AddPartitionsRequested, PartitionCodes, VerifyRequested

if TYPE_CHECKING:
    from ottla.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResultDict,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponseDict,
        AddPartitionsToTxnResultDict,
        AddPartitionsToTxnTopic,
    )

_FIRST_BATCHED = 4
_FIRST_WITH_FENCED = 2


class Coordinator(TransactionSubmitter, Protocol):
    def add_partitions(self, event: AddPartitionsRequested) -> None: ...


class Ports(Metadata, PeerRecognition, Protocol):
    """The parts of a broker that AddPartitionsToTxn uses."""

    @property
    def transaction_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Response[AddPartitionsToTxnResponseDict]:
    version = context.api_version
    if version >= _FIRST_BATCHED:
        if not context.is_peer:
            report_stranger(broker, context, "to add partitions to transactions")
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        delayed = DelayedResponses(_all_results)
        for transaction in request.transactions:
            producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
            _TransactionRequest(
                broker, context, transaction.transactional_id, producer, transaction.topics
            ).submit(delayed, verify_only=transaction.verify_only)
        return delayed.response()
    delayed = DelayedResponses(_only_result)
    producer = ProducerIdAndEpoch(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    _TransactionRequest(
        broker,
        context,
        request.v3_and_below_transactional_id,
        producer,
        request.v3_and_below_topics,
    ).submit(delayed, verify_only=False)
    return delayed.response()


def _all_results(results: list[AddPartitionsToTxnResultDict]) -> AddPartitionsToTxnResponseDict:
    return {"results_by_transaction": results}


def _only_result(results: list[AddPartitionsToTxnResultDict]) -> AddPartitionsToTxnResponseDict:
    return {"results_by_topic_v3_and_below": results[0]["topic_results"]}


class _TransactionRequest:
    """The request for one transaction."""

    def __init__(
        self,
        broker: Ports,
        context: RequestContext,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Sequence[AddPartitionsToTxnTopic],
    ) -> None:
        self._broker = broker
        self._context = context
        self._version = context.api_version
        self._id = transactional_id
        self._producer = producer
        self._keys = [
            TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
        ]

    def submit(
        self,
        delayed: DelayedResponses[AddPartitionsToTxnResultDict, AddPartitionsToTxnResponseDict],
        *,
        verify_only: bool,
    ) -> None:
        if self._is_from_client and not self._context.may(WRITE_TRANSACTIONAL_ID, self._id):
            delayed.add_body(self._all(WRITE_TRANSACTIONAL_ID.error))
            return
        rejected = self._rejected()
        if rejected:
            attempted = dict.fromkeys(self._keys, ErrorCode.OPERATION_NOT_ATTEMPTED)
            delayed.add_body(self._result({**attempted, **rejected}))
        elif not self._id:
            delayed.add_body(self._all(ErrorCode.INVALID_REQUEST))
        else:
            token = ConvertedToken(delayed.add_pending(self._all), self._finish)
            self._submit(token, verify_only)

    def _submit(self, token: Token[PartitionCodes], verify_only: bool) -> None:
        coordinator, keys = self._broker.transaction_coordinator, frozenset(self._keys)
        if verify_only:
            coordinator.submit(VerifyRequested(token, self._id, self._producer, keys))
            return
        version = 0 if self._is_from_client else 2
        coordinator.add_partitions(
            AddPartitionsRequested(token, self._id, self._producer, keys, client_version=version)
        )

    @property
    def _is_from_client(self) -> bool:
        return self._version < _FIRST_BATCHED

    def _rejected(self) -> dict[TopicPartition, ErrorCode]:
        rejected: dict[TopicPartition, ErrorCode] = {}
        denied = self._denied_topics() if self._is_from_client else ()
        for key in self._keys:
            topic = self._broker.image.topics.get(key.topic)
            if key.topic in denied:
                rejected[key] = WRITE_TOPIC.error
            elif topic is None or not 0 <= key.partition < len(topic.partitions):
                rejected[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return rejected

    def _denied_topics(self) -> set[str]:
        """Return the topics that the client may not write to: internal ones, and those without
        permission."""
        names = dict.fromkeys(key.topic for key in self._keys)
        return {
            name
            for name in names
            if name in INTERNAL_TOPICS or not self._context.may(WRITE_TOPIC, name)
        }

    def _finish(self, body: PartitionCodes) -> AddPartitionsToTxnResultDict:
        if "errors" in body:
            errors = body["errors"]
            return self._result({key: errors.get(key, ErrorCode.NONE) for key in self._keys})
        return self._all(body["error_code"])

    def _all(self, code: ErrorCode) -> AddPartitionsToTxnResultDict:
        if code == ErrorCode.PRODUCER_FENCED and self._version < _FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return self._result(dict.fromkeys(self._keys, code))

    def _result(self, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResultDict:
        topics: dict[str, list[AddPartitionsToTxnPartitionResultDict]] = {}
        for key, code in codes.items():
            result: AddPartitionsToTxnPartitionResultDict = {
                "partition_index": key.partition,
                "partition_error_code": code,
            }
            topics.setdefault(key.topic, []).append(result)
        return {
            "transactional_id": self._id,
            "topic_results": [
                {"name": name, "results_by_partition": results} for name, results in topics.items()
            ],
        }
