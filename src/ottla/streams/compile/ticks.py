"""The clock on the wall, for programs with Python state.

    tick    a row for each bucket, packed as its records are, of a side of its own
    state   (the program's, pickled; the time on the wall at which it wants to be called; the stream
            time at which it does)

So a bucket in which nothing is due is neither unpickled nor written again. A batch without a tick
has the time that Spark noted for it in the query's checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ottla.streams.state.program import BUCKETS

SIDE = -1
STATE = "data binary, tick_ms bigint, time_ms bigint"


def packed_ticks(clock: DataFrame) -> DataFrame:
    """Of rows of `ms`. They are no events: their time is none for the watermark."""
    return clock.select(
        f.explode(f.sequence(f.lit(0), f.lit(BUCKETS - 1))).alias("bucket"),
        f.lit(SIDE).alias("side"),
        f.lit(0).alias("task"),
        f.lit(0).alias("number"),
        f.timestamp_millis(f.lit(0)).alias("latest"),
        f.col("ms").cast("string").cast("binary").alias("rows"),
    )


def taken_out(packs: Sequence[Any]) -> tuple[list[Any], int | None]:
    """Packs of records, and what the clock shows if there was a tick."""
    ticks = [int(pack.rows) for pack in packs if pack.side == SIDE]
    return [pack for pack in packs if pack.side != SIDE], max(ticks, default=None)


def is_nothing_due(state: Any, wall_clock_ms: int, stream_time_ms: int) -> bool:
    """For a bucket that got a tick and no records. Spark forgets when to call it, so it is told
    again."""
    if not state.exists:
        return True
    _, tick_ms, time_ms = state.get
    if tick_ms is not None and tick_ms <= wall_clock_ms:
        return False
    if time_ms is not None:
        if time_ms <= stream_time_ms:
            return False
        state.setTimeoutTimestamp(max(time_ms - 1, stream_time_ms, 1))
    return True
