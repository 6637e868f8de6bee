"""Staging of records as Arrow streams, and their conversion to Parquet files.

A staged stream has no end marker: the state stores its valid length, and more can be appended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROWS_PER_GROUP = 128 * 1024


class StagedWriter:
    """Writer that appends tables of one schema to a new file."""

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow as pa

        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._schema = schema
        self._stream = pa.ipc.new_stream(self._file, schema)
        self._is_synced = False

    def takes(self, table: Any) -> bool:
        return bool(table.schema.equals(self._schema))

    def write(self, table: Any) -> int:
        """Append a table and return the new length of the file."""
        for batch in table.combine_chunks().to_batches():
            self._stream.write_batch(batch)
        self._is_synced = False
        return self._file.tell()

    def sync(self) -> None:
        if not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        # The stream is not closed: it would write an end marker after the length in the state.
        self._file.close()


@contextmanager
def staged_stream(path: Path, length: int) -> Iterator[Any]:
    """Open a staged stream, up to its valid length."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        yield pa.ipc.open_stream(pa.BufferReader(source.read_buffer(length)))


def make_parquet(staged: Sequence[tuple[Path, int]], folder: Path, codec: str) -> list[Path]:
    """Write staged streams to Parquet files and sync them.

    The result is one file, or one for each stream if their schemas cannot be unified.
    """
    import pyarrow as pa

    schemas = [_schema(*each) for each in staged]
    try:
        whole = pa.unify_schemas(schemas, promote_options="permissive")
        return [_make(staged, whole, folder / "making-0", codec)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return [
            _make([each], schema, folder / f"making-{number}", codec)
            for number, (each, schema) in enumerate(zip(staged, schemas, strict=True))
        ]


def _schema(path: Path, length: int) -> Any:
    with staged_stream(path, length) as stream:
        return stream.schema


def _batches(staged: Sequence[tuple[Path, int]]) -> Iterator[Any]:
    for each in staged:
        with staged_stream(*each) as stream:
            yield from stream


def _make(staged: Sequence[tuple[Path, int]], schema: Any, path: Path, codec: str) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    gathered: list[Any] = []
    rows = 0
    with open(path, "wb") as file, pq.ParquetWriter(file, schema, compression=codec) as writer:
        for batch in _batches(staged):
            table = pa.Table.from_batches([batch])
            if not table.schema.equals(schema):
                both = [schema.empty_table(), table]
                table = pa.concat_tables(both, promote_options="permissive").cast(schema)
            gathered.append(table)
            rows += batch.num_rows
            if rows >= ROWS_PER_GROUP:
                writer.write_table(pa.concat_tables(gathered).combine_chunks())
                gathered, rows = [], 0
        if gathered:
            writer.write_table(pa.concat_tables(gathered).combine_chunks())
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return path
