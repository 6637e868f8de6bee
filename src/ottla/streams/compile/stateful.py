"""Programs with Python state, on Spark's state store.

    rows -> bucket by the hash of the key    columns, in the JVM
         -> packed: one row per bucket       Arrow, in the tasks of the source
         -> grouped by bucket                Spark's shuffle, of a few large rows
         -> the program, once per bucket     state of the bucket, pickled as one value in Spark
         -> unpacked                         Arrow

Packed rows are (bucket, side, task, number, latest, rows). `rows` is an Arrow stream; side, task
and number restore the order; latest is the greatest timestamp, from which Spark computes the
watermark. Records of one task keep their order. Tasks are merged by timestamp, as Kafka Streams
merges partitions: the next record always comes from the task whose next record is the oldest.

Spark drops rows behind the watermark before the program sees them, but windows must decide for
themselves which records are late. The watermark column is therefore replaced by a time in the far
future once Spark has computed the watermark from it.

Spark allows one such operator per query.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.streams.compile import ticks
from ottla.streams.state.program import BUCKETS, Batch, ClockProgram, Output, Program, State

PACK_ROWS = 200_000
PACK_BYTES = 64 * 1024 * 1024
OUTPUT_ROWS = 50_000
"""Maximum number of rows in an Arrow stream of a program's output."""
PACKED = "bucket int, side int, task int, number int, latest timestamp, rows binary"
END_OF_TIME = "2200-01-01 00:00:00"
"""Later than any watermark, and still in the range of pandas."""
DELAY_KEY = "spark.watermarkDelayMs"
"""Metadata key by which Spark marks a watermark column."""


def run_program(
    program: Program, inputs: Sequence[DataFrame], schema: str, bucket_by: str = "key"
) -> DataFrame:
    """Run a program over inputs with the columns key, value and timestamp, one input per side.

    Returns:
        Rows of `schema`: key, value, timestamp, and window and late if the schema has them.
    """
    return _run(program, inputs, schema, bucket_by, None)


def run_clock_program(
    program: ClockProgram, inputs: Sequence[DataFrame], schema: str, clock: DataFrame
) -> DataFrame:
    """Run a program that also receives wall-clock ticks, as rows of `ms`."""
    return _run(program, inputs, schema, "key", clock)


def _run(
    program: Program,
    inputs: Sequence[DataFrame],
    schema: str,
    bucket_by: str,
    clock: DataFrame | None,
) -> DataFrame:
    packed = _packed(inputs[0], 0, bucket_by)
    for side, rows in enumerate(inputs[1:], 1):
        packed = packed.unionByName(_packed(rows, side, bucket_by))
    if clock is not None:
        packed = packed.unionByName(ticks.packed_ticks(clock))
    timeout = "NoTimeout"
    if program.needs_time:
        timeout = "EventTimeTimeout"
        counted = packed.withWatermark("latest", "0 seconds")
        never_late = f.lit(END_OF_TIME).cast("timestamp").alias("latest", metadata={DELAY_KEY: 0})
        others = [name for name in packed.columns if name != "latest"]
        packed = counted.select(*others, never_late)
    arrow = to_arrow_schema(_struct(schema), timezone="UTC")
    runner, state = _runner(program, arrow, clock is not None), "data binary"
    done = packed.groupBy("bucket").applyInPandasWithState(
        runner, "rows binary", state if clock is None else ticks.STATE, "append", timeout
    )
    return done.mapInArrow(_unpack, schema)


def _struct(schema: str) -> StructType:
    made = StructType.fromDDL(schema)
    if not isinstance(made, StructType):
        raise AssertionError(f"{schema} is not a struct")
    return made


# ---------------------------------------------------------------------------------------- packing


def _packed(rows: DataFrame, side: int, bucket_by: str) -> DataFrame:
    bucket = f.pmod(f.hash(f.col(bucket_by)), f.lit(BUCKETS))
    chosen = rows.select("key", "value", "timestamp", bucket.alias("bucket"))
    return chosen.mapInArrow(_packer(side), PACKED)


def _packer(side: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        waiting: list[Any] = []
        number = 0
        for batch in batches:
            waiting.append(batch)
            is_enough = (
                sum(each.num_rows for each in waiting) >= PACK_ROWS
                or sum(each.nbytes for each in waiting) >= PACK_BYTES
            )
            if is_enough:
                yield _pack(waiting, side, task, number)
                waiting, number = [], number + 1
        if any(each.num_rows for each in waiting):
            yield _pack(waiting, side, task, number)

    return pack


def _pack(batches: list[Any], side: int, task: int, number: int) -> Any:
    import numpy as np
    import pyarrow as pa

    table = pa.Table.from_batches(batches).combine_chunks()
    buckets = table.column("bucket").to_numpy()
    order = np.argsort(buckets, kind="stable")
    ordered = table.drop_columns(["bucket"]).take(pa.array(order)).combine_chunks()
    sorted_buckets = buckets[order]
    starts = np.flatnonzero(np.r_[True, sorted_buckets[1:] != sorted_buckets[:-1]])
    ends = np.r_[starts[1:], len(sorted_buckets)]
    times = ordered.column("timestamp").combine_chunks().cast(pa.int64()).to_numpy()
    count = len(starts)
    streams = [
        _stream(ordered.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)
    ]
    latest = pa.array(np.maximum.reduceat(times, starts), pa.int64())
    columns = [
        pa.array(sorted_buckets[starts], pa.int32()),
        pa.array(np.full(count, side), pa.int32()),
        pa.array(np.full(count, task), pa.int32()),
        pa.array(np.full(count, number), pa.int32()),
        latest.cast(pa.timestamp("us", "UTC")),
        pa.array(streams, pa.binary()),
    ]
    return pa.record_batch(columns, ["bucket", "side", "task", "number", "latest", "rows"])


def _stream(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpack(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for rows in batch.column(0):
            yield from pa.ipc.open_stream(rows.as_buffer())


# ---------------------------------------------------------------------------------------- running


def _runner(program: Program, schema: Any, has_clock: bool) -> Callable[..., Iterator[Any]]:
    def run(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd  # type: ignore[import-untyped]

        packs = [
            pack
            for each in frames
            for pack in each.itertuples(index=False)
            if isinstance(pack.rows, bytes)
        ]
        stream_time_ms = state.getCurrentWatermarkMs() if program.needs_time else 0
        wall_clock_ms, tick_ms = 0, None
        if has_clock:
            packs, tick_ms = ticks.separate_ticks(packs)
            wall_clock_ms = state.getCurrentProcessingTimeMs() if tick_ms is None else tick_ms
            is_only_tick = tick_ms is not None and not packs
            if is_only_tick and ticks.has_nothing_due(state, wall_clock_ms, stream_time_ms):
                return
        with gc_disabled():
            data: State = pickle.loads(bytes(state.get[0])) if state.exists else {}
            batch = _batch(packs)
            if has_clock:
                batch = replace(batch, wall_clock_ms=wall_clock_ms, is_tick=tick_ms is not None)
            outputs = program.run(data, batch, stream_time_ms)
            _save_state(program, state, data, stream_time_ms, has_clock)
            streams = [_output_stream(chunk, schema) for chunk in _chunks(list(outputs))]
        yield pd.DataFrame({"rows": streams})

    return run


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector for the duration of the block.

    The records and the state of a bucket are many live objects without cycles. Scanning them again
    and again while they are created takes several times as long as creating them. Cycles that a
    user's function leaves behind are collected after the bucket.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _save_state(
    program: Program, state: Any, data: State, stream_time_ms: int, has_clock: bool
) -> None:
    if not data:
        if state.exists:
            state.remove()
        return
    next_ms = program.next_time_ms(data) if program.needs_time else None
    kept: tuple[Any, ...] = (pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL),)
    if has_clock:
        kept += (cast(ClockProgram, program).next_tick_ms(data), next_ms)
    state.update(kept)
    if next_ms is not None:
        # Spark fires the timeout once the watermark is greater than it.
        state.setTimeoutTimestamp(max(next_ms - 1, stream_time_ms, 1))


def _batch(packs: list[Any]) -> Batch:
    if not packs:
        return Batch()
    import numpy as np
    import pyarrow as pa

    from ottla.streams.compile.arrow_rows import milliseconds_of, values_of

    runs: dict[tuple[int, int], list[Any]] = {}
    for pack in sorted(packs, key=lambda each: (each.side, each.task, each.number)):
        table = pa.ipc.open_stream(pack.rows).read_all()
        runs.setdefault((pack.side, pack.task), []).append(table)
    keys: list[Any] = []
    values: list[Any] = []
    times: list[Any] = []
    for tables in runs.values():
        table = pa.concat_tables(tables)
        keys += values_of(table.column("key"))
        values += values_of(table.column("value"))
        times.append(milliseconds_of(table.column("timestamp")))
    times_ms = np.concatenate(times)
    sides = np.repeat([side for side, _ in runs], [len(each) for each in times])
    if len(runs) == 1:
        return Batch(keys, values, times_ms.tolist(), sides.tolist())
    passed = np.concatenate([np.maximum.accumulate(each) for each in times])
    order = np.argsort(passed, kind="stable")
    places = order.tolist()
    return Batch(
        list(map(keys.__getitem__, places)),
        list(map(values.__getitem__, places)),
        times_ms[order].tolist(),
        sides[order].tolist(),
    )


def _chunks(outputs: list[Output]) -> Iterator[list[Output]]:
    for start in range(0, len(outputs), OUTPUT_ROWS):
        yield outputs[start : start + OUTPUT_ROWS]


def _output_stream(outputs: list[Output], schema: Any) -> bytes:
    import pyarrow as pa

    from ottla.streams.compile.arrow_rows import column_of, timestamps_of

    keys, values, times_ms, windows, late = zip(*outputs, strict=True)
    made = {
        "key": lambda kind: column_of(keys, kind, "the key"),
        "value": lambda kind: column_of(values, kind, "the value"),
        "timestamp": lambda kind: timestamps_of(times_ms, kind),
        "window": lambda kind: _windows(windows, kind),
        "late": lambda kind: column_of(late, kind, "the late value"),
    }
    columns = [made[field.name](field.type) for field in schema]
    return _stream(pa.Table.from_arrays(columns, schema=schema))


def _windows(windows: Sequence[tuple[int, int] | None], kind: Any) -> Any:
    import pyarrow as pa

    from ottla.streams.compile.arrow_rows import timestamps_of

    bounds = [each or (0, 0) for each in windows]
    ends = [timestamps_of([each[side] for each in bounds], kind[side].type) for side in (0, 1)]
    missing = pa.array([each is None for each in windows], pa.bool_())
    return pa.StructArray.from_arrays(ends, fields=list(kind), mask=missing)
