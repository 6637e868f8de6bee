"""Kafka's FileStream connectors: lines of a file to a topic, and values of a topic to lines.

**Source** (exactly once). A line is read once its newline has been written; a \\r before it is
dropped. `tailed_file` defines the source offset of `{"filename": …}` and how truncated and renamed
files are recognized.

**Sink** (exactly once). The task records the file's length before each batch, and truncates the
file to it when a batch is redelivered. Renaming the file in between duplicates lines.

Unlike Kafka's connectors, they do not support standard input and output: `file` is required.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.base.errors import UserError
from ottla.connect.api import (
    Guarantee,
    Offsets,
    Polled,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from ottla.connect.columns import (
    MANY_RECORDS,
    Column,
    ColumnBatch,
    Columns,
    NotInColumns,
    has_columns,
)
from ottla.connect.connectors.fenced_files import FencedState, continue_in_copy
from ottla.connect.connectors.tailed_file import TailedFile
from ottla.connect.converters import as_text
from ottla.connect.data import STRING, ConnectRecord
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.02
STATE = "file-sink"


class FileStreamSource(SourceConnector):
    definition = Definition(
        [
            key("file", ConfigType.STRING, None, "File to read.", NonEmpty(), Importance.HIGH),
            key("topic", ConfigType.STRING, None, "Topic to write the lines to.", NonEmpty(),
                Importance.HIGH),
            key("batch.size", ConfigType.INT, 20_000, "Maximum number of lines per poll.",
                AtLeast(1)),
        ],
        required=["file", "topic"],
    )  # fmt: skip

    def make_task(self, settings: Settings) -> SourceTask:
        return FileStreamSourceTask(settings["file"], settings["topic"], settings["batch.size"])

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        if partition.keys() != {"filename"} or not isinstance(partition["filename"], str):
            raise ValueError(
                'a source partition of this connector must have the form {"filename": …}'
            )
        position = offset.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ValueError(
                'the source offset must have the form {"position": …}, with a number of at least 0'
            )


class FileStreamSourceTask(SourceTask):
    """Task of the file source."""

    def __init__(self, path: str, topic: str, batch_size: int) -> None:
        self._path = path
        self._topic = topic
        self._file = TailedFile(path, batch_size)
        self._has_warned = False

    def start(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition.get("filename") == self._path:
                self._file.start(offset)

    def stop(self) -> None:
        self._file.close()

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while True:
            lines = self._file.read_lines()
            if lines:
                offsets: Offsets = [({"filename": self._path}, self._file.offset())]
                if len(lines) >= MANY_RECORDS and has_columns():
                    columns = self._columns(lines)
                    if columns is not None:
                        batch = ColumnBatch(columns, partial(self._records, lines))
                        return Polled(offsets=offsets, columns=[batch])
                return Polled(self._records(lines), offsets)
            if time.monotonic() >= until:
                return Polled()
            time.sleep(LOOK_EVERY_S)

    def _records(self, lines: Sequence[bytes]) -> list[ConnectRecord]:
        return [ConnectRecord(self._topic, self._text(line), STRING) for line in lines]

    def _columns(self, lines: Sequence[bytes]) -> Columns | None:
        """Return the lines as columns, or None if some are not valid UTF-8."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            texts = pa.array(lines, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return None
        texts = pc.replace_substring_regex(texts, r"\r$", "") if _has_returns(texts) else texts
        return Columns(ConnectRecord(self._topic, Column(texts, STRING), STRING), len(lines))

    def _text(self, line: bytes) -> str:
        try:
            return line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s has lines that are not UTF-8; invalid bytes are replaced", self._path
                )
            return line.removesuffix(b"\r").decode("utf-8", "replace")


def _has_returns(texts: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.ends_with(texts, "\r")).as_py())


class FileStreamSink(SinkConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = Definition(
        [key("file", ConfigType.STRING, None, "File to write.", NonEmpty(), Importance.HIGH)],
        required=["file"],
    )

    def make_task(self, settings: Settings) -> SinkTask:
        return FileStreamSinkTask(settings["file"])


class FileStreamSinkTask(SinkTask):
    """Task of the file sink: appends lines and stores the file's length before the batch.

        {"batch": 7, "inodes": [inodes of the file], "length": 1234}

    A worker that takes over continues in a copy of the file (`fenced_files`), which has another
    inode.
    """

    takes_columns = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._state = FencedState(Path(), STATE, 0)
        self._before: dict[str, Any] = {}

    def start(self, directory: Path) -> None:
        self._state = FencedState(directory, STATE, self.epoch)
        self._before = self._state.load()
        if self._before or self.is_takeover:
            self._state.save(self._before)
        if self.is_takeover:
            self._take_over()
        self._state.forget_older()
        self._reopen()

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def begin(self, batch: int) -> None:
        file = self._reopen()
        self._state.check(self._path)
        status = os.fstat(file.fileno())
        before = self._before
        if before.get("batch") == batch:
            length = int(before["length"])
            if status.st_ino in before["inodes"] and status.st_size >= length:
                file.truncate(length)
                return
            logger.warning(
                "%s is not the file that was written before; lines may be duplicated", self._path
            )
        self._before = {"batch": batch, "inodes": [status.st_ino], "length": status.st_size}
        self._state.save(self._before)

    def put(self, records: Sequence[ConnectRecord]) -> None:
        assert self._file is not None
        lines = (
            "null" if each.value is None else as_text(each.value_schema, each.value)
            for each in records
        )
        self._write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))

    def put_columns(self, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = columns.value()
        if not pa.types.is_string(texts.type):
            raise NotInColumns("the values are not strings")
        lines = pc.binary_join_element_wise(pc.fill_null(texts, "null"), pa.scalar("\n"), "")
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        self._write(memoryview(pc.binary_join(whole, "")[0].as_buffer()))

    def _write(self, data: bytes | memoryview) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def end(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())

    def _take_over(self) -> None:
        inodes = continue_in_copy(self._path)
        if inodes and inodes[0] in self._before.get("inodes", ()):
            self._before["inodes"] = [*self._before["inodes"], *inodes[1:]]
            self._state.save(self._before)
        logger.info("taking over %s from another worker", self._path)

    def _reopen(self) -> BinaryIO:
        """Return the open file, reopened if the path now refers to another one."""
        if self._file is not None:
            try:
                there = os.stat(self._path)
                here = os.fstat(self._file.fileno())
                if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                    return self._file
            except FileNotFoundError:
                pass
            self._file.close()
            logger.warning("%s was renamed or removed; writing a new file", self._path)
        try:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            reason = (error.strerror or "it cannot be opened").lower()
            raise UserError(f"Cannot write {self._path}: {reason}.") from error
        return self._file
