"""Rules for processors and deduplication."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.python_functions import function_column
from ottla.streams.compile.rules import Inputs, Rules
from ottla.streams.compile.stateful import run_clock_program, run_program
from ottla.streams.operators.processing import Deduplicated, Processed
from ottla.streams.plan.shapes import type_of
from ottla.streams.state.processors import Processing


def _processed(node: Processed, inputs: Inputs) -> DataFrame:
    clock = None if node.clock_ms is None else inputs.topics.clock(node.clock_ms)
    rows = inputs.frame(node.parent)
    schema = f"key {type_of(node.key)}, value {type_of(node.value)}, timestamp timestamp"
    if clock is not None:
        return run_clock_program(Processing(node.factory), [rows], schema, clock)
    return run_program(Processing(node.factory), [rows], schema)


def _deduplicated(node: Deduplicated, inputs: Inputs) -> DataFrame:
    identity = function_column(node.function, ROWS, "string", ())
    delay = f"{node.watermark_delay_ms} milliseconds"
    rows = inputs.frame(node.parent).withWatermark("timestamp", delay)
    marked = rows.withColumn("_identity", identity)
    return marked.dropDuplicatesWithinWatermark(["_identity"]).drop("_identity")


RULES: Rules = {Processed: _processed, Deduplicated: _deduplicated}
