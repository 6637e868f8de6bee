"""DescribeProducers (key 61), version 0: the producers that partitions have state for.

`current_txn_start_offset` is the first offset of the producer's open transaction, or -1. The
coordinator epoch is that of its last transaction marker, or -1.

- An invalid topic name is INVALID_TOPIC_EXCEPTION.
- With an authorizer, the client needs READ on each topic, or else its partitions are
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.ports import PartitionLookup
from ottla.core.controller.topic_names import topic_name_error
from ottla.core.security.permissions import READ_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponseDict,
        PartitionResponseDict,
        TopicRequest,
        TopicResponseDict,
    )


def handle(
    broker: PartitionLookup, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponseDict:
    return {"topics": [_described_topic(broker, context, topic) for topic in request.topics]}


def _described_topic(
    broker: PartitionLookup, context: RequestContext, topic: TopicRequest
) -> TopicResponseDict:
    error = _topic_error(context, topic.name)
    return {
        "name": topic.name,
        "partitions": [
            _described(broker, TopicPartition(topic.name, index), error)
            for index in topic.partition_indexes
        ],
    }


def _topic_error(context: RequestContext, name: str) -> KafkaError | None:
    """Return the error of all partitions of a topic, or None."""
    reason = topic_name_error(name)
    if reason is not None:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    return None if context.may(READ_TOPIC, name) else KafkaError(READ_TOPIC.error)


def _described(
    broker: PartitionLookup, key: TopicPartition, topic_error: KafkaError | None
) -> PartitionResponseDict:
    try:
        if topic_error is not None:
            raise topic_error
        partition = broker.find_partition(key)
    except KafkaError as error:
        return {
            "partition_index": key.partition,
            "error_code": error.code,
            "error_message": error.message,
        }
    return {
        "partition_index": key.partition,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.txn_first_offset,
            }
            for entry in partition.log.producers.producers.values()
        ],
    }
