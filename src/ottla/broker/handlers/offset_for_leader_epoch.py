"""OffsetForLeaderEpoch (key 23), versions 2–4: the end offset of a leader epoch in our log.

Consumers and followers use it to find out how far their logs agree with the leader's (KIP-101,
KIP-279, KIP-320). Both get the same answer. A replica ID from a connection that is not a broker's
is refused with TOPIC_AUTHORIZATION_FAILED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.peers import report_stranger
from ottla.broker.ports import PartitionLookup, PeerRecognition

if TYPE_CHECKING:
    from ottla.wire.messages.offset_for_leader_epoch import (
        EpochEndOffsetDict,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponseDict,
        OffsetForLeaderPartition,
    )


class Ports(PartitionLookup, PeerRecognition, Protocol):
    """The parts of a broker that OffsetForLeaderEpoch uses."""


def handle(
    broker: Ports, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponseDict:
    if request.replica_id >= 0 and not context.is_peer:
        report_stranger(broker, context, f"to look up an epoch as replica {request.replica_id}")
        return _refused(request)
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


def _refused(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponseDict:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition": each.partition, "error_code": code} for each in topic.partitions
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
