"""Spool of rows that a bulk load has read, with a directory for each load.

    LOCATION/TABLE-CHECKSUM/TURN/part-00003    pickled lists of rows; a row is a tuple of its
                                               fields, or the message why it could not be read
                                 _SUCCESS      {"schema": …, "parts": [number of rows in each]}

A load is written to TURN-ID and renamed once, when it is complete. A worker that was presumed dead
may complete its own load late; it then finds that the turn already has one. Parts are read in
order, so that a number of rows is a valid position in the turn for every worker. The unpickler
accepts only plain values, whatever a file contains.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.atomic_file import replace_file
from ottla.connect.data import ConnectRecord, FailedRecord, Schema
from ottla.connect.json_converter import schema_from_json, schema_to_json

DONE = "_SUCCESS"
VALUES = {
    ("decimal", "Decimal"), ("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"),
    ("datetime", "timedelta"), ("datetime", "timezone"),
}  # fmt: skip
_ODD = re.compile(r"[^\w.-]")


def part_name(number: int) -> str:
    return f"part-{number:05}"


def write_rows(file: Any, rows: list[Any]) -> None:
    file.write(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))


class _Values(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in VALUES:
            raise pickle.UnpicklingError(f"{module}.{name} is not a type of values in rows")
        return super().find_class(module, name)


class Spool:
    """Spool of one table or query."""

    def __init__(self, location: Path, name: str, topic: str) -> None:
        self._folder = location / f"{_ODD.sub('_', name)}-{zlib.crc32(name.encode()):08x}"
        self._topic = topic

    def folder(self, load_id: int) -> Path:
        """Return the directory of a turn, which exists once its load is complete."""
        return self._folder / f"{load_id:08}"

    def is_whole(self, load_id: int) -> bool:
        return self.folder(load_id).is_dir()

    def begin(self, load_id: int) -> Path:
        """Create an empty directory for a load; raise UserError if that fails."""
        folder = self._folder / f"{load_id:08}-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            reason = (error.strerror or "it cannot be created").lower()
            raise UserError(f"Cannot use checkpoint.location, {folder}: {reason}.") from None
        return folder

    def finish(
        self, load_id: int, folder: Path, schema: Schema | None, parts: Sequence[int]
    ) -> None:
        data = {"schema": schema_to_json(schema), "parts": list(parts)}
        replace_file(folder / DONE, json.dumps(data).encode())
        try:
            os.rename(folder, self.folder(load_id))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # Another worker completed the load first.
            shutil.rmtree(folder, ignore_errors=True)

    def records(self, load_id: int, skipped: int) -> Iterator[ConnectRecord]:
        """Yield the records after the first `skipped`; raise UserError if a part is damaged."""
        folder = self.folder(load_id)
        data: dict[str, Any] = json.loads((folder / DONE).read_bytes())
        schema = schema_from_json(data["schema"])
        for number, rows in enumerate(data["parts"]):
            if skipped >= rows:
                skipped -= rows
                continue
            yield from self._part(folder / part_name(number), schema, rows, skipped)
            skipped = 0

    def _part(
        self, path: Path, schema: Schema | None, rows: int, skipped: int
    ) -> Iterator[ConnectRecord]:
        found = 0
        with open(path, "rb") as file:
            while found < rows:
                try:
                    chunk = _Values(file).load()
                    found += len(chunk)
                except (EOFError, pickle.UnpicklingError, ValueError, TypeError) as error:
                    raise UserError(
                        f"{path} is damaged: only {found} of its {rows} rows can be read "
                        f"({error}). To start over, reset the connector's offsets."
                    ) from None
                new = chunk[max(skipped - found + len(chunk), 0) :]
                yield from (self._record(row, schema) for row in new)

    def _record(self, row: Any, schema: Schema | None) -> ConnectRecord:
        assert schema is not None
        if isinstance(row, str):
            return FailedRecord(self._topic, None, error=row, source="JdbcSource")
        names = (each.name for each in schema.fields)
        return ConnectRecord(self._topic, dict(zip(names, row, strict=True)), schema)

    def drop_before(self, load_id: int) -> None:
        if not self._folder.is_dir():
            return
        for each in self._folder.iterdir():
            number = each.name.partition("-")[0]
            if number.isdecimal() and int(number) < load_id:
                shutil.rmtree(each, ignore_errors=True)

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
