"""Lines of a file into a topic, and a topic's values as lines of a file: Kafka's FileStream.

**Source** (exactly once). A line is taken when its newline is there; \\r before it does not count.
`tailed_file` has the offset of `{"filename": …}`, and how a file is known again that was cut or
renamed.

**Sink** (exactly once). Before a batch the file's length is recorded; a batch that comes again
cuts the file back to it. Whoever renames the file between these two moments gets lines twice.

Unlike Kafka's, neither reads standard input nor writes standard output: `file` is required."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
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
from ottla.connect.atomic_file import replace_file
from ottla.connect.connectors.tailed_file import TailedFile
from ottla.connect.converters import as_text
from ottla.connect.data import STRING, Record
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.02
STATE_FILE = "file-sink.json"


class FileStreamSource(SourceConnector):
    definition = Definition(
        [
            key("file", ConfigType.STRING, None, "The file to read.", NonEmpty(), Importance.HIGH),
            key("topic", ConfigType.STRING, None, "Where its lines go.", NonEmpty(),
                Importance.HIGH),
            key("batch.size", ConfigType.INT, 20_000, "The most lines at once.", AtLeast(1)),
        ],
        required=["file", "topic"],
    )  # fmt: skip

    def make_task(self, settings: Settings) -> SourceTask:
        return FileLines(settings["file"], settings["topic"], settings["batch.size"])

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        if partition.keys() != {"filename"} or not isinstance(partition["filename"], str):
            raise ValueError('a partition of a file source is {"filename": …}')
        position = offset.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ValueError('an offset of a file source is {"position": …}, zero or more')


class FileLines(SourceTask):
    """The file of a source: which lines are next."""

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
            lines = self._file.take()
            if lines:
                records = [Record(self._topic, self._text(line), STRING) for line in lines]
                return Polled(records, [({"filename": self._path}, self._file.offset())])
            if time.monotonic() >= until:
                return Polled()
            time.sleep(LOOK_EVERY_S)

    def _text(self, line: bytes) -> str:
        try:
            return line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s has lines that are not UTF-8; what is none is replaced", self._path
                )
            return line.removesuffix(b"\r").decode("utf-8", "replace")


class FileStreamSink(SinkConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = Definition(
        [key("file", ConfigType.STRING, None, "The file to write.", NonEmpty(), Importance.HIGH)],
        required=["file"],
    )

    def make_task(self, settings: Settings) -> SinkTask:
        return LinesToFile(settings["file"])


class LinesToFile(SinkTask):
    """Appends to the file, and remembers its length before the batch under way:

        {"batch": 7, "inode": …, "length": 1234, "epoch": 3}

    A worker that takes over from another, which may only be asleep, continues in a copy of the file
    under the same name: what the other may still write goes to a file without a name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._state = Path()

    def start(self, directory: Path) -> None:
        self._state = directory / STATE_FILE
        if self.is_takeover:
            self._take_over()
        self._reopen()

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def begin(self, batch: int) -> None:
        file = self._reopen()
        status = os.fstat(file.fileno())
        before = self._recorded()
        if before.get("epoch", 0) > self.epoch:
            raise UserError(f"Another worker writes {self._path} by now.")
        if before.get("batch") == batch:
            length = int(before["length"])
            if before["inode"] == status.st_ino and status.st_size >= length:
                file.truncate(length)
                self._record({**before, "epoch": self.epoch})
                return
            logger.warning("%s is another file than before: lines may be twice", self._path)
        self._record({"batch": batch, "inode": status.st_ino, "length": status.st_size,
                      "epoch": self.epoch})  # fmt: skip

    def put(self, records: Sequence[Record]) -> None:
        assert self._file is not None
        lines = (
            "null" if each.value is None else as_text(each.value_schema, each.value)
            for each in records
        )
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def end(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())

    def _take_over(self) -> None:
        before = self._recorded()
        # First of all, whoever is between two batches learns that he is too late.
        self._record({**before, "epoch": self.epoch})
        try:
            size = os.stat(self._path).st_size
            copy = f"{self._path}.{self.epoch}.new"
            shutil.copyfile(self._path, copy)
            shutil.copymode(self._path, copy)
            if before.get("inode") == os.stat(self._path).st_ino:
                self._record({**before, "epoch": self.epoch, "inode": os.stat(copy).st_ino})
            os.replace(copy, self._path)
        except FileNotFoundError:
            return
        logger.info("%s is taken over from another worker, %d bytes", self._path, size)

    def _record(self, told: Mapping[str, Any]) -> None:
        replace_file(self._state, json.dumps(told).encode())

    def _recorded(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return {}
        return told

    def _reopen(self) -> BinaryIO:
        """The file of that name now: it may have been renamed since."""
        if self._file is not None:
            try:
                there = os.stat(self._path)
                here = os.fstat(self._file.fileno())
                if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                    return self._file
            except FileNotFoundError:
                pass
            self._file.close()
            logger.warning("%s was renamed or removed: a new one is written", self._path)
        try:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            reason = (error.strerror or "it cannot be opened").lower()
            raise UserError(f"Cannot write {self._path}: {reason}.") from error
        return self._file
