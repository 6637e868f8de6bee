"""Process that calls Python functions for a task of a real-time query, one row at a time."""

from __future__ import annotations

import struct
from typing import Any

from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.realtime.frames import FramePipe, Setup, run_end

_NUMBER = struct.Struct(">i")


class RowFunction:
    """A function, with conversions of its arguments and its result as Spark's own workers do them.

    Args:
        pickled: The function, the types of its arguments and that of its result; see `functions`.
    """

    def __init__(self, pickled: bytes) -> None:
        import pyarrow as pa
        from pyspark import cloudpickle
        from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        self._function, inputs, result = cloudpickle.loads(pickled)
        self._inputs = to_arrow_schema(inputs, timezone="UTC")
        self.schema = to_arrow_schema(StructType([StructField("result", result)]), timezone="UTC")
        self._arguments: list[Any] = [
            ArrowTableToRowsConversion._create_converter(each.dataType) for each in inputs.fields
        ]
        self._result: Any = LocalDataToArrowConversion._create_converter(result)
        self._pa = pa

    def call(self, body: Any) -> Any:
        """Return the result of the function for a row, both as Arrow messages."""
        pa = self._pa
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), self._inputs)
        arguments = (
            convert(column[0].as_py())
            for convert, column in zip(self._arguments, batch.columns, strict=True)
        )
        result = self._result(self._function(*arguments))
        array = pa.array([result], self.schema.types[0])
        return pa.RecordBatch.from_arrays([array], schema=self.schema).serialize()


def run(pipe: FramePipe, setup: Setup) -> None:
    functions: dict[int, RowFunction] = {}
    while True:
        frame = pipe.read()
        (number,) = _NUMBER.unpack_from(frame.body)
        body = memoryview(frame.body)[_NUMBER.size :]
        if frame.kind == b"D":
            functions[number] = made = RowFunction(bytes(body))
            pipe.write(b"S", made.schema.serialize())
            freeze_modules()
        else:
            pipe.write(b"C", functions[number].call(body))


if __name__ == "__main__":
    run_end(run)
