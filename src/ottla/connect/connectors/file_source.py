"""Source that reads files and directories of lines, CSV or JSON into a topic (exactly once).

`file` is a single file that grows, as in FileStreamSource (`tailed_file`). `directory` reads all
files in it that match `file.pattern`, except subdirectories and names that begin with . or _. New
files are read when they appear and known ones when they grow, a part of each in turn. The source
offset of `{"directory": …}` covers all files that exist:

    {"files": {name: {"position": …, "inode": …, "head": …, "fields": header of a CSV file}}}

A file that is renamed within the directory continues under its new name; a deleted one is dropped
from the offset. A last record without a newline is read once its file has not changed for
`unterminated.after.ms`.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.base.errors import UserError
from ottla.connect.api import Offsets, Polled, SourceConnector, SourceTask
from ottla.connect.connectors.row_formats import FORMAT_KEYS, RowReader, check_format, reader_of
from ottla.connect.connectors.tailed_file import TailedFile
from ottla.connect.data import ConnectRecord, DataError, FailedRecord
from ottla.connect.definition import Definition, Settings, key

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.02
LIST_EVERY_S = 0.5
"""Interval between scans of the directory for new and grown files."""
MAX_FILES = 20_000
"""Maximum number of files in a directory, because the offset lists all of them."""
_STRING, _HIGH = ConfigType.STRING, Importance.HIGH


class FileSource(SourceConnector):
    definition = Definition(
        [
            key("file", _STRING, "", "File to read.", None, _HIGH),
            key("directory", _STRING, "", "Directory whose files are read.", None, _HIGH),
            key("file.pattern", _STRING, "*", "Glob pattern of the files to read, with directory.",
                NonEmpty()),
            key("topic", _STRING, None, "Topic to write to.", NonEmpty(), _HIGH),
            key("batch.size", ConfigType.INT, 20_000, "Maximum number of lines per poll.",
                AtLeast(1)),
            key("unterminated.after.ms", ConfigType.LONG, -1,
                "Time after which a last line without a newline is read, in milliseconds; -1 to "
                "wait for the newline.", AtLeast(-1)),
            *FORMAT_KEYS,
        ],
        required=["topic"],
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if bool(settings["file"]) == bool(settings["directory"]):
            raise ValueError("set exactly one of file and directory")
        check_format(settings)

    def make_task(self, settings: Settings) -> SourceTask:
        return FolderSourceTask(settings) if settings["directory"] else FileSourceTask(settings)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        name = "directory" if self.settings["directory"] else "filename"
        if partition.keys() != {name}:
            raise ValueError(
                f'a source partition of this connector must have the form {{"{name}": …}}'
            )
        files = offset.get("files") if name == "directory" else {"": offset}
        if not isinstance(files, Mapping):
            raise ValueError(
                'the source offset of a directory must have the form {"files": {name: {"position": '
                "…}}}"
            )
        for each in files.values():
            position = each.get("position") if isinstance(each, Mapping) else None
            if not isinstance(position, int) or isinstance(position, bool) or position < 0:
                raise ValueError(
                    'the source offset of a file must have the form {"position": …}, with a number '
                    "of at least 0"
                )


class FileRowReader:
    """Rows of one file, from an offset on."""

    def __init__(
        self, path: str, settings: Settings, offset: Mapping[str, Any], *, in_folder: bool
    ) -> None:
        self._path = path
        self._topic = settings["topic"]
        self._settings = settings
        self._beginnings = 0
        self._reader: RowReader = reader_of(settings)
        self._reader.resume(offset)
        late_ms = settings["unterminated.after.ms"]
        self._file = TailedFile(
            path,
            settings["batch.size"],
            self._reader.split,
            follows_names=not in_folder,
            unterminated_after_s=late_ms / 1000 if late_ms >= 0 else None,
        )
        self._file.start(offset)

    def read(self) -> tuple[list[ConnectRecord], dict[str, Any]] | None:
        """Return records and the source offset after them, or None if there are none."""
        lines = self._file.read_lines()
        if self._file.beginnings > self._beginnings:
            # The file was replaced or truncated, so it has a new header.
            self._beginnings = self._file.beginnings
            self._reader = reader_of(self._settings)
        if not lines:
            return None
        records: list[ConnectRecord] = []
        for line in lines:
            try:
                read = self._reader.read(line)
            except DataError as error:
                text = line.decode("utf-8", "replace")
                reason = f"{self._path}: {error}"
                records.append(FailedRecord(self._topic, text, error=reason, source="FileSource"))
                continue
            if read is not None:
                records.append(ConnectRecord(self._topic, read[1], read[0]))
        return records, {**self._file.offset(), **self._reader.state()}

    def close(self) -> None:
        self._file.close()


class FileSourceTask(SourceTask):
    """Task that reads one file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = settings["file"]
        self._rows: FileRowReader | None = None

    def start(self, offsets: Offsets) -> None:
        known = [each for partition, each in offsets if partition.get("filename") == self._path]
        self._rows = FileRowReader(
            self._path, self._settings, known[-1] if known else {}, in_folder=False
        )

    def stop(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def poll(self, wait_s: float) -> Polled:
        assert self._rows is not None
        until = time.monotonic() + wait_s
        while True:
            taken = self._rows.read()
            if taken is not None:
                return Polled(taken[0], [({"filename": self._path}, taken[1])])
            if time.monotonic() >= until:
                return Polled()
            time.sleep(LOOK_EVERY_S)


@dataclass
class KnownFile:
    """State of a file in the directory."""

    offset: dict[str, Any] = field(default_factory=dict)
    seen: tuple[int, int, int] = (-1, -1, -1)
    """Inode, size and modification time when the file was last found to have no more records."""


class FolderSourceTask(SourceTask):
    """Task that reads a directory. A file is open only while it is read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings["directory"]
        self._known: dict[str, KnownFile] = {}
        self._turn: list[str] = []
        """Files that may have new records, in round-robin order."""
        self._rows: FileRowReader | None = None
        self._list_at = 0.0

    def start(self, offsets: Offsets) -> None:
        for partition, offset in offsets:
            if partition.get("directory") == self._folder:
                self._known = {
                    name: KnownFile(dict(each)) for name, each in offset.get("files", {}).items()
                }

    def stop(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while True:
            found = self._next()
            if found is not None:
                return found
            left_s = until - time.monotonic()
            if left_s <= 0:
                return Polled()
            time.sleep(min(left_s, LIST_EVERY_S))

    def _next(self) -> Polled | None:
        if not self._turn and time.monotonic() >= self._list_at:
            self._turn = self._grown()
            self._list_at = time.monotonic() + LIST_EVERY_S
        while self._turn:
            name = self._turn.pop(0)
            taken = self._read_file(name)
            if taken is not None:
                self._turn.append(name)
                records, offset = taken
                self._known[name].offset = offset
                files = {each: known.offset for each, known in sorted(self._known.items())
                         if known.offset}  # fmt: skip
                return Polled(records, [({"directory": self._folder}, {"files": files})])
        return None

    def _read_file(self, name: str) -> tuple[list[ConnectRecord], dict[str, Any]] | None:
        known = self._known[name]
        path = os.path.join(self._folder, name)
        before = _seen(path)
        try:
            rows = FileRowReader(path, self._settings, known.offset, in_folder=True)
            self._rows = rows
            taken = rows.read()
            rows.close()
        except UserError:
            if os.path.exists(path):
                raise
            return None
        if taken is None:
            if not self._may_end_late(before):
                known.seen = before
            return None
        if known.offset.get("inode", taken[1]["inode"]) != taken[1]["inode"]:
            # Another file took this name since the directory was listed: list it again.
            self._turn, self._list_at = [], 0.0
            return None
        return taken

    def _may_end_late(self, seen: tuple[int, int, int]) -> bool:
        late_ms = self._settings["unterminated.after.ms"]
        return bool(late_ms >= 0) and time.time() - seen[2] / 1e9 < late_ms / 1000 + 1

    def _grown(self) -> list[str]:
        """Return the names of files that have changed since they had no more records."""
        there: dict[str, tuple[int, int, int]] = {}
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            reason = (error.strerror or "it cannot be read").lower()
            raise UserError(f"Cannot read {self._folder}: {reason}.") from error
        for each in entries:
            if each.name[0] in "._" or not fnmatch.fnmatch(
                each.name, self._settings["file.pattern"]
            ):
                continue
            try:
                status = each.stat()
            except FileNotFoundError:
                continue
            if each.is_file():
                there[each.name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        if len(there) > MAX_FILES:
            raise UserError(
                f"{self._folder} has {len(there)} files, but one connector reads at most "
                f"{MAX_FILES}. Divide the files among several connectors with file.pattern."
            )
        self._update_known(there)
        return [name for name, seen in sorted(there.items()) if self._known[name].seen != seen]

    def _update_known(self, there: Mapping[str, tuple[int, int, int]]) -> None:
        """Update the known files, and match new names with renamed files by inode."""
        gone = {
            known.offset.get("inode"): known
            for name, known in self._known.items()
            if name not in there or there[name][0] != known.offset.get("inode", there[name][0])
        }
        known = {}
        for name, seen in there.items():
            old = self._known.get(name)
            if old is not None and seen[0] == old.offset.get("inode", seen[0]):
                known[name] = old
                continue
            renamed = gone.get(seen[0])
            if renamed is not None:
                logger.info(
                    "%s: %s was renamed; reading continues at the old position", self._folder, name
                )
            known[name] = KnownFile(dict(renamed.offset) if renamed is not None else {})
        self._known = known


def _seen(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (-1, -1, -1)
    return (status.st_ino, status.st_size, status.st_mtime_ns)
