"""DescribeProducers (key 61), version 0: the producers that partitions have state for.

`current_txn_start_offset` is the first offset of the producer's open transaction, or -1. The
coordinator epoch is that of its last transaction marker, or -1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.ports import PartitionLookup

if TYPE_CHECKING:
    from ottla.wire.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponseDict,
        PartitionResponseDict,
    )


def handle(
    broker: PartitionLookup, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponseDict:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(broker, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _describe(broker: PartitionLookup, key: TopicPartition) -> PartitionResponseDict:
    try:
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
