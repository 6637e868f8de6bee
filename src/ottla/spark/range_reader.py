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
from ottla.client.consumer.fetch_request import (
    FetchLimits,
    aborted_transactions,
    fetch_partition,
)
from ottla.client.errors import ClientError, OffsetOutOfRange, UnknownTopic, error_for
from ottla.spark.plan import OffsetRange
from ottla.spark.shared_client import SharedClient
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import BatchError

logger = logging.getLogger(__name__)


class DataLoss(UserError):
    """Records that a query was to read no longer exist."""


class FetchedRecords(NamedTuple):
    records: Buffer
    aborted: list[tuple[int, int]] | None
    next_offset: int


def decoded(
    fetched: FetchedRecords, tp: TopicPartition, start: int, end: int, columns: list[str]
) -> Iterator[Any]:
    """Yield the records of a response between two offsets as Arrow record batches."""
    from ottla.wire.records.columnar.decode import decode_fetch

    try:
        for part in decode_fetch(
            fetched.records, columns, first_offset=start, end_offset=end, aborted=fetched.aborted
        ):
            if part.batch.num_rows:
                yield part.batch
    except BatchError as error:
        raise error_for(error.code, str(error), topic=tp.topic, partition=tp.partition) from error


class RangeReader:
    """Iterable over the decoded record batches of a range.

    Args:
        client: Client whose connections are used.
        config: Properties of the consumer.
        offset_range: The partition, and the offsets to read.
        columns: Columns to decode.
        fail_on_data_loss: Whether to raise DataLoss if offsets no longer exist.
        timeout_ms: Time without any data after which the read fails.
    """

    def __init__(
        self,
        client: SharedClient,
        config: ConsumerConfig,
        offset_range: OffsetRange,
        columns: list[str],
        *,
        fail_on_data_loss: bool,
        timeout_ms: int,
    ) -> None:
        self._client = client
        self._config = config
        self._tp = TopicPartition(offset_range.topic, offset_range.partition)
        self._position = offset_range.start
        self._end = offset_range.end
        self._columns = columns
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_ms = timeout_ms
        """Time without any data after which the read fails."""

    def __iter__(self) -> Iterator[Any]:
        """Yield decoded record batches."""
        next_fetch = self._client.start(self._fetch, self._position)
        while self._position < self._end:
            try:
                fetched = next_fetch.result()
            except (OffsetOutOfRange, UnknownTopic) as error:
                self._position = self._offset_after_loss(error)
                next_fetch = self._client.start(self._fetch, self._position)
                continue
            if fetched.next_offset < self._end:
                next_fetch = self._client.start(self._fetch, fetched.next_offset)
            yield from decoded(fetched, self._tp, self._position, self._end, self._columns)
            self._position = fetched.next_offset

    # ---------------------------------------------------------------------------- data loss

    def _offset_after_loss(self, error: ClientError) -> int:
        """Return the offset at which to continue, or raise DataLoss."""
        start, end = 0, 0
        if not isinstance(error, UnknownTopic):
            start, end = self._client.run(_log_bounds, self._client.cluster, self._tp)
        if start <= self._position <= end:
            return self._position  # a new leader had to catch up first
        what = (
            "the partition no longer exists"
            if isinstance(error, UnknownTopic)
            else f"the partition now has offsets {start} to {end}"
        )
        message = (
            f"Cannot read offsets {self._position} to {self._end} of {self._tp}: {what}. "
            "Records were deleted, or the topic was recreated."
        )
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{message} Set failOnDataLoss=false to continue with the remaining records."
            )
        logger.warning("%s", message)
        return start if self._position < start < self._end else self._end

    # ------------------------------------------------------------------------------ fetching

    async def _fetch(self, offset: int) -> FetchedRecords:
        cluster = self._client.cluster
        if offset >= self._end:
            return FetchedRecords(b"", None, offset)
        return await cluster.retrying(
            lambda: self._fetch_once(cluster, offset),
            timeout_ms=self._timeout_ms,
            what=f"reading {self._tp} from offset {offset}",
        )

    async def _fetch_once(self, cluster: Cluster, offset: int) -> FetchedRecords:
        tp, config = self._tp, self._config
        limits = FetchLimits(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=config.max_partition_fetch_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            isolation=config.isolation,
            rack=config.client_rack,
        )
        partition = await fetch_partition(cluster, tp, offset, limits)
        records = partition.records or b""
        end = next_offset(records, offset)
        if end == offset:
            raise error_for(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the fetch returned no batch at offset {offset}, before the end at {self._end}",
                topic=tp.topic,
                partition=tp.partition,
            )
        aborted = aborted_transactions(partition, config.isolation)
        return FetchedRecords(records, aborted, end)


async def _log_bounds(cluster: Cluster, tp: TopicPartition) -> tuple[int, int]:
    found = []
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        listed = await list_offsets(cluster, {tp: spec}, IsolationLevel.READ_UNCOMMITTED)
        found.append(listed.checked(False)[tp].offset or 0)
    return found[0], found[1]


def next_offset(records: Buffer, offset: int) -> int:
    """Return the offset after the last complete batch, from the headers alone."""
    end = offset
    try:
        for header in iter_headers(records):
            end = max(end, header.next_offset)
    except BatchError:
        # Decoding raises the error. A corrupt first batch must not look like an empty response.
        end = max(end, offset + 1)
    return end
