"""DeleteRecords (key 21), versions 0–2: deletion of all records before an offset.

-1 means the high watermark. The new log start offset is checkpointed before the response, so a
crash does not bring the records back; the next retention check deletes their segments. A topic that
is only compacted is refused (POLICY_VIOLATION), because deleting its records would lose keys.

With an authorizer, the client needs DELETE on each topic; without it, the partitions are
TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.cluster import INTERNAL_TOPICS
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.ports import PartitionLookup
from ottla.core.security.permissions import DELETE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsPartitionResultDict,
        DeleteRecordsRequest,
        DeleteRecordsResponseDict,
    )

ALL = -1
UNKNOWN = -1


class Logs(Protocol):
    async def write_checkpoints(self) -> None: ...


class Ports(PartitionLookup, Protocol):
    """The parts of a broker that DeleteRecords uses."""

    @property
    def logs(self) -> Logs: ...


async def handle(
    broker: Ports, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponseDict:
    response: DeleteRecordsResponseDict = {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _delete(broker, context, topic.name, requested)
                    for requested in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
    await broker.logs.write_checkpoints()
    return response


def _delete(
    broker: Ports, context: RequestContext, topic: str, requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResultDict:
    index = requested.partition_index
    try:
        context.check(DELETE_TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic} is an internal topic; clients cannot modify it",
            )
        partition = broker.find_partition(TopicPartition(topic, index))
        log = partition.log
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{topic} is compacted; add delete to its cleanup.policy to delete records",
            )
        offset = partition.high_watermark if requested.offset == ALL else requested.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    except KafkaError as error:
        return {"partition_index": index, "low_watermark": UNKNOWN, "error_code": error.code}
    log.advance_start_offset(offset)
    partition.wake_delayed_fetches()
    return {"partition_index": index, "low_watermark": log.log_start_offset}
