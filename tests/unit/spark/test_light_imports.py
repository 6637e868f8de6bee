"""Processes that plan streams start quickly: decoding rows does not import pandas."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import pyarrow as pa
from ottla.spark.schema import MAX_ROWS, RowConverter
from ottla.wire.records.columnar import decode
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
schema = StructType([StructField("topic", StringType()), StructField("partition", IntegerType())])
rows = RowConverter(schema, "données", 7)
offsets = pa.nulls(2, pa.int64())
(batch,) = rows.batches(pa.RecordBatch.from_arrays([offsets], ["offset"]))
assert "pandas" not in sys.modules
assert batch.to_pylist() == [{"topic": "données", "partition": 7}] * 2
"""


def test_constant_columns_are_made_without_pandas() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
