"""Writer of a task's rows, on an executor, in order and without duplicates.

Rows are encoded by the kernels, without a Python object per row, and sent in windows: the next
window is encoded while the current one is in flight. Each batch carries the producer's next
sequence for its partition. At most MAX_IN_FLIGHT batches of a partition are unacknowledged, which
is how many brokers remember. Batches that fail with a retriable error are retried, in order, before
anything new, and brokers recognize duplicates. So no failure shorter than `delivery.timeout.ms`
duplicates, loses or reorders records.

With a transactional producer, the records become visible when its transaction is committed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.types import TopicPartition
from ottla.client.backoff import Backoff
from ottla.client.consumer.offsets import by_leader
from ottla.client.errors import ClientError, ConnectionLost, KafkaTimeout, RecordTooLarge, error_for
from ottla.client.producer.config import ProducerConfig
from ottla.spark.shared_client import SharedClient
from ottla.spark.transactions import MAX_PRODUCE_VERSION, ProducerIdentity, add_partitions
from ottla.wire.api import Api

MAX_IN_FLIGHT = 5
WINDOW_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024
"""Batch size for rows. It may exceed `batch.size`, because all rows are available at once."""
REQUEST_OVERHEAD = 1024
MAX_SEQUENCE = 0x7FFFFFFF
MAX_PRODUCE_BY_NAME = 12


class OutgoingBatch(NamedTuple):
    tp: TopicPartition
    data: memoryview
    sequence: int


class RecordWriter:
    def __init__(
        self, client: SharedClient, config: ProducerConfig, producer: ProducerIdentity | None
    ) -> None:
        """Create a writer. If `producer` is None (acks=0 or 1), retries may duplicate records."""
        self._client = client
        self._config = config
        self._producer = producer
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)
        self._in_transaction: set[TopicPartition] = set()
        self._window: list[OutgoingBatch] = []
        self._window_bytes = 0
        self._delivery: Future[None] | None = None
        self._round_robin = random.randrange(1 << 16)
        limit = config.max_request_size - REQUEST_OVERHEAD
        self._max_record_size = limit
        self._batch_size = max(min(limit, max(BATCH_BYTES, config.batch_size)), 1)

    @property
    def has_written(self) -> bool:
        return bool(self._sequences)

    def partition_count(self, topic: str) -> tuple[int, tuple[int, ...]]:
        """Return the number of partitions of a topic, and the partitions that have a leader."""
        known = self._client.cluster.metadata.topics.get(topic)
        if known is None or not known.available:
            known = self._client.run(
                self._client.cluster.topic, topic, timeout_ms=self._config.max_block_ms
            )
        return known.partition_count, known.available

    def write(self, topic: str, columns: Any, partitions: Any) -> None:
        """Write rows to a topic.

        Args:
            topic: Topic to write to.
            columns: The rows, as a `RecordColumns`.
            partitions: Partition of each row, or -1 for any.
        """
        import numpy as np

        from ottla.wire.records.columnar.partition import group_rows

        count, available = self.partition_count(topic)
        self._round_robin += 1
        default_partition = available[self._round_robin % len(available)]
        chosen = np.asarray(partitions, np.int32)
        chosen = np.where(chosen < 0, np.int32(default_partition), chosen)
        if len(chosen) and int(chosen.max()) >= count:
            raise UserError(
                f"A row has partition {int(chosen.max())}, but topic '{topic}' has only {count} "
                "partitions."
            )
        groups = group_rows(chosen, count)
        for partition in groups.partitions:
            tp = TopicPartition(topic, partition)
            for data, sequence in self._encoded(tp, columns, groups.rows(partition)):
                self.send(OutgoingBatch(tp, data, sequence))

    def _encoded(self, tp: TopicPartition, columns: Any, rows: Any) -> Iterator[tuple[Any, int]]:
        from ottla.wire.records.columnar.encode import encode_batches
        from ottla.wire.records.errors import BatchError

        producer = self._producer or ProducerIdentity(None, -1, -1)
        sequence = self._sequences[tp] if self._producer is not None else -1
        made = encode_batches(
            columns,
            rows,
            batch_size=self._batch_size,
            compression=self._config.compression_codec,
            level=self._config.compression_level,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=producer.transactional_id is not None,
            max_record_size=self._max_record_size,
        )
        try:
            for batch in made:
                yield batch.data, sequence
                self._sequences[tp] = self._sequences[tp] + batch.record_count & MAX_SEQUENCE
                sequence = self._sequences[tp] if self._producer is not None else -1
        except BatchError as error:
            kind = RecordTooLarge if error.code == ErrorCode.MESSAGE_TOO_LARGE else ClientError
            raise kind(
                f"cannot encode a row as a record: {error} (max.request.size)",
                code=error.code, topic=tp.topic,
            ) from error  # fmt: skip

    def send(self, outgoing: OutgoingBatch) -> None:
        """Add an encoded batch to the window."""
        self._window.append(outgoing)
        self._window_bytes += len(outgoing.data)
        if self._window_bytes >= WINDOW_BYTES:
            self._send_window()

    def _send_window(self) -> None:
        self._wait()
        if self._window:
            self._delivery = self._client.start(self.deliver, self._window)
        self._window, self._window_bytes = [], 0

    def _wait(self) -> None:
        if self._delivery is not None:
            delivery, self._delivery = self._delivery, None
            delivery.result()

    def finish(self) -> None:
        """Wait until every row is acknowledged, or raise."""
        self._send_window()
        self._wait()

    def stop(self) -> None:
        """Cancel the delivery; nothing more is sent."""
        if self._delivery is not None:
            self._delivery.cancel()

    # ------------------------------------------------------------------------------- delivery

    async def deliver(self, window: list[OutgoingBatch]) -> None:
        """Send a window and retry until brokers have acknowledged all of it."""
        await self._add_to_transaction({each.tp for each in window})
        for round_ in _rounds(window):
            await self._deliver_round(round_)

    async def _add_to_transaction(self, tps: set[TopicPartition]) -> None:
        if self._producer is None or self._producer.transactional_id is None:
            return
        new = tps - self._in_transaction
        if new:
            await add_partitions(self._client.cluster, self._producer, sorted(new))
            self._in_transaction |= new

    async def _deliver_round(self, pending: list[OutgoingBatch]) -> None:
        config, cluster = self._config, self._client.cluster
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        deadline = time.monotonic() + config.delivery_timeout_ms / 1000
        while True:
            failed, error = await self._attempt(pending)
            if not failed:
                return
            assert error is not None
            if time.monotonic() > deadline:
                raise KafkaTimeout(
                    f"{failed[0].tp}: records were not acknowledged within "
                    f"{config.delivery_timeout_ms} ms: {error}"
                )
            if self._producer is None and config.retries == 0:
                raise error
            await asyncio.sleep(backoff.next_s())
            cluster.request_refresh()
            pending = failed

    async def _attempt(
        self, pending: list[OutgoingBatch]
    ) -> tuple[list[OutgoingBatch], KafkaError | None]:
        """Send batches once; return those that failed, in order, and the first error."""
        cluster = self._client.cluster
        try:
            leaders = await by_leader(cluster, {each.tp for each in pending})
        except (ConnectionLost, KafkaTimeout) as error:
            return pending, error
        except ClientError as error:
            if not error.retriable:
                raise
            return pending, error
        by_tp: dict[TopicPartition, int] = {tp: node for node, tps in leaders.items() for tp in tps}
        by_node: defaultdict[int, list[OutgoingBatch]] = defaultdict(list)
        for each in pending:
            by_node[by_tp[each.tp]].append(each)
        outcomes = await asyncio.gather(
            *(self._send_to(node, batches) for node, batches in by_node.items())
        )
        errors = {id(each): error for outcome in outcomes for each, error in outcome}
        failed = [each for each in pending if id(each) in errors]
        if not failed:
            return [], None
        first_of: dict[TopicPartition, KafkaError] = {}
        for each in failed:
            first_of.setdefault(each.tp, errors[id(each)])
        for each in failed:
            # A batch that failed only because an earlier one did is retried after it.
            reason = errors[id(each)]
            is_behind = first_of[each.tp] is not reason
            if reason.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_behind:
                continue
            if not reason.retriable and not isinstance(reason, ConnectionLost | KafkaTimeout):
                raise reason
        return failed, errors[id(failed[0])]

    async def _send_to(
        self, node: int, batches: list[OutgoingBatch]
    ) -> list[tuple[OutgoingBatch, KafkaError]]:
        """Send batches to one leader, pipelining the requests, and return the failures."""
        config, cluster = self._config, self._client.cluster
        timeout_s = config.request_timeout_ms / 1000
        is_transactional = self._producer is not None and self._producer.transactional_id
        try:
            connection = await cluster.connection(node)
            version = connection.version_of(
                Api.PRODUCE, 3, MAX_PRODUCE_VERSION if is_transactional else MAX_PRODUCE_BY_NAME
            )
        except (ConnectionLost, KafkaTimeout) as error:
            return [(each, error) for each in batches]
        sent: list[tuple[list[OutgoingBatch], Any]] = []
        failures: list[tuple[OutgoingBatch, KafkaError]] = []
        for request in _requests(batches, config.max_request_size):
            body = {
                "transactional_id": is_transactional or None,
                "acks": config.required_acks,
                "timeout_ms": config.request_timeout_ms,
                "topic_data": _topic_data(request),
            }
            try:
                await connection.drain()
                if config.required_acks == 0:
                    connection.send_without_response(Api.PRODUCE, version, body)
                else:
                    sent.append((request, connection.send(Api.PRODUCE, version, body, timeout_s)))
            except ClientError as error:
                failures += [(each, error) for each in request]
        for request, response in sent:
            try:
                failures += _failures(request, await response)
            except ClientError as error:
                failures += [(each, error) for each in request]
        return failures


def _rounds(window: list[OutgoingBatch]) -> Iterator[list[OutgoingBatch]]:
    """Split a window into rounds of at most MAX_IN_FLIGHT batches per partition."""
    rounds: list[list[OutgoingBatch]] = []
    counts: defaultdict[TopicPartition, int] = defaultdict(int)
    for each in window:
        number = counts[each.tp] // MAX_IN_FLIGHT
        counts[each.tp] += 1
        while len(rounds) <= number:
            rounds.append([])
        rounds[number].append(each)
    yield from rounds


def _requests(batches: list[OutgoingBatch], max_size: int) -> Iterator[list[OutgoingBatch]]:
    """Split batches into requests with at most one batch per partition."""
    request: list[OutgoingBatch] = []
    size, partitions = 0, set[TopicPartition]()
    for each in batches:
        if request and (each.tp in partitions or size + len(each.data) > max_size):
            yield request
            request, size, partitions = [], 0, set()
        request.append(each)
        partitions.add(each.tp)
        size += len(each.data)
    if request:
        yield request


def _topic_data(request: Iterable[OutgoingBatch]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for each in request:
        entry = {"index": each.tp.partition, "records": each.data}
        topics.setdefault(each.tp.topic, []).append(entry)
    return [{"name": name, "partition_data": entries} for name, entries in topics.items()]


def _failures(
    request: list[OutgoingBatch], response: Any
) -> list[tuple[OutgoingBatch, KafkaError]]:
    by_partition = {
        TopicPartition(topic.name, each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }
    found: list[tuple[OutgoingBatch, KafkaError]] = []
    for each in request:
        result = by_partition.get(each.tp)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else result.error_code
        if code and code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            message = None if result is None else result.error_message
            found.append((each, error_for(
                code, message, topic=each.tp.topic, partition=each.tp.partition
            )))  # fmt: skip
    return found
