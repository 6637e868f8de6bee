"""Spark streaming source of wall-clock ticks: rows that hold the current time.

offset   {CLOCK: ms}, the time on the clock. Spark writes it to the query's checkpoint before the
         batch runs, so a batch that is repeated sees the same time. It never decreases.
tick     The first is due at once, the next `every_ms` after the end of the last tick's batch. A
         query is therefore idle at times even if its batches take longer than `every_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ottla.streams.progress import CLOCK

EVERY_MS = "every.ms"


class WallClock(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-wall-clock"

    def schema(self) -> str:
        return "ms bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return WallClockReader(int(self.options[EVERY_MS]))


@dataclass(frozen=True)
class _Tick(InputPartition):
    ms: int


class WallClockReader(DataSourceStreamReader):
    def __init__(self, every_ms: int) -> None:
        self._every_s = every_ms / 1000
        self._last_tick_ms = 0
        self._last_tick_done_s = float("-inf")
        """Monotonic time at which the batch of the last tick was found to have ended."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {CLOCK: 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start[CLOCK] != self._last_tick_ms:
            self._last_tick_ms, self._last_tick_done_s = start[CLOCK], time.monotonic()
        if time.monotonic() < self._last_tick_done_s + self._every_s:
            return start
        return {CLOCK: max(time.time_ns() // 1_000_000, self._last_tick_ms + 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [] if start == end else [_Tick(end[CLOCK])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Tick)
        yield (partition.ms,)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the next `start` offset shows that the batch has ended."""
