"""OffsetForLeaderEpoch (key 23), versions 2–4: the end offset of a leader epoch in our log.

Consumers and followers use it to find out how far their logs agree with the leader's (KIP-101,
KIP-279, KIP-320). Both get the same answer.

With an authorizer, the client needs CLUSTER_ACTION, or DESCRIBE on each topic; without it, the
partitions are TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not. Without an authorizer,
that is the error for a replica ID from a connection that is not a broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.peers import report_stranger
from ottla.broker.ports import PartitionLookup, PeerRecognition
from ottla.core.security.permissions import ACT_AS_BROKER, DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.offset_for_leader_epoch import (
        EpochEndOffsetDict,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponseDict,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
        OffsetForLeaderTopicResultDict,
    )


class Ports(PartitionLookup, PeerRecognition, Protocol):
    """The parts of a broker that OffsetForLeaderEpoch uses."""


def handle(
    broker: Ports, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponseDict:
    if context.access is not None:
        is_broker = context.may(ACT_AS_BROKER, is_audited=False)
    else:
        is_broker = request.replica_id < 0 or context.is_peer
        if not is_broker:
            report_stranger(broker, context, f"to look up an epoch as replica {request.replica_id}")
            return {"topics": [_denied(topic) for topic in request.topics]}
    return {
        "topics": [
            _end_offsets(broker, topic)
            if is_broker or context.may(DESCRIBE_TOPIC, topic.topic)
            else _denied(topic)
            for topic in request.topics
        ]
    }


def _denied(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResultDict:
    code = DESCRIBE_TOPIC.error
    return {
        "topic": topic.topic,
        "partitions": [
            {"partition": each.partition, "error_code": code} for each in topic.partitions
        ],
    }


def _end_offsets(
    broker: PartitionLookup, topic: OffsetForLeaderTopic
) -> OffsetForLeaderTopicResultDict:
    return {
        "topic": topic.topic,
        "partitions": [_end_offset(broker, topic.topic, each) for each in topic.partitions],
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
