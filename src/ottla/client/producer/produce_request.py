"""Produce requests from batches, and the outcome of each batch from the responses.

From version 13 on, topics are identified by ID. If the ID of a topic is unknown, an older version
is used, which identifies topics by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import ZERO_UUID
from ottla.client.errors import ClientError, error_for
from ottla.client.metadata import ClusterMetadata
from ottla.client.producer.batch import ProducerBatch, error_of_valid_record
from ottla.net.connection import Connection
from ottla.wire import rpc
from ottla.wire.api import Api
from ottla.wire.records.compression import ZSTD
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.produce import (
        PartitionProduceDataDict,
        ProduceResponse,
        TopicProduceDataDict,
    )

FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_IMPLICIT_TRANSACTIONS = 12
FIRST_WITH_ZSTD = 7


class PartitionResponse(NamedTuple):
    error_code: int
    message: str | None = None
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Mapping[int, str | None] = {}
    leader: int = -1
    leader_epoch: int = -1


def version_for(
    connection: Connection,
    batches: Iterable[ProducerBatch],
    metadata: ClusterMetadata,
    codec: int,
    *,
    old_transaction: bool,
) -> int:
    maximum: int | None = None
    for batch in batches:
        topic = metadata.topics.get(batch.topic)
        if topic is None or topic.topic_id == ZERO_UUID:
            maximum = FIRST_WITH_TOPIC_IDS - 1
    if old_transaction:
        maximum = FIRST_WITH_IMPLICIT_TRANSACTIONS - 1
    minimum = FIRST_WITH_ZSTD if codec == ZSTD else 0
    return connection.version_of(Api.PRODUCE, minimum, maximum)


def request_for(
    batches: Iterable[ProducerBatch],
    metadata: ClusterMetadata,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> Request[ProduceResponse]:
    """Return a Produce request with sealed batches."""
    by_topic: dict[str, list[PartitionProduceDataDict]] = {}
    for batch in batches:
        entry: PartitionProduceDataDict = {"index": batch.partition, "records": batch.sealed}
        by_topic.setdefault(batch.topic, []).append(entry)
    topics: list[TopicProduceDataDict] = []
    for name, partitions in by_topic.items():
        known = metadata.topics.get(name)
        topic_id = ZERO_UUID if known is None else known.topic_id
        topics.append({"name": name, "topic_id": topic_id, "partition_data": partitions})
    return rpc.produce(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )


def read_response(
    response: ProduceResponse, version: int, metadata: ClusterMetadata
) -> dict[tuple[str, int], PartitionResponse]:
    found: dict[tuple[str, int], PartitionResponse] = {}
    for topic in response.responses:
        if version >= FIRST_WITH_TOPIC_IDS:
            name = metadata.names_by_id.get(topic.topic_id)
            if name is None:
                continue
        else:
            name = topic.name
        for entry in topic.partition_responses:
            if not entry.error_code:
                found[name, entry.index] = PartitionResponse(
                    0, None, entry.base_offset, entry.log_append_time_ms, entry.log_start_offset
                )
                continue
            found[name, entry.index] = PartitionResponse(
                entry.error_code,
                entry.error_message,
                entry.base_offset,
                entry.log_append_time_ms,
                entry.log_start_offset,
                {each.batch_index: each.batch_index_error_message for each in entry.record_errors},
                entry.current_leader.leader_id,
                entry.current_leader.leader_epoch,
            )
    return found


def errors_from(
    response: PartitionResponse, batch: ProducerBatch
) -> tuple[ClientError, dict[int, BaseException]]:
    """Return the error of a batch, and the errors of individual records that differ from it."""
    where = {"topic": batch.topic, "partition": batch.partition}
    error = error_for(response.error_code, response.message, **where)  # type: ignore[arg-type]
    if not response.record_errors:
        return error, {}
    singly: dict[int, BaseException] = {
        index: error_for(response.error_code, message or response.message, **where)  # type: ignore[arg-type]
        for index, message in response.record_errors.items()
        if 0 <= index < batch.count
    }
    return error_of_valid_record(error), singly


MISSING_RESPONSE = PartitionResponse(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain the partition"
)
