"""The clock on the wall as a stream of Spark's: a row now and then, with the time in it.

offset   {CLOCK: ms}: what the clock shows. It is in the query's checkpoint before the batch
         runs, so a batch that is run again sees the same time; and it never goes back
tick     the first at once, the next when `every_ms` have passed since the batch of the last one
         was over: a query whose batches take longer than that still has nothing to do at times"""

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
        self._shown_ms = 0
        self._shown_at_s = float("-inf")
        """When the batch of the last tick was found to be over."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {CLOCK: 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start[CLOCK] != self._shown_ms:
            self._shown_ms, self._shown_at_s = start[CLOCK], time.monotonic()
        if time.monotonic() < self._shown_at_s + self._every_s:
            return start
        return {CLOCK: max(time.time_ns() // 1_000_000, self._shown_ms + 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [] if start == end else [_Tick(end[CLOCK])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Tick)
        yield (partition.ms,)

    def commit(self, end: dict[str, Any]) -> None:
        """What is over is told by the next `start`."""
