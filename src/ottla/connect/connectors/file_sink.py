"""Sink that writes a topic's records as lines, CSV or JSON to files (exactly once).

`file` receives all records; `directory` has separate files for each topic, TOPIC-00000.jsonl and so
on. With `file.max.bytes` a new file begins once the last one has reached that size; a batch is
never split. Before a batch writes to a file, the task records the file's length:

    {"batch": 7, "files": {path: {"inodes": […], "length": 1234}}}    (null: did not exist)

When a batch is redelivered, the task first truncates each file to that length. Renaming a file in
between duplicates lines. A worker that takes over continues in copies of the files of the current
batch (`fenced_files`).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast
from ottla.base.errors import UserError
from ottla.connect.api import Guarantee, SinkConnector, SinkTask
from ottla.connect.connectors.fenced_files import FencedState, continue_in_copy
from ottla.connect.connectors.row_formats import (
    EXTENSIONS,
    FORMAT_KEYS,
    RowWriter,
    check_format,
    writer_of,
)
from ottla.connect.data import ConnectRecord, DataError
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

STATE = "file-sink"
HEAD_BYTES = 1024 * 1024
_STRING, _HIGH = ConfigType.STRING, Importance.HIGH


class FileSink(SinkConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = Definition([
        key("file", _STRING, "", "File to write.", None, _HIGH),
        key("directory", _STRING, "", "Directory to write, with one file per topic.", None, _HIGH),
        key("file.max.bytes", ConfigType.LONG, 0,
            "Size at which a new file is started, in bytes, with directory; 0 for no limit.",
            AtLeast(0)),
        *FORMAT_KEYS,
    ])  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if bool(settings["file"]) == bool(settings["directory"]):
            raise ValueError("set exactly one of file and directory")
        check_format(settings)

    def make_task(self, settings: Settings) -> SinkTask:
        return FileSinkTask(settings)


class OpenRowFile:
    """File that the current batch writes to."""

    def __init__(self, path: str, writer: RowWriter) -> None:
        self._writer = writer
        try:
            self.file: BinaryIO = open(path, "ab+", buffering=0)  # noqa: SIM115
        except OSError as error:
            reason = (error.strerror or "it cannot be opened").lower()
            raise UserError(f"Cannot write {path}: {reason}.") from error
        self._is_empty = os.fstat(self.file.fileno()).st_size == 0
        if not self._is_empty:
            head = os.pread(self.file.fileno(), HEAD_BYTES, 0)
            writer.resume(head.partition(b"\n")[0])

    def row(self, record: ConnectRecord) -> bytes:
        """Return the encoded row; raise DataError without side effects if that fails."""
        if not self._is_empty:
            return self._writer.row(record)
        header = self._writer.header(record)
        row = self._writer.row(record)
        self._is_empty = False
        return header + row

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) :]

    def close(self) -> None:
        os.fsync(self.file.fileno())
        self.file.close()


class FileSinkTask(SinkTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._state = FencedState(Path(), STATE, 0)
        self._saved_state: dict[str, Any] = {}
        """State of the last recorded batch."""
        self._batch = -1
        self._before: dict[str, Any] = {}
        """Files of the current batch, with their state before it."""
        self._open: dict[str, OpenRowFile] = {}
        """Open files by topic, or under "" for a single file."""

    def start(self, directory: Path) -> None:
        self._state = FencedState(directory, STATE, self.epoch)
        self._saved_state = self._state.load()
        if self._saved_state or self.is_takeover:
            self._state.save(self._saved_state)
        if self.is_takeover:
            self._take_over()
        self._state.forget_older()
        folder = self._settings["directory"]
        if folder:
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                reason = (error.strerror or "it cannot be created").lower()
                raise UserError(f"Cannot write to {folder}: {reason}.") from error

    def stop(self) -> None:
        self._close()

    def begin(self, batch: int) -> None:
        self._close()
        data = self._saved_state
        self._batch, self._before = batch, {}
        if data.get("batch") == batch:
            self._before = data["files"]
            for path, before in self._before.items():
                _truncate_to(path, before)

    def put(self, records: Sequence[ConnectRecord]) -> None:
        rows: dict[str, list[bytes]] = {}
        for record in records:
            name = record.topic if self._settings["directory"] else ""
            try:
                rows.setdefault(name, []).append(self._opened(name).row(record))
            except DataError as error:
                self.report(record, error)
        for name, data in rows.items():
            self._open[name].write(b"".join(data))

    def end(self) -> None:
        self._close()

    def _close(self) -> None:
        for each in self._open.values():
            each.close()
        self._open = {}

    # --------------------------------------------------------------------------------- files

    def _opened(self, name: str) -> OpenRowFile:
        if "/" in name:
            raise DataError(f"the name of topic {name} is not valid as a file name")
        if name not in self._open:
            path = self._path(name)
            if path not in self._before:
                self._before = {**self._before, path: _status(path)}
                self._saved_state = {"batch": self._batch, "files": self._before}
                self._state.save(self._saved_state)
            self._open[name] = OpenRowFile(path, writer_of(self._settings))
            self._state.check(path)
        return self._open[name]

    def _path(self, topic: str) -> str:
        if not topic:
            return str(self._settings["file"])
        folder, limit = self._settings["directory"], self._settings["file.max.bytes"]
        extension = EXTENSIONS[self._settings["format"]]
        named = re.compile(rf"{re.escape(topic)}-(\d{{5,}})\.{extension}")
        found = [int(match[1]) for each in os.listdir(folder) if (match := named.fullmatch(each))]
        number = max(found, default=0)
        path = os.path.join(folder, f"{topic}-{number:05}.{extension}")
        if limit and found and os.path.getsize(path) >= limit and path not in self._before:
            path = os.path.join(folder, f"{topic}-{number + 1:05}.{extension}")
        return path

    def _take_over(self) -> None:
        for path, before in self._saved_state.get("files", {}).items():
            inodes = continue_in_copy(path)
            if before is not None and inodes and inodes[0] in before["inodes"]:
                before["inodes"] += inodes[1:]
        self._state.save(self._saved_state)


def _status(path: str) -> dict[str, Any] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return {"inodes": [status.st_ino], "length": status.st_size}


def _truncate_to(path: str, before: dict[str, Any] | None) -> None:
    if before is None:
        # Truncated instead of removed, so that programs following the file keep it.
        if os.path.exists(path):
            os.truncate(path, 0)
        return
    now = _status(path)
    is_known = now is not None and now["inodes"][0] in before["inodes"]
    if now is None or not is_known or now["length"] < before["length"]:
        logger.warning("%s is not the file that was written before; lines may be duplicated", path)
        return
    os.truncate(path, before["length"])
