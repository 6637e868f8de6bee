"""Sender of batches to the leaders of their partitions.

Everything here runs on one event loop. Work is done in *runs*: a run fails batches that have
expired, sends those that are ready as far as `max.in.flight.requests.per.connection` permits, and
schedules the next run for the time at which a batch will be ready. `wake` requests a run, from
any thread; responses do so, too.

A failed request counts as a failed attempt for each of its batches. `idempotence` decides whether a
batch is retried, and in which order."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.client.cluster import STALE_METADATA, Cluster
from ottla.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnsupportedVersion,
)
from ottla.client.metadata import ClusterMetadata
from ottla.client.producer import produce_request
from ottla.client.producer.accumulator import NEVER_S, Accumulator, PartitionQueue
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.identity import Identity
from ottla.client.producer.produce_request import PartitionResponse
from ottla.net.connection import Connection

if TYPE_CHECKING:
    from ottla.wire.messages.produce import ProduceResponse

logger = logging.getLogger(__name__)

MAX_BACKOFF_DOUBLINGS = 20
MIN_TIMER_S = 0.0005
WARN_EVERY_S = 10.0
NEEDS_ATTENTION = frozenset({
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
})  # fmt: skip
"""Errors that need an operator's action, unlike those that a leader election resolves."""


class _SentRequest(NamedTuple):
    node: int
    version: int
    metadata: ClusterMetadata
    """Metadata at the time of the request, which maps the topic IDs in the response to names."""
    batches: list[tuple[PartitionQueue, ProducerBatch]]


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        identity: Identity | None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._identity = identity
        self._acks = config.required_acks
        self._codec = config.compression_codec
        self._level = config.compression_level
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._in_flight: dict[int, int] = {}
        self._not_before_s: dict[int, float] = {}
        """Time until which a broker throttles this client, by broker ID."""
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._wake_lock = threading.Lock()
        self._is_run_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._rotation = 0
        self._warn_from_s = 0.0
        """Time from which a failed attempt may be logged as a warning again."""

    # ------------------------------------------------------------------------------------ runs

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._cluster.on_metadata.append(self._metadata_changed)
        if self._identity is not None:
            self._identity.on_change = self.wake
        self.wake()

    def _metadata_changed(self, _: ClusterMetadata) -> None:
        self.wake()

    def wake(self) -> None:
        if self._is_run_scheduled or self._loop is None or self._closed:
            return
        self._is_run_scheduled = True
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._run)
            return
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            pass  # the interpreter is exiting and has closed the loop of the daemon thread

    def _run(self) -> None:
        self._is_run_scheduled = False
        if self._closed:
            return
        try:
            next_s = self._send_ready(time.monotonic())
        except Exception as error:
            logger.exception("the producer's sender failed: all pending records fail")
            self.fail_all(ClientError(f"the producer's sender failed: {error!r}"))
            return
        self._schedule(next_s)

    def _schedule(self, next_s: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_s != NEVER_S:
            delay_s = max(next_s - time.monotonic(), MIN_TIMER_S)
            self._timer = self._loop.call_later(delay_s, self.wake)

    def _send_ready(self, now_s: float) -> float:
        """Send what is ready, and return the time at which the next one is due."""
        timeout_s = self._config.delivery_timeout_ms / 1000
        for batch in self._accumulator.expired(now_s - timeout_s):
            self._expire(batch)
        if self._identity is not None and not self._identity.prepare():
            return self._accumulator.oldest_s() + timeout_s
        next_s = self._accumulator.oldest_s() + timeout_s
        ready, ready_s, is_leader_missing = self._ready(now_s)
        if is_leader_missing:
            self._cluster.request_refresh()
        for node, queues in ready.items():
            self._send_to(node, queues, now_s)
        return min(next_s, ready_s)

    def _ready(self, now_s: float) -> tuple[dict[int, list[PartitionQueue]], float, bool]:
        """Find the queues whose first batch may be sent.

        Returns:
            The queues by leader; the time at which the next one will be ready; and whether the
            leader of a ready queue is unknown.
        """
        ready: dict[int, list[PartitionQueue]] = {}
        next_s = NEVER_S
        is_leader_missing = False
        metadata = self._cluster.metadata
        with self._accumulator.lock:
            for queue in self._accumulator.queues:
                at_s = self._accumulator.ready_at_s(queue)
                if at_s > now_s:
                    next_s = min(next_s, at_s)
                    continue
                leader = metadata.leader(queue.topic, queue.partition)
                if leader < 0:
                    is_leader_missing = True
                    continue
                ready.setdefault(leader, []).append(queue)
        for node, at_s in list(self._not_before_s.items()):
            if at_s > now_s:
                next_s = min(next_s, at_s)
            else:
                del self._not_before_s[node]
        if is_leader_missing:
            next_s = min(next_s, now_s + self._config.retry_backoff_ms / 1000)
        return ready, next_s, is_leader_missing

    # --------------------------------------------------------------------------------- sending

    def _send_to(self, node: int, queues: list[PartitionQueue], now_s: float) -> None:
        if self._in_flight.get(node, 0) >= self._max_in_flight or node in self._not_before_s:
            return
        connection = self._cluster.open_connection(node)
        if connection is None:
            self._connect(node)
            return
        # Start with a different partition each time: a full request may leave out the last ones.
        self._rotation += 1
        start = self._rotation % len(queues)
        queues = queues[start:] + queues[:start]
        while self._in_flight.get(node, 0) < self._max_in_flight and connection.can_write:
            batches = self._drain(queues, now_s)
            if not batches or not self._send(connection, node, batches):
                return

    def _drain(
        self, queues: Iterable[PartitionQueue], now_s: float
    ) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Take at most one batch of each queue, up to `max.request.size` in total."""
        drained: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        accumulator = self._accumulator
        with accumulator.lock:
            for queue in queues:
                if accumulator.ready_at_s(queue) > now_s or not self._may_send(queue):
                    continue
                batch = queue.batches[0]
                if drained and size + batch.size_bytes > self._config.max_request_size:
                    continue
                size += batch.size_bytes
                accumulator.pop_ready(queue)
                batch.in_request = True
                queue.in_requests += 1
                drained.append((queue, batch))
        return drained

    def _may_send(self, queue: PartitionQueue) -> bool:
        if self._identity is not None:
            return self._identity.may_send(queue, queue.batches[0])
        # One batch in flight at a time preserves the order across retries.
        return self._max_in_flight > 1 or queue.in_requests == 0

    def _send(
        self,
        connection: Connection,
        node: int,
        batches: list[tuple[PartitionQueue, ProducerBatch]],
    ) -> bool:
        """Send one Produce request.

        Returns:
            False if nothing was sent; the batches have failed or wait for a retry.
        """
        identity = self._identity
        for queue, batch in batches:
            if identity is not None and not batch.has_sequence:
                identity.sequences.assign(queue.sequences, batch)
            batch.attempts += 1
            batch.seal(self._codec, self._level)
        metadata = self._cluster.metadata
        try:
            version = produce_request.version_for(
                connection,
                [batch for _, batch in batches],
                metadata,
                self._codec,
                old_transaction=identity is not None and identity.is_old_transaction,
            )
            request = produce_request.request_for(
                [batch for _, batch in batches],
                metadata,
                acks=self._acks,
                timeout_ms=self._config.request_timeout_ms,
                transactional_id=self._config.transactional_id or None,
            )
            if self._acks == 0:
                connection.send_without_response(request, version)
                for queue, batch in batches:
                    self._remove_from_request(queue, batch)
                    self._acknowledge(queue, batch, PartitionResponse(0))
                return True
            timeout_s = self._config.request_timeout_ms / 1000
            response = connection.send(request, version, timeout_s)
        except ClientError as error:
            self._handle_no_response(batches, error)
            return False
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        sent = _SentRequest(node, version, metadata, batches)
        response.add_done_callback(partial(self._on_response, sent))
        return True

    def _connect(self, node: int) -> None:
        if node not in self._connecting:
            self._connecting[node] = asyncio.create_task(self._open(node))

    async def _open(self, node: int) -> None:
        try:
            await self._cluster.connection(node)
        except (AuthenticationFailed, UnsupportedVersion) as error:
            self._fail_for(node, error)
        except ClientClosed:
            return
        except ClientError as error:
            logger.debug("broker %d cannot be reached: %s", node, error)
            self._cluster.request_refresh()
            await asyncio.sleep(self._config.reconnect_backoff_ms / 1000)
        finally:
            del self._connecting[node]
        self.wake()

    # ------------------------------------------------------------------------------- responses

    def _on_response(
        self, request: _SentRequest, response: asyncio.Future[ProduceResponse]
    ) -> None:
        self._in_flight[request.node] -= 1
        if self._closed or response.cancelled():
            return
        error = response.exception()
        if error is not None:
            if not isinstance(error, ClientError):
                error = ConnectionLost(str(error))
            self._handle_no_response(request.batches, error)
        else:
            self._process_response(request, response.result())
        self.wake()

    def _process_response(self, request: _SentRequest, response: ProduceResponse) -> None:
        if response.throttle_time_ms > 0:
            pause_s = response.throttle_time_ms / 1000
            self._not_before_s[request.node] = time.monotonic() + pause_s
        partition_responses = produce_request.read_response(
            response, request.version, request.metadata
        )
        for queue, batch in request.batches:
            self._remove_from_request(queue, batch)
            partition_response = partition_responses.get(
                (batch.topic, batch.partition), produce_request.MISSING_RESPONSE
            )
            if batch.is_done:  # it expired before the response arrived
                continue
            if partition_response.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._acknowledge(queue, batch, partition_response)
            else:
                self._handle_error(queue, batch, partition_response)

    def _handle_no_response(
        self, batches: list[tuple[PartitionQueue, ProducerBatch]], error: ClientError
    ) -> None:
        """Handle a request without a response. The broker may still have written its batches."""
        is_unknown = isinstance(error, ConnectionLost | KafkaTimeout)
        code = ErrorCode.NETWORK_EXCEPTION if is_unknown else error.code
        for queue, batch in batches:
            self._remove_from_request(queue, batch)
            if batch.is_done:
                continue
            if is_unknown:
                batch.may_be_written = True
            self._handle_error(queue, batch, PartitionResponse(code, str(error)))

    def _remove_from_request(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.in_request = False
        queue.in_requests -= 1

    def _handle_error(
        self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse
    ) -> None:
        code = response.error_code
        if response.leader >= 0:
            self._cluster.set_leader(
                batch.topic, batch.partition, response.leader, response.leader_epoch
            )
        if code in STALE_METADATA:
            self._cluster.request_refresh()
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(queue, batch)
        elif self._may_retry(queue, batch, response):
            self._requeue(queue, batch, response)
        else:
            error, record_errors = produce_request.errors_from(response, batch)
            self._fail(queue, batch, error, record_errors)

    def _may_retry(
        self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse
    ) -> bool:
        if batch.attempts > self._config.retries:
            return False
        if self._identity is not None:
            return self._identity.may_retry(
                queue, batch, response.error_code, response.log_start_offset
            )
        return response.error_code in RETRIABLE

    def _requeue(
        self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse
    ) -> None:
        error, _ = produce_request.errors_from(response, batch)
        batch.last_error = error
        self._log_retry(batch, error)
        doublings = min(batch.attempts - 1, MAX_BACKOFF_DOUBLINGS)
        pause_ms = min(
            self._config.retry_backoff_ms << doublings, self._config.retry_backoff_max_ms
        )
        batch.was_retried = True
        batch.not_before_s = time.monotonic() + pause_ms / 1000
        self._accumulator.requeue(queue, [batch])

    def _log_retry(self, batch: ProducerBatch, error: ClientError) -> None:
        """Log a failed attempt.

        Errors that need attention are warnings, at most every `WARN_EVERY_S`. Others, such as
        a change of the leader, are logged for debugging only."""
        now_s, level = time.monotonic(), logging.DEBUG
        if error.code in NEEDS_ATTENTION and now_s >= self._warn_from_s:
            self._warn_from_s = now_s + WARN_EVERY_S
            level = logging.WARNING
        logger.log(
            level,
            "attempt %d failed, retrying for up to delivery.timeout.ms (%d): %s: %s",
            batch.attempts,
            self._config.delivery_timeout_ms,
            error.code.name,
            error,
        )

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Split a batch that the broker finds too large; parts may be split further."""
        parts = batch.split()
        logger.debug(
            "%s-%d: a batch of %d records is too large: splitting it into %d",
            batch.topic, batch.partition, batch.count, len(parts),
        )  # fmt: skip
        if self._identity is not None:
            self._identity.sequences.split(queue.sequences, batch, parts)
        self._accumulator.replace(batch, parts)
        self._accumulator.requeue(queue, parts)

    # ------------------------------------------------------------------------------ completion

    def _acknowledge(
        self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse
    ) -> None:
        base_offset = -1 if response.error_code else response.base_offset
        if self._identity is not None:
            self._identity.sequences.acknowledged(queue.sequences, batch, base_offset)
            self._identity.batch_completed(queue)
        self._accumulator.finish(batch)
        batch.acknowledge(base_offset, response.append_time_ms)

    def _fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: ClientError,
        record_errors: dict[int, BaseException] | None = None,
        *,
        is_outcome_known: bool = True,
    ) -> None:
        if self._identity is not None:
            is_known = is_outcome_known and not batch.may_be_written
            self._identity.failed(queue, batch, error, surely_not_written=is_known)
            self._identity.batch_completed(queue)
        self._accumulator.finish(batch)
        batch.fail(error, record_errors)

    def _expire(self, batch: ProducerBatch) -> None:
        queue = self._accumulator.incomplete.get(batch)
        if queue is None:
            return
        what = (
            f"{batch.count} records were not acknowledged within delivery.timeout.ms "
            f"({self._config.delivery_timeout_ms}) after {batch.attempts} attempts"
        )
        where, last_error = f"{batch.topic}-{batch.partition}", batch.last_error
        error = KafkaTimeout(
            f"{where}: {what}"
            if last_error is None
            else f"{last_error.code.name}: {last_error} ({what})",
            code=None if last_error is None else last_error.code,
            topic=batch.topic,
            partition=batch.partition,
        )
        error.__cause__ = last_error
        self._fail(queue, batch, error, is_outcome_known=batch.attempts == 0)

    def _fail_for(self, node: int, error: ClientError) -> None:
        """Fail every batch that is not in a request and whose leader is this broker."""
        metadata = self._cluster.metadata
        with self._accumulator.lock:
            concerned = [
                (queue, batch)
                for batch, queue in self._accumulator.incomplete.items()
                if metadata.leader(queue.topic, queue.partition) == node and not batch.in_request
            ]
        for queue, batch in concerned:
            self._fail(queue, batch, error)

    def fail_unsent(self, error: ClientError) -> None:
        """Fail every batch that is not in a request now."""
        with self._accumulator.lock:
            unsent = [
                (queue, batch)
                for batch, queue in self._accumulator.incomplete.items()
                if not batch.in_request
            ]
        for queue, batch in unsent:
            self._fail(queue, batch, error, is_outcome_known=batch.attempts == 0)

    def fail_all(self, error: KafkaError) -> None:
        """Fail every incomplete batch."""
        with self._accumulator.lock:
            batches = list(self._accumulator.incomplete)
        for batch in batches:
            self._accumulator.finish(batch)
            batch.fail(error)

    # ----------------------------------------------------------------------------------- close

    async def close(self) -> None:
        self._closed = True
        if self._metadata_changed in self._cluster.on_metadata:
            self._cluster.on_metadata.remove(self._metadata_changed)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._connecting.values()):
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        self.fail_all(ClientClosed("the producer was closed before the record was acknowledged"))
