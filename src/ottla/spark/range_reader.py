"""Reader of the records of one partition between two offsets, on an executor.

While a response is decoded and passed to Spark, the next fetch is in flight; its offset is known
from the batch headers alone. Reading stops when the end offset is reached, whether or not there are
records up to it (compaction, markers and aborted transactions leave gaps).

Offsets that no longer exist (retention, deletion, a recreated topic) are data loss. Depending on
`failOnDataLoss`, it is an error, or it is logged and reading continues with what is left."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, UserError
from ottla.base.types import TopicPartition
from ottla.client.admin.partitions import IsolationLevel, OffsetSpec, list_offsets
from ottla.client.cluster import Cluster
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.errors import ClientError, OffsetOutOfRange, UnknownTopic, error_for
from ottla.spark.fetch import fetch_partition
from ottla.spark.plan import OffsetRange
from ottla.spark.shared_client import SharedClient
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import BatchError

logger = logging.getLogger(__name__)


class DataLoss(UserError):
    """Records that a query was to read no longer exist."""


class Fetched(NamedTuple):
    records: Buffer
    aborted: list[tuple[int, int]] | None
    next_offset: int


class RangeReader:
    def __init__(
        self,
        client: SharedClient,
        config: ConsumerConfig,
        wanted: OffsetRange,
        columns: list[str],
        *,
        fail_on_data_loss: bool,
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._config = config
        self._tp = TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.start
        self._end = wanted.end
        self._columns = columns
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_ms = timeout_ms
        """Time without any data after which the read fails."""

    def __iter__(self) -> Iterator[Any]:
        """Yield decoded record batches."""
        from ottla.wire.records.columnar.decode import decode_fetch

        coming = self._client.start(self._fetch(self._position))
        while self._position < self._end:
            try:
                fetched = coming.result()
            except (OffsetOutOfRange, UnknownTopic) as error:
                self._position = self._after_loss(error)
                coming = self._client.start(self._fetch(self._position))
                continue
            if fetched.next_offset < self._end:
                coming = self._client.start(self._fetch(fetched.next_offset))
            try:
                for part in decode_fetch(
                    fetched.records,
                    self._columns,
                    first_offset=self._position,
                    end_offset=self._end,
                    aborted=fetched.aborted,
                ):
                    if part.batch.num_rows:
                        yield part.batch
            except BatchError as error:
                raise error_for(
                    error.code, str(error), topic=self._tp.topic, partition=self._tp.partition
                ) from error
            self._position = fetched.next_offset

    # ---------------------------------------------------------------------------- data loss

    def _after_loss(self, error: ClientError) -> int:
        """Return the offset at which to continue, or raise DataLoss."""
        start, end = 0, 0
        if not isinstance(error, UnknownTopic):
            start, end = self._client.run(_limits(self._client.cluster, self._tp))
        if start <= self._position <= end:
            return self._position  # a new leader had to catch up first
        what = (
            f"{self._tp} does not exist any more"
            if isinstance(error, UnknownTopic)
            else f"{self._tp} now has offsets {start} to {end}"
        )
        sentence = (
            f"Offsets {self._position} to {self._end} of {self._tp} were to be read, and {what}: "
            "records were deleted, or the topic was made anew."
        )
        if self._fail_on_data_loss:
            raise DataLoss(f"{sentence} failOnDataLoss=false would go on with what is left.")
        logger.warning("%s", sentence)
        return start if self._position < start < self._end else self._end

    # ------------------------------------------------------------------------------ fetching

    async def _fetch(self, offset: int) -> Fetched:
        cluster = self._client.cluster
        if offset >= self._end:
            return Fetched(b"", None, offset)
        return await cluster.retrying(
            lambda: self._fetch_once(cluster, offset),
            timeout_ms=self._timeout_ms,
            what=f"reading {self._tp} from offset {offset}",
        )

    async def _fetch_once(self, cluster: Cluster, offset: int) -> Fetched:
        tp, config = self._tp, self._config
        told = await fetch_partition(
            cluster,
            tp,
            offset,
            max_bytes=config.max_partition_fetch_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            isolation=config.isolation,
            rack=config.client_rack,
        )
        next_offset = _end_of(told.records or b"", offset)
        if next_offset == offset:
            raise error_for(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"nothing was given from offset {offset} on, though it ends at {self._end}",
                topic=tp.topic,
                partition=tp.partition,
            )
        aborted = None
        if config.isolation:
            told_aborted = told.aborted_transactions or ()
            aborted = [(each.producer_id, each.first_offset) for each in told_aborted]
        return Fetched(told.records, aborted, next_offset)


async def _limits(cluster: Cluster, tp: TopicPartition) -> tuple[int, int]:
    found = []
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        listed = await list_offsets(cluster, {tp: spec}, IsolationLevel.READ_UNCOMMITTED)
        found.append(listed.checked(False)[tp].offset or 0)
    return found[0], found[1]


def _end_of(records: Buffer, offset: int) -> int:
    """Return the offset after the last complete batch, from the headers alone."""
    end = offset
    try:
        for header in iter_headers(records):
            end = max(end, header.next_offset)
    except BatchError:
        # Decoding raises the error. A corrupt first batch must not look like an empty response.
        end = max(end, offset + 1)
    return end
