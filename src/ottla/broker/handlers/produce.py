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
- The client needs WRITE on every topic and, for transactional batches, on the transactional ID. If
  it does not have the latter, nothing of the request is appended. Both are checked before a topic's
  existence.
- v8+: `record_errors` and `error_message`. v13+: topic IDs (KIP-516).

Deviations: records inside a batch are decoded only if the topic requires it (compaction,
`compression.type`, `message.timestamp.before.max.ms`); otherwise the broker checks the header and
the CRC. A retry older than the last five batches gets DUPLICATE_SEQUENCE_NUMBER rather than
OUT_OF_ORDER_SEQUENCE_NUMBER. The current leader of v10+ (KIP-951) is not returned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.base.cluster import INTERNAL_TOPICS
from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_produce import (
    PRODUCER_STATE_ERRORS,
    Appended,
    Rejected,
    delayed_response,
    error_response,
)
from ottla.broker.partition import Partition
from ottla.broker.ports import Flushing, LeadershipProofs, Metadata, PartitionLookup, Threads
from ottla.broker.transaction_verification import (
    TransactionVerification,
    VerificationPorts,
    produce_operation,
)
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.produce import PreparedBatch, prepare, prepare_records
from ottla.core.security.permissions import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.storage.log import AppendResult
from ottla.wire.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla.wire.records.compression import ZSTD

if TYPE_CHECKING:
    from ottla.wire.messages.produce import (
        PartitionProduceData,
        PartitionProduceResponseDict,
        ProduceRequest,
        ProduceResponseDict,
        TopicProduceResponseDict,
    )

ACKS_ALL = -1
_ALLOWED_ACKS = (0, 1, ACKS_ALL)
Prepared: TypeAlias = Mapping[int, PreparedBatch | KafkaError]
"""Batches that were checked before the append, or why they were refused, by the position of their
partition in the request: 0 for the first partition of the first topic, and so on."""
_NOTHING_PREPARED: Prepared = {}
_FIRST_WITH_ZSTD = 7
_FIRST_OF_TRANSACTION_V2 = 12
_FIRST_BY_ID = 13
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


def handle(
    broker: Ports, context: RequestContext, request: ProduceRequest
) -> Response[ProduceResponseDict]:
    by_id = context.api_version >= _FIRST_BY_ID
    if by_id:
        _resolve_topic_names(broker, request)
    rejected = _NOTHING_PREPARED
    if context.api_version < _FIRST_WITH_ZSTD:
        rejected = _reject_zstd(request)
    if context.access is not None:
        denied = _denied(context, request)
        if denied:
            rejected = {**rejected, **denied}
        if _is_denied_everywhere(request, denied):
            return _handle_verified(broker, request, by_id, rejected)
    if request.transactional_id is not None:
        return _handle_transactional(broker, context, request, request.transactional_id, rejected)
    return _handle_verified(broker, request, by_id, rejected)


# ------------------------------------------------------------------------------------ permissions


class Denied(KafkaError):
    """A missing permission, which is reported before anything else about a partition."""


def _denied(context: RequestContext, request: ProduceRequest) -> dict[int, KafkaError]:
    """Return the positions of the partitions to which the client may not write."""
    if any(_is_transactional(data) for _, _, data in _positions(request)):
        transactional_id = request.transactional_id
        if transactional_id is None or not context.may(WRITE_TRANSACTIONAL_ID, transactional_id):
            return _reject_all(request, Denied(WRITE_TRANSACTIONAL_ID.error))
    names = {topic.name for topic in request.topic_data if topic.name}
    denied = {each for each in names if not context.may(WRITE_TOPIC, each)}
    if not denied:
        return {}
    error = Denied(WRITE_TOPIC.error)
    return {position: error for position, name, _ in _positions(request) if name in denied}


def _is_denied_everywhere(request: ProduceRequest, denied: Mapping[int, KafkaError]) -> bool:
    return bool(denied) and len(denied) == sum(1 for _ in _positions(request))


def _is_transactional(data: PartitionProduceData) -> bool:
    header = _header(data)
    return header is not None and header.is_transactional


def _handle_verified(
    broker: Ports,
    request: ProduceRequest,
    by_id: bool,
    rejected: Prepared,
    verification: TransactionVerification | None = None,
) -> Response[ProduceResponseDict]:
    if broker.topics_needing_records and _has_large_batches(broker, request):
        _copy_records(request)
        return _handle_in_thread(broker, request, by_id, rejected, verification)
    return _append_all(broker, request, by_id, rejected, verification)


# ----------------------------------------------------------------------------------- transactions


def _handle_transactional(
    broker: Ports,
    context: RequestContext,
    request: ProduceRequest,
    transactional_id: str,
    rejected: Prepared,
) -> Response[ProduceResponseDict]:
    by_id = context.api_version >= _FIRST_BY_ID
    batches = _transactional_batches(request)
    producers = {batch.producer for batch in batches}
    if len(producers) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )
        return _handle_verified(broker, request, by_id, _reject_all(request, error))
    if not batches:
        return _handle_verified(broker, request, by_id, rejected)
    keys = [
        batch.key
        for batch in batches
        if batch.key.topic not in INTERNAL_TOPICS
        and not isinstance(rejected.get(batch.position), Denied)
    ]
    verification = TransactionVerification(
        broker,
        transactional_id,
        producers.pop(),
        keys,
        produce_operation(context.api_version),
    )
    if context.api_version >= _FIRST_OF_TRANSACTION_V2:
        rejected = {**_reject_out_of_order(broker, batches), **rejected}
    if verification.verify_now():
        rejected = _reject_unverified(batches, rejected, verification)
        return _handle_verified(broker, request, by_id, rejected, verification)
    _copy_records(request)
    return _verify_and_handle(broker, request, by_id, rejected, verification)


async def _verify_and_handle(
    broker: Ports,
    request: ProduceRequest,
    by_id: bool,
    rejected: Prepared,
    verification: TransactionVerification,
) -> ProduceResponseDict | None:
    """Verify the partitions with the coordinator first. The connection waits meanwhile, so that
    batches keep their order."""
    await verification.verify()
    rejected = _reject_unverified(_transactional_batches(request), rejected, verification)
    response = _handle_verified(broker, request, by_id, rejected, verification)
    return await response if isinstance(response, Awaitable) else response


class _TransactionalBatch(NamedTuple):
    position: int
    key: TopicPartition
    producer: ProducerIdAndEpoch
    base_sequence: int


def _transactional_batches(request: ProduceRequest) -> list[_TransactionalBatch]:
    """Return every transactional batch that has a whole header and a known topic."""
    found = []
    for position, name, data in _positions(request):
        header = _header(data)
        if header is not None and header.is_transactional and name:
            key = TopicPartition(name, data.index)
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            found.append(_TransactionalBatch(position, key, producer, header.base_sequence))
    return found


def _positions(request: ProduceRequest) -> Iterator[tuple[int, str, PartitionProduceData]]:
    """Yield the position in the request, the topic name and the data of each partition."""
    position = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield position, topic.name, data
            position += 1


def _header(data: PartitionProduceData) -> BatchHeader | None:
    """Return the header of the first batch, or None if it is incomplete."""
    records = data.records
    return None if records is None or len(records) < HEADER_SIZE else read_header(records)


def _reject_out_of_order(
    broker: Ports, batches: list[_TransactionalBatch]
) -> dict[int, KafkaError]:
    """Refuse the first batch of a producer in a partition unless it has sequence 0 (KIP-890).

    In transaction version 2 every transaction has an epoch of its own, so the first batch must have
    sequence 0. Any other batch has overtaken an earlier one on its way."""
    rejected = {}
    for position, key, producer, sequence in batches:
        partition = broker.partitions.get(key)
        if partition is None or producer.id in partition.log.producers.producers:
            continue
        if sequence > 0:
            rejected[position] = KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.id} has no state on {key}, but its first sequence number is "
                f"{sequence}",
            )
    return rejected


def _reject_unverified(
    batches: list[_TransactionalBatch],
    rejected: Prepared,
    verification: TransactionVerification,
) -> Prepared:
    unverified = verification.rejected
    if not unverified:
        return rejected
    errors = {
        batch.position: verification.produce_error(unverified[batch.key])
        for batch in batches
        if batch.key in unverified
    }
    return {**errors, **rejected}


def _reject_all(request: ProduceRequest, error: KafkaError) -> dict[int, KafkaError]:
    return {position: error for position, _, _ in _positions(request)}


# ----------------------------------------------------------------------------------------- batches


def _reject_zstd(request: ProduceRequest) -> Mapping[int, KafkaError]:
    """Refuse zstd before version 7: clients of these versions do not support it (KIP-110)."""
    error = KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires Produce version 7 or newer"
    )
    return {
        position: error
        for position, _, data in _positions(request)
        if (header := _header(data)) is not None and header.compression == ZSTD
    }


def _resolve_topic_names(broker: Ports, request: ProduceRequest) -> None:
    """Set the name of each topic that was requested by ID, or '' if the ID is unknown."""
    by_id = broker.image.topics_by_id
    for topic in request.topic_data:
        image = by_id.get(topic.topic_id)
        topic.name = "" if image is None else image.name


def _has_large_batches(broker: Ports, request: ProduceRequest) -> bool:
    """Return whether decoding the batches, where a topic requires it, would block the loop."""
    return any(
        data.records is not None and len(data.records) > INLINE_RECORDS_BYTES
        for topic in request.topic_data
        if topic.name in broker.topics_needing_records
        for data in topic.partition_data
    )


def _copy_records(request: ProduceRequest) -> None:
    """Copy the records: a thread will read them after the views of the request have expired."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytes(data.records))


async def _handle_in_thread(
    broker: Ports,
    request: ProduceRequest,
    by_id: bool,
    rejected: Prepared,
    verification: TransactionVerification | None,
) -> ProduceResponseDict | None:
    """Decode batches in a thread, then append them on the event loop."""
    now_ms = broker.clock.time_ms()
    work: list[tuple[int, ReadableBuffer | None, TopicConfig]] = []
    for position, name, data in _positions(request):
        partition = broker.partitions.get((name, data.index))
        if partition is not None and partition.needs_records and position not in rejected:
            work.append((position, data.records, partition.log.config))

    def prepare_all() -> dict[int, PreparedBatch | KafkaError]:
        prepared: dict[int, PreparedBatch | KafkaError] = {}
        for position, records, config in work:
            try:
                prepared[position] = prepare_records(
                    prepare(records, config, now_ms), config, now_ms
                )
            except KafkaError as error:
                prepared[position] = error
        return prepared

    prepared = await broker.run_blocking(prepare_all)
    response = _append_all(broker, request, by_id, {**prepared, **rejected}, verification)
    return await response if isinstance(response, asyncio.Future) else response


def _append_all(
    broker: Ports,
    request: ProduceRequest,
    by_id: bool,
    prepared: Prepared,
    verification: TransactionVerification | None,
) -> ProduceResponseDict | asyncio.Future[ProduceResponseDict | None] | None:
    """Append everything now, in order. The response may have to wait for followers or a sync."""
    now_ms = broker.clock.time_ms()
    acks = request.acks
    topics: list[TopicProduceResponseDict] = []
    position = -1
    failed = False
    appended: list[Appended] = []
    rejected: list[Rejected] = []
    for topic in request.topic_data:
        name = topic.name
        partitions: list[PartitionProduceResponseDict] = []
        for data in topic.partition_data:
            index = data.index
            position += 1
            try:
                partition = broker.partitions.get((name, index))
                if (
                    prepared
                    or partition is None
                    or acks != 1
                    or not partition.is_leader
                    or name in INTERNAL_TOPICS
                ):
                    denied = prepared.get(position)
                    partition = _writable_partition(broker, name, by_id, index, acks, denied)
                if partition.leadership is not None:
                    broker.check_can_prove_leadership(partition)
                result = _append(
                    partition, data.records, prepared.get(position), now_ms, verification
                )
            except KafkaError as error:
                failed = True
                partitions.append(body := error_response(index, error))
                if partition is not None and error.code in PRODUCER_STATE_ERRORS:
                    proof = broker.leadership_proof(partition)
                    if proof is not None:
                        rejected.append((proof, body))
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
                appended.append((partition, result.last_offset + 1, body))
        topics.append({"name": name, "topic_id": topic.topic_id, "partition_responses": partitions})
    if acks == 0:
        if failed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "a produce request with acks=0 failed")
        return None
    response: ProduceResponseDict = {"responses": topics}
    return (
        delayed_response(response, appended, rejected, request.timeout_ms)
        if appended or rejected
        else response
    )


def _writable_partition(
    broker: Ports,
    topic: str,
    by_id: bool,
    index: int,
    acks: int,
    prepared: PreparedBatch | KafkaError | None,
) -> Partition:
    if isinstance(prepared, Denied):
        raise prepared
    if by_id and not topic:
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
    records: memoryview | None,
    batch: PreparedBatch | KafkaError | None,
    now_ms: int,
    verification: TransactionVerification | None,
) -> AppendResult:
    if batch is None:
        config = partition.log.config
        batch = prepare(records, config, now_ms)
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
