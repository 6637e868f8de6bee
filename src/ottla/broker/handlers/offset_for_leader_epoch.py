"""OffsetForLeaderEpoch (key 23), versions 2–4: the end offset of a leader epoch in our log.

Consumers and followers use it to find out how far their logs agree with the leader's (KIP-101,
KIP-279, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.ports import PartitionLookup

if TYPE_CHECKING:
    from ottla.wire.messages.offset_for_leader_epoch import (
        EpochEndOffsetDict,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponseDict,
        OffsetForLeaderPartition,
    )


def handle(
    broker: PartitionLookup, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponseDict:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _end_offset(broker, topic.topic, requested) for requested in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _end_offset(
    broker: PartitionLookup, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffsetDict:
    try:
        partition = broker.find_partition(TopicPartition(topic, requested.partition))
        partition.check_leader_epoch(requested.current_leader_epoch)
    except KafkaError as error:
        return {"partition": requested.partition, "error_code": error.code}
    epoch, end_offset = partition.end_of_epoch(requested.leader_epoch)
    return {"partition": requested.partition, "leader_epoch": epoch, "end_offset": end_offset}
