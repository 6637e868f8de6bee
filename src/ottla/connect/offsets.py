"""State file of a standalone worker: `offset.storage.file.filename`.

The file is JSON and is replaced atomically:

    {"version": 1,
     "connectors": {"local-file-source": {"generation": "5f1c…",
                                          "offsets": [{"partition": {…}, "offset": {…}}]}}}

The source offsets that make a restart exactly once are in the cluster (`offset_storage`), under the
connector's name and generation. The offsets in the file are a readable copy, written every
`offset.flush.interval.ms`; a connector starts from them only if the cluster has none for the
generation. Deleting the file resets all connectors, because their generations are lost. Offsets set
through REST start a new generation. Tasks keep their own state in
`FILENAME.tasks/CONNECTOR/GENERATION/TASK`.

Only one worker may use the file at a time; it holds a lock on `FILENAME.lock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import threading
import urllib.parse
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ottla.base.errors import UserError
from ottla.connect.api import Connector, Json, Offsets, SourceConnector
from ottla.connect.atomic_file import replace_file

VERSION = 1


@dataclass
class Entry:
    generation: str
    offsets: Offsets = field(default_factory=list)


def canonical(partition: Json) -> str:
    return json.dumps(partition, sort_keys=True)


def merged(old: Offsets, new: Offsets) -> Offsets:
    """Return the old offsets, replaced or extended by the new ones."""
    found = {canonical(partition): (partition, offset) for partition, offset in [*old, *new]}
    return list(found.values())


def to_json(offsets: Offsets) -> list[Json]:
    return [{"partition": partition, "offset": offset} for partition, offset in offsets]


def from_json(document: Any) -> Offsets:
    """Parse offsets; raise ValueError with a one-sentence message if they are malformed."""
    if not isinstance(document, list):
        raise ValueError("offsets must be an array")
    found: Offsets = []
    for each in document:
        if not isinstance(each, dict) or not isinstance(each.get("partition"), dict):
            raise ValueError("each of the offsets must have an object partition")
        offset = each.get("offset")
        if offset is not None and not isinstance(offset, dict):
            raise ValueError("an offset must be an object or null")
        found.append((each["partition"], offset or {}))
    return found


def checked(document: Any, connector: Connector) -> Offsets:
    """Parse offsets for a connector and let it check them.

    Raises:
        ValueError: The offsets are malformed, or not offsets of this connector.
    """
    offsets = from_json(document)
    if not offsets:
        raise ValueError("Partitions / offsets need to be provided for an alter offsets request")
    if isinstance(connector, SourceConnector):
        for partition, offset in offsets:
            if offset:
                connector.check_offset(partition, offset)
    return offsets


def safe_name(name: str) -> str:
    """Return a connector's name in a form that is safe as a directory name."""
    return urllib.parse.quote(name, safe="").replace(".", "%2E")


class FileOffsetStorage:
    def __init__(self, filename: str) -> None:
        self._path = Path(filename).absolute()
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._is_dirty = False
        self._held: IO[str] | None = None

    def open(self) -> None:
        """Lock and load the file; raise UserError if it cannot be used."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._held = open(f"{self._path}.lock", "w")  # noqa: SIM115
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another worker uses the offsets file {self._path}.") from None
        except OSError as error:
            reason = (error.strerror or "it cannot be written").lower()
            raise UserError(f"Cannot write the offsets file {self._path}: {reason}.") from error
        self._entries = self._load()

    def close(self) -> None:
        self.flush()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _load(self) -> dict[str, Entry]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        if not data.strip():
            return {}
        try:
            document = json.loads(data)
            if document["version"] != VERSION:
                raise ValueError
            return {
                name: Entry(each["generation"], from_json(each["offsets"]))
                for name, each in document["connectors"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{self._path} is not an offsets file of Ottla. Set offset.storage.file.filename "
                "to another file, or delete the file to start over."
            ) from None

    def entry(self, name: str) -> Entry:
        with self._lock:
            if name not in self._entries:
                self._entries[name] = Entry(_generation())
                self._write()
            return self._entries[name]

    def directory(self, name: str) -> Path:
        """Return the directory of the connector's current generation."""
        return Path(f"{self._path}.tasks", safe_name(name), self.entry(name).generation)

    def update(self, name: str, generation: str, offsets: Offsets) -> None:
        """Record delivered offsets. The next flush writes them to the file."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.generation != generation:
                return
            changed = merged(entry.offsets, offsets)
            if entry.offsets != changed:
                entry.offsets = changed
                self._is_dirty = True

    def replace(self, name: str, offsets: Offsets) -> None:
        """Start a new generation from other offsets."""
        old = self.directory(name)
        with self._lock:
            self._entries[name] = Entry(_generation(), offsets)
            self._write()
        with contextlib.suppress(OSError):
            shutil.rmtree(old)

    def flush(self) -> None:
        with self._lock:
            if self._is_dirty:
                self._write()

    def _write(self) -> None:
        document = {
            "version": VERSION,
            "connectors": {
                name: {"generation": each.generation, "offsets": to_json(each.offsets)}
                for name, each in sorted(self._entries.items())
            },
        }
        try:
            replace_file(self._path, json.dumps(document, indent=1).encode())
        except OSError as error:
            reason = (error.strerror or "it cannot be written").lower()
            raise UserError(f"Cannot write the offsets file {self._path}: {reason}.") from error
        self._is_dirty = False


def _generation() -> str:
    return uuid.uuid4().hex[:12]
