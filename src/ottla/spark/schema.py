"""Rows of the source, in the schema of Spark's own Kafka source.

    key, value     binary                topic          string
    partition      int                   offset         bigint
    timestamp      timestamp             timestampType  int (0 CreateTime, 1 LogAppendTime)
    headers        array<struct<key: string, value: binary>>, with includeHeaders; null if none

Spark does not tell a Python source which columns a query uses. To read fewer, pass a schema:
`.schema("value BINARY, offset BIGINT")` decodes only these columns.

A timestamp outside Spark's range (microseconds in 64 bits) becomes null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.errors import InvalidConfig

MAX_ROWS = 50_000
"""Maximum rows per batch passed to Spark; larger batches are not faster and need more memory."""
_MAX_MS = (2**63 - 1) // 1000

HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
FIELDS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_DECODED = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}


def source_schema(include_headers: bool) -> StructType:
    return StructType([*FIELDS, HEADERS] if include_headers else list(FIELDS))


def check_schema(requested: StructType) -> None:
    """Raise InvalidConfig unless a user's schema consists of known columns with their types."""
    known = {each.name: each for each in (*FIELDS, HEADERS)}
    for each in requested.fields:
        if each.name not in known:
            raise InvalidConfig(
                f"Unknown column '{each.name}'. The columns of a topic are {', '.join(known)}. "
                "Use ottla.spark.table() to read the fields of values as columns."
            )
        expected = known[each.name].dataType
        if each.dataType != expected:
            raise InvalidConfig(
                f"Column '{each.name}' is {expected.simpleString()}, "
                f"not {each.dataType.simpleString()}."
            )


def _repeated_text(text: str) -> Any:
    """Return a text MAX_ROWS times. Arrow's own functions for this would import pandas."""
    import numpy
    import pyarrow as pa

    data = text.encode()
    ends = numpy.arange(MAX_ROWS + 1, dtype=numpy.int32) * numpy.int32(len(data))
    buffers = (pa.py_buffer(ends), pa.py_buffer(data * MAX_ROWS))
    return pa.StringArray.from_buffers(MAX_ROWS, *buffers)


def _repeated_number(number: int) -> Any:
    import numpy
    import pyarrow as pa

    data = pa.py_buffer(numpy.full(MAX_ROWS, number, numpy.int32))
    return pa.Array.from_buffers(pa.int32(), MAX_ROWS, [None, data])


class RowConverter:
    """Converter from the records of one partition to rows of a schema."""

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        self._arrow = pyarrow
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = schema.fieldNames()
        decoded = [_DECODED[name] for name in self._names if name in _DECODED]
        self.columns: list[str] = decoded or ["offset"]
        """Columns that must be decoded."""
        self._constants: dict[str, Any] = {}
        if "topic" in self._names:
            self._constants["topic"] = _repeated_text(topic)
        if "partition" in self._names:
            self._constants["partition"] = _repeated_number(partition)

    def batches(self, records: Any) -> Iterator[Any]:
        """Yield a decoded record batch as rows, at most MAX_ROWS at a time."""
        for start in range(0, records.num_rows, MAX_ROWS):
            part = records.slice(start, MAX_ROWS)
            arrays = [self._column(name, part) for name in self._names]
            yield self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, records: Any) -> Any:
        if name in self._constants:
            return self._constants[name].slice(0, records.num_rows)
        column = records.column(_DECODED[name])
        if name == "timestamp":
            return self._times(column)
        if name == "headers":
            return self._headers(column)
        return column

    def _times(self, ms: Any) -> Any:
        pa = self._arrow
        import pyarrow.compute as pc

        if len(ms):
            bounds = pc.min_max(ms).as_py()
            if not -_MAX_MS <= bounds["min"] <= bounds["max"] <= _MAX_MS:
                fits = pc.and_(pc.less_equal(ms, _MAX_MS), pc.greater_equal(ms, -_MAX_MS))
                ms = pc.if_else(fits, ms, pa.scalar(None, pa.int64()))
        return ms.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))

    def _headers(self, column: Any) -> Any:
        pa = self._arrow
        kind = self._schema.field("headers").type
        if not len(column):
            return pa.array([], kind)
        pairs = column.values
        struct = pa.StructArray.from_arrays(
            [pairs.field("key"), pairs.field("value")], fields=list(kind.value_type)
        )
        import pyarrow.compute as pc

        # As in Spark's own source, a record without headers has null.
        none = pc.equal(pc.list_value_length(column), 0)
        return pa.ListArray.from_arrays(column.offsets, struct, type=kind, mask=none)
