"""Produce (key 0), versions 3–13 (advertised from 0, see api_versions.py).

- The records of each partition must be exactly one v2 batch. A bad batch fails its partition only.
- acks=0: no response. If a partition fails, the broker closes the connection, because it has no
  other way to report the error. acks=1: the batch is appended. acks=-1: it is appended to every
  in-sync replica and, with `log.flush.acks.all`, synced. A leader without a lease treats all of
  these as -1, refuses writes while it is the only in-sync one of several replicas, and refuses a
  producer only after it has proved that it leads (delayed_produce.py).
- Transactional producers: a batch is appended only if its partition is part of the transaction.
  From v12 on the partition is added to it (transaction_verification.py). A transactional batch
  without a transactional ID is TRANSACTIONAL_ID_AUTHORIZATION_FAILED; batches of several producers
  are INVALID_PRODUCER_ID_MAPPING.
- Idempotent producers: a retry of one of the last five batches gets the same response again.
- zstd needs version 7 (KIP-110).
- v8+: `record_errors` and `error_message`. v13+: topic IDs (KIP-516).

Deviations: records inside a batch are decoded only if the topic requires it (compaction,
`compression.type`, `message.timestamp.before.max.ms`); otherwise the broker checks the header and
the CRC. A retry older than the last five batches gets DUPLICATE_SEQUENCE_NUMBER rather than
OUT_OF_ORDER_SEQUENCE_NUMBER. The current leader of v10+ (KIP-951) is not returned."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from ottla.base.cluster import INTERNAL_TOPICS
from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_produce import PRODUCER_STATE_ERRORS, DelayedProduce, error_response
from ottla.broker.partition import Partition
from ottla.broker.ports import Flushing, LeadershipProofs, Metadata, PartitionLookup, Threads
from ottla.broker.transaction_verification import (
    TransactionVerification,
    VerificationPorts,
    produce_operation,
)
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.produce import PreparedBatch, prepare, prepare_records
from ottla.storage.log import AppendResult
from ottla.wire.records.batch import HEADER_SIZE, read_header
from ottla.wire.records.compression import ZSTD

API_KEY = 0
ACKS_ALL = -1
_ALLOWED_ACKS = (0, 1, ACKS_ALL)
_NOTHING_PREPARED: Mapping[int, PreparedBatch | KafkaError] = {}
_FIRST_WITH_ZSTD = 7
_FIRST_OF_TRANSACTION_V2 = 12
INLINE_RECORDS_BYTES = 4_096
"""Batches up to this size are decoded on the event loop; waking a thread would take longer."""


class Ports(
    VerificationPorts,
    Flushing,
    LeadershipProofs,
    Metadata,
    PartitionLookup,
    Threads,
    Protocol,
):
    """The parts of a broker that Produce uses."""

    @property
    def topics_needing_records(self) -> Collection[str]:
        """Topics whose batches are decoded and checked before they are appended."""

    @property
    def can_acknowledge_alone(self) -> bool:
        """Whether acks=1 needs no follower."""


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
    if context.api_version >= 13:
        _resolve_topic_names(broker, request)
    rejected = _NOTHING_PREPARED
    if context.api_version < _FIRST_WITH_ZSTD:
        rejected = _reject_zstd(request)
    if request.transactional_id is not None:
        return _handle_transactional(broker, context, request, rejected)
    return _handle_verified(broker, request, rejected)


def _handle_verified(
    broker: Ports,
    request: Any,
    rejected: Mapping[int, PreparedBatch | KafkaError],
    verification: TransactionVerification | None = None,
) -> Response:
    if broker.topics_needing_records and _has_large_batches(broker, request):
        _copy_records(request)
        return _handle_in_thread(broker, request, rejected, verification)
    return _append_all(broker, request, rejected, verification)


# ----------------------------------------------------------------------------------- transactions


def _handle_transactional(
    broker: Ports,
    context: RequestContext,
    request: Any,
    rejected: Mapping[int, PreparedBatch | KafkaError],
) -> Response:
    batches = _transactional_batches(request)
    producers = {producer for _, _, producer in batches}
    if len(producers) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )
        return _handle_verified(broker, request, _reject_all(request, error))
    if not batches:
        return _handle_verified(broker, request, rejected)
    keys = [key for key, _, _ in batches if key.topic not in INTERNAL_TOPICS]
    verification = TransactionVerification(
        broker,
        request.transactional_id,
        producers.pop(),
        keys,
        produce_operation(context.api_version),
    )
    if context.api_version >= _FIRST_OF_TRANSACTION_V2:
        rejected = {**_reject_out_of_order(broker, batches), **rejected}
    if verification.verify_now():
        return _handle_verified(
            broker, request, _reject_unverified(batches, rejected, verification), verification
        )
    _copy_records(request)
    return _verify_and_handle(broker, request, rejected, verification)


async def _verify_and_handle(
    broker: Ports,
    request: Any,
    rejected: Mapping[int, PreparedBatch | KafkaError],
    verification: TransactionVerification,
) -> Body | None:
    """Verify the partitions with the coordinator first. The connection waits meanwhile, so that
    batches keep their order."""
    await verification.verify()
    rejected = _reject_unverified(_transactional_batches(request), rejected, verification)
    response = _handle_verified(broker, request, rejected, verification)
    if response is None or isinstance(response, dict):
        return response
    return await response


def _transactional_batches(request: Any) -> list[tuple[TopicPartition, Any, ProducerIdAndEpoch]]:
    """Return (partition, data, producer) of every transactional batch that has a whole header."""
    found = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if topic.name is None or records is None or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            if header.is_transactional:
                producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                found.append((TopicPartition(topic.name, data.index), data, producer))
    return found


def _reject_out_of_order(
    broker: Ports, batches: list[tuple[TopicPartition, Any, ProducerIdAndEpoch]]
) -> dict[int, KafkaError]:
    """Refuse the first batch of a producer in a partition unless it has sequence 0 (KIP-890).

    In transaction version 2 every transaction has an epoch of its own, so the first batch must have
    sequence 0. Any other batch has overtaken an earlier one on its way."""
    rejected = {}
    for key, data, producer in batches:
        partition = broker.partitions.get(key)
        if partition is None or producer.id in partition.log.producers.producers:
            continue
        sequence = read_header(data.records).base_sequence
        if sequence > 0:
            rejected[id(data)] = KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.id} has no state on {key}, but its first sequence number is "
                f"{sequence}",
            )
    return rejected


def _reject_unverified(
    batches: list[tuple[TopicPartition, Any, ProducerIdAndEpoch]],
    rejected: Mapping[int, PreparedBatch | KafkaError],
    verification: TransactionVerification,
) -> Mapping[int, PreparedBatch | KafkaError]:
    unverified = verification.rejected
    if not unverified:
        return rejected
    errors = {
        id(data): verification.produce_error(unverified[key])
        for key, data, _ in batches
        if key in unverified
    }
    return {**errors, **rejected}


def _reject_all(request: Any, error: KafkaError) -> dict[int, KafkaError]:
    return {id(data): error for topic in request.topic_data for data in topic.partition_data}


# ----------------------------------------------------------------------------------------- batches


def _reject_zstd(request: Any) -> Mapping[int, KafkaError]:
    """Refuse zstd before version 7: clients of these versions do not support it (KIP-110)."""
    error = KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires Produce version 7 or newer"
    )
    return {
        id(data): error
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
        and len(data.records) >= HEADER_SIZE
        and read_header(data.records).compression == ZSTD
    }


def _resolve_topic_names(broker: Ports, request: Any) -> None:
    """Set the name of each topic that was requested by ID, or None if the ID is unknown."""
    by_id = broker.image.topics_by_id
    for topic in request.topic_data:
        image = by_id.get(topic.topic_id)
        topic.name = None if image is None else image.name


def _has_large_batches(broker: Ports, request: Any) -> bool:
    """Return whether decoding the batches, where a topic requires it, would block the loop."""
    return any(
        data.records is not None and len(data.records) > INLINE_RECORDS_BYTES
        for topic in request.topic_data
        if topic.name in broker.topics_needing_records
        for data in topic.partition_data
    )


def _copy_records(request: Any) -> None:
    """Copy the records: a thread will read them after the views of the request have expired."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytes(data.records)


async def _handle_in_thread(
    broker: Ports,
    request: Any,
    rejected: Mapping[int, PreparedBatch | KafkaError],
    verification: TransactionVerification | None,
) -> Body | None:
    """Decode batches in a thread, then append them on the event loop."""
    now_ms = broker.clock.time_ms()
    work: list[tuple[int, ReadableBuffer | None, TopicConfig]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = broker.partitions.get((topic.name, data.index))
            if partition is not None and partition.needs_records:
                work.append((id(data), data.records, partition.log.config))

    def prepare_all() -> dict[int, PreparedBatch | KafkaError]:
        prepared: dict[int, PreparedBatch | KafkaError] = {}
        for key, records, config in work:
            try:
                prepared[key] = prepare_records(prepare(records, config, now_ms), config, now_ms)
            except KafkaError as error:
                prepared[key] = error
        return prepared

    prepared = await broker.run_blocking(prepare_all)
    response = _append_all(broker, request, {**prepared, **rejected}, verification)
    if isinstance(response, asyncio.Future):
        return await response
    assert response is None or isinstance(response, dict)
    return response


def _append_all(
    broker: Ports,
    request: Any,
    prepared: Mapping[int, PreparedBatch | KafkaError],
    verification: TransactionVerification | None,
) -> Response:
    """Append everything now, in order. The response may have to wait for followers or a sync."""
    now_ms = broker.clock.time_ms()
    acks = request.acks
    topics = []
    failed = False
    delayed = DelayedProduce()
    for topic in request.topic_data:
        name = topic.name
        partitions = []
        for data in topic.partition_data:
            index = data.index
            try:
                partition = broker.partitions.get((name, index))
                if (
                    partition is None
                    or acks != 1
                    or not partition.is_leader
                    or name in INTERNAL_TOPICS
                ):
                    partition = _writable_partition(broker, name, index, acks)
                if partition.leadership is not None:
                    broker.check_can_prove_leadership(partition)
                result = _append(partition, data, prepared, now_ms, verification)
            except KafkaError as error:
                failed = True
                partitions.append(body := error_response(index, error))
                if partition is not None and error.code in PRODUCER_STATE_ERRORS:
                    proof = broker.leadership_proof(partition)
                    if proof is not None:
                        delayed.rejected.append((proof, body))
                continue
            log = partition.log
            body = {
                "index": index,
                "base_offset": result.base_offset,
                "log_append_time_ms": result.max_timestamp if log.config.log_append_time else -1,
                "log_start_offset": log.log_start_offset,
            }
            partitions.append(body)
            if partition.waits_for_sync or log.wants_flush:
                broker.flusher.request(partition)
            if not partition.commits_on_append and (
                acks == ACKS_ALL or not broker.can_acknowledge_alone
            ):
                delayed.appended.append((partition, result.last_offset + 1, body))
        topics.append({"name": name, "topic_id": topic.topic_id, "partition_responses": partitions})
    if acks == 0:
        if failed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "a produce request with acks=0 failed")
        return None
    response = {"responses": topics}
    return delayed.response_future(response, request.timeout_ms) if delayed else response


def _writable_partition(broker: Ports, topic: str | None, index: int, acks: int) -> Partition:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = broker.find_partition((topic, index))
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is an internal topic; clients cannot modify it",
        )
    if acks not in _ALLOWED_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    min_insync = partition.log.config.min_insync_replicas
    if acks == ACKS_ALL and min_insync > 1:
        in_sync = partition.in_sync_count
        if in_sync < min_insync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.key} has {in_sync} in-sync replicas, min.insync.replicas is "
                f"{min_insync}",
            )
    return partition


def _append(
    partition: Partition,
    data: Any,
    prepared: Mapping[int, PreparedBatch | KafkaError],
    now_ms: int,
    verification: TransactionVerification | None,
) -> AppendResult:
    batch = prepared.get(id(data)) if prepared else None
    if batch is None:
        config = partition.log.config
        batch = prepare(data.records, config, now_ms)
        if partition.needs_records:
            batch = prepare_records(batch, config, now_ms)
    elif isinstance(batch, KafkaError):
        raise batch
    if batch.header.is_transactional:
        if verification is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch requires a transactional ID",
            )
        verification.check_guard(partition.key)
    return partition.append(batch.batch, batch.header, now_ms)
