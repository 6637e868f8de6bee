"""Writer of a task's rows, on an executor, in order and without duplicates.

Rows are encoded by the kernels, without a Python object per row, while the producer's sender has
earlier ones in flight. It is the producer of `ottla.client`: sequences, retries and limits are the
same, so no failure shorter than `delivery.timeout.ms` duplicates, loses or reorders records.

With the identity of a transaction, the records become visible when that transaction is committed,
which another process does.

Without one, the writer of a task that succeeded is kept for the next task of the process, with its
producer ID: a stream would otherwise request one for every batch, and brokers would remember them
all. A transaction needs a new epoch for every batch, see decision 0007."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any

from ottla.base.errors import ErrorCode, UserError
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, RecordTooLarge, TransactionAborted
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.completion import final_batches
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.engine import ProducerEngine
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.spark.shared_client import SharedClient

WINDOW_BYTES = 4 * 1024 * 1024
"""Size of the encoded rows that are passed to the sender together. A window is encoded while the
sender has the one before it in flight; waking it for each batch would cost more CPU."""


def take_writer(client: SharedClient, config: ProducerConfig) -> RecordWriter:
    """Return a writer without a transaction, with the producer ID of the task before if possible.

    Call `keep` when all rows are acknowledged, or `stop`.

    Args:
        client: Client whose connections are used. It determines the configuration.
        config: Properties of the producer.
    """
    kept = client.take_kept()
    return kept if isinstance(kept, RecordWriter) else RecordWriter(client, config)


class RecordWriter:
    """Writer over the connections of a shared client. Call `stop` at the end.

    Args:
        client: Client whose connections are used.
        config: Properties of the producer.
        producer: Identity of the transaction to write in. None writes without one.
    """

    def __init__(
        self, client: SharedClient, config: ProducerConfig, producer: ProducerIdentity | None = None
    ) -> None:
        from ottla.client.producer.row_encoder import RowEncoder

        self._client = client
        self._config = config
        self._rows = RowEncoder(config)
        self._pending: deque[ProducerBatch] = deque()
        self._round_robin = random.randrange(1 << 16)
        self._held: list[tuple[PartitionQueue, ProducerBatch]] = []
        self._held_bytes = 0
        self._engine = _engine(client.cluster, config, producer)
        self._window_bytes = min(WINDOW_BYTES, self._engine.config.buffer_memory)
        client.call(self._engine.start_sending, producer)

    def partition_count(self, topic: str) -> tuple[int, tuple[int, ...]]:
        """Return the number of partitions of a topic, and the partitions that have a leader."""
        known = self._client.cluster.metadata.topics.get(topic)
        if known is None or not known.available:
            try:
                known = self._client.run(
                    self._client.cluster.topic, topic, timeout_ms=self._config.max_block_ms
                )
            except ClientError as error:
                if error.code != ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise
                raise UserError(
                    f"'{topic}' is not a valid name of a topic. Names consist of letters, digits, "
                    "'.', '_' and '-'."
                ) from None
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
        from ottla.wire.records.errors import BatchError

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
            try:
                for batch in self._rows.encode(topic, partition, columns, groups.rows(partition)):
                    self._add(batch)
            except BatchError as error:
                kind = RecordTooLarge if error.code == ErrorCode.MESSAGE_TOO_LARGE else ClientError
                raise kind(
                    f"cannot encode a row as a record: {error} (max.request.size)",
                    code=error.code, topic=topic,
                ) from error  # fmt: skip

    def _add(self, batch: ProducerBatch) -> None:
        """Add a batch to the window, which is sent first if the batch does not fit."""
        self._raise_failure()
        if self._held_bytes + batch.reserved_bytes > self._window_bytes:
            self._send_held()
        try:
            queue = self._engine.appender.queue_of(batch.topic, batch.partition)
        except TransactionAborted as error:
            raise _cause(self._engine, error) from None
        self._held.append((queue, batch))
        self._held_bytes += batch.reserved_bytes

    def _send_held(self) -> None:
        held, size = self._held, self._held_bytes
        self._held, self._held_bytes = [], 0
        if not held:
            return
        # A batch that expires frees its memory, so this wait needs no limit of its own.
        self._engine.reserve(size, held[0][0], timeout_s=None)
        try:
            self._engine.appender.append_batches(held)
        except TransactionAborted as error:
            raise _cause(self._engine, error) from None
        self._pending.extend(batch for _, batch in held)

    def _raise_failure(self) -> None:
        """Raise the error of the first batch that has failed, and forget those that are done."""
        while self._pending and self._pending[0].is_done:
            for batch in final_batches([self._pending.popleft()]):
                if not batch.is_done:
                    self._pending.appendleft(batch)
                elif batch.error is not None:
                    raise _cause(self._engine, batch.error)

    def finish(self) -> None:
        """Wait until every row is acknowledged, or raise."""
        self._send_held()
        self._client.run(self._engine.flush)
        self._raise_failure()

    def keep(self) -> None:
        """Keep the writer for the next task of this process, after `finish`."""
        self._client.keep(self)

    def stop(self) -> None:
        """Stop sending; rows that are not acknowledged are dropped."""
        if self._client.is_alive:
            self._client.run(self._engine.stop_sending)


async def write_record(
    cluster: Cluster,
    config: ProducerConfig,
    producer: ProducerIdentity,
    tp: TopicPartition,
    key: bytes,
    value: bytes,
) -> None:
    """Write one record in a transaction and wait for its acknowledgement.

    The topic's metadata must be known. This does without the kernels, which take long to load."""
    engine = _engine(cluster, replace(config, compression_type="none"), producer)
    engine.start_sending(producer)
    try:
        outcome = engine.appender.try_append(tp.topic, value, key, None, tp.partition, None, None)
        assert isinstance(outcome, RecordFuture), "the topic is known, and the memory unused"
        await engine.flush()
        await outcome
    except TransactionAborted as error:
        raise _cause(engine, error) from None
    finally:
        await engine.stop_sending()


def _engine(
    cluster: Cluster, config: ProducerConfig, producer: ProducerIdentity | None
) -> ProducerEngine:
    memory = min(config.buffer_memory, max(2 * WINDOW_BYTES, 2 * config.max_request_size))
    config = replace(config, buffer_memory=memory)
    if producer is not None and producer.transactional_id is not None:
        config = replace(config, transactional_id=producer.transactional_id)
    return ProducerEngine(config, cluster)


def _cause(engine: ProducerEngine, error: BaseException) -> BaseException:
    """Return the failure that made the transaction fail, instead of one that followed from it."""
    return (engine.transaction_failure or error) if isinstance(error, TransactionAborted) else error
