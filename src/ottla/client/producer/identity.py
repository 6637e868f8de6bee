"""The producer's ID and epoch, and which batches may be sent under them.

`idempotence` makes the decisions about sequences. This module obtains the producer ID from brokers
(InitProducerId), reports failures that end the producer, and connects both to queues and
batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, error_for
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.idempotence import Idempotence
from ottla.wire import rpc

logger = logging.getLogger(__name__)

_FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Identity:
    """Identity of an idempotent producer without transactions."""

    is_old_transaction = False

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self.sequences = Idempotence(is_transactional=bool(config.transactional_id))
        self.on_change: Callable[[], None] = lambda: None
        self.on_fatal: Callable[[ClientError], None] = lambda error: None
        self._config = config
        self._cluster = cluster
        self._requesting: asyncio.Task[None] | None = None
        self._unresolved: dict[PartitionQueue, None] = {}

    # -------------------------------------------------------------------------------- sending

    def prepare(self) -> bool:
        """Prepare for draining batches; return whether anything may be sent now."""
        for queue in list(self._unresolved):
            self._resolve(queue)
        self.sequences.start_requested_epoch()
        if self.sequences.has_producer_id:
            return True
        if self._requesting is None:
            self._requesting = asyncio.create_task(self._request_producer_id())
        return False

    def may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        return self.sequences.may_send(queue.sequences, batch)

    def _resolve(self, queue: PartitionQueue) -> None:
        self.sequences.resolve(queue.sequences)
        if queue.sequences.unresolved_sequence is None:
            del self._unresolved[queue]

    async def _request_producer_id(self) -> None:
        try:
            producer_id, epoch = await self._cluster.retrying(
                self._init_producer_id,
                timeout_ms=self._config.delivery_timeout_ms,
                what="obtaining a producer ID",
            )
        except ClientError as error:
            if error.retriable:
                logger.warning("could not obtain a producer ID, retrying: %s", error)
            else:
                self.on_fatal(error)
        else:
            self.sequences.set_producer_id(producer_id, epoch)
        finally:
            self._requesting = None
        self.on_change()

    async def _init_producer_id(self) -> tuple[int, int]:
        response = await self._cluster.call(
            rpc.init_producer_id(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        )
        if response.error_code:
            raise error_for(response.error_code)
        return response.producer_id, response.producer_epoch

    # ------------------------------------------------------------------------------ responses

    def may_retry(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int, log_start_offset: int
    ) -> bool:
        return self.sequences.may_retry(queue.sequences, batch, code, log_start_offset)

    def failed(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: ClientError,
        *,
        surely_not_written: bool,
    ) -> None:
        self.sequences.failed(
            queue.sequences, batch, error.code, surely_not_written=surely_not_written
        )
        if queue.sequences.unresolved_sequence is not None:
            self._unresolved[queue] = None
        if error.code in _FATAL:
            self.on_fatal(error)

    def batch_completed(self, queue: PartitionQueue) -> None:
        """Handle the acknowledgement or failure of a batch of the queue."""

    async def close(self) -> None:
        if self._requesting is not None:
            self._requesting.cancel()
            await asyncio.gather(self._requesting, return_exceptions=True)
