"""Lines of a file into a topic, and a topic's values as lines of a file: Kafka's FileStream.

**Source** (exactly once). A line is taken when its newline is there; \\r before it does not count.
The offset of `{"filename": …}` is

    {"position": bytes taken, "inode": of which file, "head": checksum of its first bytes}

so that a file is known again: one that was cut short, or cut and filled anew, is read from its
beginning; one that was renamed is read to its end, if it is still open or in the same folder, and
then the new one. Each is said in the log. Offsets that a person sets need only `position`.

**Sink** (exactly once). Before a batch the file's length is recorded; a batch that comes again
cuts the file back to it. Whoever renames the file between these two moments gets lines twice.

Unlike Kafka's, neither reads standard input nor writes standard output: `file` is required."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import zlib
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
from ottla.connect.converters import as_text
from ottla.connect.data import STRING, Record
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

READ_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
HEAD_BYTES = 1024
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
    """The file of a source: where it is, and which lines are next."""

    def __init__(self, path: str, topic: str, batch_size: int) -> None:
        self._path = path
        self._topic = topic
        self._batch_size = batch_size
        self._file: BinaryIO | None = None
        self._position = 0
        self._rest = b""
        """Read after the position, without a newline so far."""
        self._known: dict[str, Any] = {}
        self._said: set[str] = set()

    def start(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition.get("filename") == self._path:
                self._known = dict(offset)
        if self._known:
            self._resume()

    def stop(self) -> None:
        self._close()

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while True:
            lines = self._lines()
            if lines:
                records = [Record(self._topic, self._text(line), STRING) for line in lines]
                return Polled(records, [({"filename": self._path}, self._offset())])
            if time.monotonic() >= until:
                return Polled()
            time.sleep(LOOK_EVERY_S)

    # ------------------------------------------------------------------------------- reading

    def _lines(self) -> list[bytes]:
        if self._file is None and not self._open():
            return []
        assert self._file is not None
        if self._is_cut():
            self._say(f"{self._path} was truncated: it is read from its beginning")
            self._close()
            self._known = {}
            return []
        if b"\n" not in self._rest:
            self._file.seek(self._position + len(self._rest))
            self._rest += self._file.read(READ_BYTES)
        *lines, self._rest = self._rest.split(b"\n", self._batch_size)
        if not lines:
            self._at_the_end()
        self._position += sum(map(len, lines)) + len(lines)
        return lines

    def _at_the_end(self) -> None:
        """No whole line is there: is it still the file of that name?"""
        if len(self._rest) > MAX_LINE_BYTES:
            raise UserError(
                f"A line of {self._path} at byte {self._position} is longer than "
                f"{MAX_LINE_BYTES} bytes."
            )
        assert self._file is not None
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return
        here = os.fstat(self._file.fileno())
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return
        if here.st_size > self._position + len(self._rest):
            return
        left = f"; its last {len(self._rest)} bytes end in no newline" if self._rest else ""
        self._say(f"{self._path} was replaced by another file, which is read from here on{left}")
        self._close()
        self._known = {}

    def _is_cut(self) -> bool:
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size < self._position + len(self._rest):
            return True
        # Cut and filled beyond where we were: only its beginning tells.
        return bool(self._known) and self._known.get("head") not in (None, self._head())

    def _open(self) -> bool:
        try:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            if "waiting" not in self._said:
                self._said.add("waiting")
                self._say(f"{self._path} is not there yet; the connector waits for it")
            return False
        except OSError as error:
            reason = (error.strerror or "it cannot be opened").lower()
            raise UserError(f"Cannot read {self._path}: {reason}.") from error
        self._position, self._rest = 0, b""
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._position, self._rest = None, 0, b""

    # ------------------------------------------------------------------------------ resuming

    def _resume(self) -> None:
        position = int(self._known.get("position", 0))
        for path in (self._path, *self._renamed()):
            if self._open_known(path, position):
                if path != self._path:
                    self._say(f"{self._path} was renamed to {path}: the rest of that comes first")
                return
        self._known = {}
        if os.path.exists(self._path):
            self._say(
                f"{self._path} is not the file that was read before, or was truncated: "
                "it is read from its beginning"
            )

    def _open_known(self, path: str, position: int) -> bool:
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError:
            return False
        self._file, self._position = file, position
        status = os.fstat(file.fileno())
        inode, head = self._known.get("inode"), self._known.get("head")
        same = status.st_size >= position and head in (None, self._head())
        # Without a head to compare (a person set the position) the inode tells.
        if head is None and inode is not None:
            same = same and inode == status.st_ino
        elif path == self._path and inode not in (None, status.st_ino):
            # Another file with the same beginning: only if the old one is nowhere else.
            same = same and not any(True for _ in self._renamed())
        if not same:
            self._close()
        return same

    def _renamed(self) -> list[str]:
        """Files of the same folder that are the one we read before."""
        inode = self._known.get("inode")
        folder = os.path.dirname(os.path.abspath(self._path))
        if inode is None or not os.path.isdir(folder):
            return []
        own = os.path.abspath(self._path)
        return [
            each.path
            for each in os.scandir(folder)
            if each.path != own and each.inode() == inode and each.is_file(follow_symlinks=False)
        ]

    def _head(self) -> str:
        assert self._file is not None
        data = os.pread(self._file.fileno(), min(HEAD_BYTES, self._head_size()), 0)
        return f"{len(data)}-{zlib.crc32(data):08x}"

    def _head_size(self) -> int:
        """As much as the known checksum is of, if there is one."""
        known = str(self._known.get("head", "")).partition("-")[0]
        return int(known) if known.isdecimal() else self._position

    def _offset(self) -> dict[str, Any]:
        assert self._file is not None
        inode = os.fstat(self._file.fileno()).st_ino
        if self._known.get("inode") != inode or self._head_size() < HEAD_BYTES:
            # The checksum is of more, now that there is more.
            self._known = {}
        head = self._head()
        self._known = {"position": self._position, "inode": inode, "head": head}
        return dict(self._known)

    def _text(self, line: bytes) -> str:
        try:
            return line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            if "encoding" not in self._said:
                self._said.add("encoding")
                self._say(f"{self._path} has lines that are not UTF-8; what is none is replaced")
            return line.removesuffix(b"\r").decode("utf-8", "replace")

    def _say(self, text: str) -> None:
        logger.warning("%s", text)


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
