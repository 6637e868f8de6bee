"""Wall-clock ticks for programs with Python state.

    tick    one row for each bucket, packed like records, with a side of its own
    state   (pickled state of the program, wall-clock time of its next call, stream time of its
            next call)

A bucket in which nothing is due is thus neither unpickled nor written again. A batch without a tick
uses the processing time that Spark recorded for the batch in the query's checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ottla.streams.state.program import BUCKETS

SIDE = -1
STATE = "data binary, tick_ms bigint, time_ms bigint"


def packed_ticks(clock: DataFrame) -> DataFrame:
    """Return a packed tick for each bucket.

    Ticks are not events: their timestamp is 0, so that they do not advance the watermark.
    """
    return clock.select(
        f.explode(f.sequence(f.lit(0), f.lit(BUCKETS - 1))).alias("bucket"),
        f.lit(SIDE).alias("side"),
        f.lit(0).alias("task"),
        f.lit(0).alias("number"),
        f.timestamp_millis(f.lit(0)).alias("latest"),
        f.col("ms").cast("string").cast("binary").alias("rows"),
    )


def separate_ticks(packs: Sequence[Any]) -> tuple[list[Any], int | None]:
    """Separate the ticks from the packs of records, and return the latest tick, if any."""
    ticks = [int(pack.rows) for pack in packs if pack.side == SIDE]
    return [pack for pack in packs if pack.side != SIDE], max(ticks, default=None)


def has_nothing_due(state: Any, wall_clock_ms: int, stream_time_ms: int) -> bool:
    """Return whether a bucket that received a tick and no records has nothing to do.

    Spark clears the timeout of a bucket that it calls, so the timeout is set again.
    """
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
