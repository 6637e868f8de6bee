"""Produce (key 0), versions 3–13 (advertised from 0, see api_versions.py).

- Each partition's records must be exactly one v2 batch. A bad one fails its partition only.
- acks 0: no answer; if a partition fails, the connection is closed, which is all that the client
  can be told. acks 1: appended. acks -1: appended to every in-sync replica and, with
  `log.flush.acks.all`, synced.
- Idempotent producers: a retry of one of the last five batches is answered as the first time.
- v8+: `record_errors` and `error_message`. v10+: current leader where it is not us (KIP-951).
  v13+: topic ids (KIP-516).

Deviations: records inside a batch are looked into only where the topic needs it (compaction,
`compression.type`); elsewhere the CRC and the header are what is checked. A retry older than the
last five batches is answered DUPLICATE_SEQUENCE_NUMBER rather than OUT_OF_ORDER."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.partition import Partition
from ottla.core.produce import PreparedBatch, needs_records, prepare, prepare_records
from ottla.storage.log import AppendResult
from ottla.wire.records.errors import BatchError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 0
ACKS_ALL = -1
_ALLOWED_ACKS = (0, 1, ACKS_ALL)
NO_OFFSET = -1
INLINE_RECORDS_BYTES = 4_096
"""Looking into a batch of this size is done before a thread could be woken."""


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    acks = request.acks
    by_id = context.api_version >= 13
    for topic in request.topic_data:
        found = _find_topic(broker, topic, by_id)
        for data in topic.partition_data:
            partition = broker.partitions.get(TopicPartition(found, data.index)) if found else None
            if partition is not None and _is_slow(partition.log.config, data.records):
                _keep_records(request)
                return _handle_slowly(broker, request, acks, by_id)
    return _answer(broker, request, acks, by_id, {})


def _is_slow(config: TopicConfig, records: ReadableBuffer | None) -> bool:
    return (
        needs_records(config) and records is not None and len(records) > INLINE_RECORDS_BYTES
    )


def _keep_records(request: Any) -> None:
    """The request's views end with the call: copy what a thread will look at."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytes(data.records)


async def _handle_slowly(broker: Broker, request: Any, acks: int, by_id: bool) -> Body | None:
    """Look into large batches in a thread, then append them here."""
    prepared: dict[int, PreparedBatch | KafkaError] = {}
    now_ms = broker.clock.time_ms()
    for topic in request.topic_data:
        found = _find_topic(broker, topic, by_id)
        for data in topic.partition_data:
            partition = broker.partitions.get(TopicPartition(found, data.index)) if found else None
            if partition is None or not _is_slow(partition.log.config, data.records):
                continue
            config, records = partition.log.config, data.records
            try:
                prepared[id(data)] = await broker.run_blocking(
                    lambda config=config, records=records: prepare_records(  # type: ignore[misc]
                        prepare(records, config, now_ms), config
                    )
                )
            except KafkaError as error:
                prepared[id(data)] = error
    response = _answer(broker, request, acks, by_id, prepared)
    if isinstance(response, asyncio.Future):
        return await response
    assert response is None or isinstance(response, dict)
    return response


def _answer(
    broker: Broker,
    request: Any,
    acks: int,
    by_id: bool,
    prepared: dict[int, PreparedBatch | KafkaError],
) -> Response:
    """Append everything, in order, now; the answer may have to wait for a sync."""
    now_ms = broker.clock.time_ms()
    topics = []
    failed = False
    unsynced: list[tuple[Partition, int, Body]] = []
    for topic in request.topic_data:
        name = _find_topic(broker, topic, by_id)
        partitions = []
        for data in topic.partition_data:
            try:
                partition = _find_partition(broker, name, data.index, acks, by_id)
                batch = prepared.get(id(data))
                result = _append(partition, data.records, batch, now_ms)
            except KafkaError as error:
                failed = True
                partitions.append(_failure(data.index, error))
                continue
            body = _success(partition, data.index, result, now_ms)
            partitions.append(body)
            if partition.waits_for_sync:
                broker.flusher.request(partition)
                if acks == ACKS_ALL:
                    unsynced.append((partition, result.last_offset + 1, body))
            elif partition.log.wants_flush:
                broker.flusher.request(partition)
        topics.append(
            {"topic_id": topic.topic_id, "partition_responses": partitions}
            if by_id
            else {"name": topic.name, "partition_responses": partitions}
        )
    if acks == 0:
        if failed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "an unacknowledged write failed")
        return None
    answer = {"responses": topics}
    if unsynced:
        return _when_synced(broker, answer, unsynced)
    return answer


def _find_topic(broker: Broker, topic: Any, by_id: bool) -> str | None:
    if not by_id:
        name: str = topic.name
        return name
    image = broker.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def _find_partition(
    broker: Broker, topic: str | None, index: int, acks: int, by_id: bool
) -> Partition:
    if acks not in _ALLOWED_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = broker.partitions.get(TopicPartition(topic, index))
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if acks == ACKS_ALL and partition.log.config.min_insync_replicas > 1:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition.key} has 1 in-sync replica, min.insync.replicas is "
            f"{partition.log.config.min_insync_replicas}",
        )
    return partition


def _append(
    partition: Partition,
    records: ReadableBuffer | None,
    prepared: PreparedBatch | KafkaError | None,
    now_ms: int,
) -> AppendResult:
    if isinstance(prepared, KafkaError):
        raise prepared
    if prepared is None:
        config = partition.log.config
        prepared = prepare(records, config, now_ms)
        if needs_records(config):
            prepared = prepare_records(prepared, config)
    return partition.append(prepared.batch, prepared.header, now_ms)


def _success(partition: Partition, index: int, result: AppendResult, now_ms: int) -> Body:
    log = partition.log
    return {
        "index": index,
        "base_offset": result.base_offset,
        "log_append_time_ms": now_ms if log.config.log_append_time else -1,
        "log_start_offset": log.log_start_offset,
    }


def _failure(index: int, error: KafkaError) -> Body:
    body: Body = {
        "index": index,
        "error_code": error.code,
        "base_offset": NO_OFFSET,
        "error_message": error.message,
    }
    if isinstance(error, BatchError) and error.record_errors:
        body["record_errors"] = [
            {"batch_index": position, "batch_index_error_message": why}
            for position, why in error.record_errors
        ]
    return body


def _when_synced(
    broker: Broker, answer: Body, unsynced: list[tuple[Partition, int, Body]]
) -> asyncio.Future[Body | None]:
    """The answer, once every partition in it is on disk or has failed to get there."""
    future: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
    remaining = len(unsynced)

    def one_done(synced: asyncio.Future[None], body: Body) -> None:
        nonlocal remaining
        remaining -= 1
        error = synced.exception()
        if isinstance(error, KafkaError):
            body.update(_failure(body["index"], error))
        if not remaining and not future.done():
            future.set_result(answer)

    for partition, offset, body in unsynced:
        synced = broker.flusher.wait_for(partition, offset)
        synced.add_done_callback(lambda done, body=body: one_done(done, body))  # type: ignore[misc]
    return future


