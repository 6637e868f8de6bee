"""Sink that prints records in the format of Kafka Streams' `print`: `[label]: key, value`."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame


class PrintSink:
    """Handler for `foreachBatch`. A batch that is repeated after a crash is printed again."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        for row in rows.select("key", "value").toLocalIterator():
            sys.stdout.write(f"[{self._label}]: {_text(row.key)}, {_text(row.value)}\n")
        sys.stdout.flush()


def _text(data: bytes | bytearray | None) -> str:
    return "null" if data is None else bytes(data).decode(errors="replace")
