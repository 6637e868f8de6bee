"""Planner of `spark.readStream.format("ottla")`, which runs in one process as long as the query.

    initialOffset   start of a new query; Spark asks repeatedly, and again after a crash in the
                    first batch, so the end offset of that batch also records where it starts
    latestOffset    end of the next batch; `start` is the end of the last completed one. The
                    request fetches the first records as well (`prefetch`)
    partitions      the tasks of a batch, the same ones if the batch is rerun. Small batches contain
                    their records; those of a single task are passed as rows (`planned_rows`)
    commit          a batch is completed

With a group, completed offsets are committed to it, so that every Kafka tool shows the query's lag.
This happens when Spark asks for the next batch, which is earlier than its own `commit`. With
`resumeFrom=group`, offsets that another tool has committed to the group since (a reset) take
precedence over the checkpoint when the query starts. The move is part of the batch's end offset, so
a batch that is rerun starts at the same place; and the query marks it as handled, by committing it
with its own metadata, only once that batch is in the checkpoint. With `resumeFrom=reset`, such
offsets apply only to a query without a checkpoint, whose state must be rebuilt as well."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.errors import AuthorizationFailed, ClientError
from ottla.spark.cluster_offsets import ClusterOffsets
from ottla.spark.offsets import (
    Latest,
    Offsets,
    from_json,
    start_overrides_in,
    to_json,
    with_start_overrides,
)
from ottla.spark.options import SourceOptions
from ottla.spark.plain_errors import plain_errors
from ottla.spark.plan import (
    FIRST_OFFSET,
    OffsetRange,
    TriggerThreshold,
    losses,
    ranges_between,
    rate_limited,
    split,
)
from ottla.spark.planned_rows import pass_rows_with_plan
from ottla.spark.prefetch import Prefetched
from ottla.spark.range_partition import RangePartition, read_range
from ottla.spark.range_reader import DataLoss, FetchedRecords

logger = logging.getLogger(__name__)

PARTITIONS_REFRESH_S = 1.0
"""Interval at which to look for new partitions and topics, in seconds."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._offsets = ClusterOffsets(options)
        self._threshold = TriggerThreshold(
            options.min_offsets_per_trigger, options.max_trigger_delay_ms
        )
        self._partitions: list[TopicPartition] = []
        self._partitions_at = float("-inf")
        self._available_now: Offsets | None = None
        self._latest: Offsets | None = None
        self._prefetched: Prefetched | None = None
        self._committed: dict[str, Any] | None = None
        self._initial: dict[str, Any] | None = None
        self._may_be_reset = options.resumes_from_group
        """Whether the group's offsets have yet to be checked for a reset."""

    # ------------------------------------------------------------------------------- offsets

    @plain_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._initial is not None:
            return self._initial
        partitions = self._offsets.partitions()
        start = self._offsets.offsets("startingOffsets", self._options.starting, partitions)
        if self._may_be_reset or self._options.resumes_from_reset:
            committed = self._offsets.committed(partitions)
            start |= {
                tp: offset
                for tp, (offset, is_ours) in committed.items()
                if tp in start and not (is_ours and self._options.resumes_from_reset)
            }
            self._may_be_reset = False
        self._initial = to_json(start)
        return self._initial

    @plain_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_json(start)
        reset = self._reset_offsets(begin)
        if not reset and not (self._options.resumes_from_reset and start == self._initial):
            self._commit_finished(start)
        latest = self._latest_offsets(begin | reset)
        end = latest
        if self._available_now is not None:
            end = {tp: min(offset, latest.get(tp, offset))
                   for tp, offset in self._available_now.items()}  # fmt: skip
        self._latest = latest
        origin = begin | {tp: offset for tp, offset in reset.items() if tp in end}
        if not isinstance(limit, ReadAllAvailable):
            now_ms = time.time_ns() // 1_000_000
            if self._available_now is None and not self._threshold.is_reached(origin, end, now_ms):
                end = origin
            elif self._options.max_offsets_per_trigger is not None:
                end = rate_limited(origin, end, self._options.max_offsets_per_trigger)
        if not reset and end == begin:
            return start
        return with_start_overrides(end, begin if start == self._initial else reset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._partitions_at = float("-inf")
        self._available_now = self._latest_offsets()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def _latest_offsets(self, positions: Offsets | None = None) -> Offsets:
        """Return the ends of the subscribed partitions.

        Args:
            positions: Where the next batch starts, to prefetch its records. None prefetches none.
        """
        now = time.monotonic()
        if now - self._partitions_at > PARTITIONS_REFRESH_S:
            self._partitions = self._offsets.partitions()
            self._partitions_at = now
        self._prefetched = None
        if positions is not None:
            wanted = {tp: positions.get(tp, FIRST_OFFSET) for tp in self._partitions}
            self._prefetched = self._offsets.prefetch(wanted)
        if self._prefetched is not None:
            return self._prefetched.ends
        return self._offsets.offsets("latest", Latest(), self._partitions)

    # -------------------------------------------------------------------------------- batches

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        begin, until, overrides = from_json(start), from_json(end), start_overrides_in(end)
        if overrides:
            begin |= overrides
            if self._options.group_id is not None:
                self._commit(overrides)
        lost = losses(begin, until)
        if lost:
            message = f"Records were deleted before the query read them: {'; '.join(lost)}."
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{message} Set failOnDataLoss=false to continue with the remaining records."
                )
            logger.warning("%s", message)
        ranges = split(
            ranges_between(begin, until),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        planned = [RangePartition(each, self._fetched(each)) for each in ranges]
        if len(planned) == 1 and planned[0].fetched is not None:
            pass_rows_with_plan(self, planned[0])
        return planned

    def _fetched(self, offset_range: OffsetRange) -> FetchedRecords | None:
        return None if self._prefetched is None else self._prefetched.records_of(offset_range)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._schema, partition)

    @plain_errors()
    def commit(self, end: dict[str, Any]) -> None:
        self._commit_finished(end)

    def __getstate__(self) -> dict[str, Any]:
        # Executors need only what `read` uses.
        return {"_options": self._options, "_schema": self._schema}

    # ---------------------------------------------------------------------------------- group

    def _reset_offsets(self, begin: Offsets) -> Offsets:
        """Return the offsets to which another tool moved the group while the query was stopped."""
        if not self._may_be_reset:
            return {}
        self._may_be_reset = False
        committed = self._offsets.committed(begin)
        return {
            tp: offset
            for tp, (offset, is_ours) in committed.items()
            if not is_ours and offset != begin.get(tp)
        }

    def _commit_finished(self, offsets: dict[str, Any]) -> None:
        if self._options.group_id is None or offsets == self._committed:
            return
        if self._commit(from_json(offsets)):
            self._committed = offsets

    def _commit(self, offsets: Offsets) -> bool:
        """Commit to the group; return False after a retriable error, as the next commit includes
        the same offsets."""
        try:
            self._offsets.commit(offsets)
        except AuthorizationFailed:
            raise
        except KafkaError as error:
            if not error.retriable:
                raise ClientError(
                    f"cannot commit offsets of group '{self._options.group_id}': {error}",
                    code=error.code,
                ) from error
            logger.warning(
                "could not commit offsets of group '%s', retrying with the next batch: %s",
                self._options.group_id,
                error,
            )
            return False
        return True
