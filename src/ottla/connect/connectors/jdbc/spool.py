"""Rows that were read at once and are given out one after another: a folder for each load.

    LOCATION/TABLE-CHECKSUM/TURN/part-00003    a row a line: its fields as JSON, or a text, why not
                                 _SUCCESS      when all of it is there: {"schema": …, "parts": […]}

A load without _SUCCESS never was. Parts are given out in their order, so that "so many rows of this
turn" is a place in it, also for another worker that has the same folder."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.atomic_file import replace_file
from ottla.connect.data import FailedRecord, Record, Schema
from ottla.connect.json_converter import JsonConverter, schema_from_json, schema_to_json

DONE = "_SUCCESS"
_ODD = re.compile(r"[^\w.-]")


def part_name(number: int) -> str:
    return f"part-{number:05}"


class Spool:
    """Of one table or query."""

    def __init__(self, location: Path, name: str, topic: str) -> None:
        self._folder = location / f"{_ODD.sub('_', name)}-{zlib.crc32(name.encode()):08x}"
        self._topic = topic
        self._json = JsonConverter({"schemas.enable": False})

    def folder(self, turn: int) -> Path:
        return self._folder / f"{turn:08}"

    def is_whole(self, turn: int) -> bool:
        return (self.folder(turn) / DONE).exists()

    def begin(self, turn: int) -> Path:
        """Empty, for a load. Raises UserError."""
        folder = self.folder(turn)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        except OSError as error:
            reason = (error.strerror or "it cannot be made").lower()
            raise UserError(f"Cannot use checkpoint.location, {folder}: {reason}.") from None
        return folder

    def finish(self, turn: int, schema: Schema | None, parts: Sequence[int]) -> None:
        told = {"schema": schema_to_json(schema), "parts": list(parts)}
        replace_file(self.folder(turn) / DONE, json.dumps(told).encode())

    def records(self, turn: int, skipped: int) -> Iterator[Record]:
        """Without the first ones."""
        told: dict[str, Any] = json.loads((self.folder(turn) / DONE).read_bytes())
        schema = schema_from_json(told["schema"])
        for number, rows in enumerate(told["parts"]):
            if skipped >= rows:
                skipped -= rows
                continue
            with open(self.folder(turn) / part_name(number), "rb") as file:
                for at, line in enumerate(file):
                    if at >= skipped:
                        yield self._record(line, schema)
            skipped = 0

    def _record(self, line: bytes, schema: Schema | None) -> Record:
        assert schema is not None
        if line.startswith(b'"'):
            said = json.loads(line)
            return FailedRecord(self._topic, None, error=said, source="JdbcSource")
        return Record(self._topic, self._json.value_in(schema, line), schema)

    def drop_before(self, turn: int) -> None:
        if not self._folder.is_dir():
            return
        for each in self._folder.iterdir():
            if each.name.isdecimal() and int(each.name) < turn:
                shutil.rmtree(each, ignore_errors=True)

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
