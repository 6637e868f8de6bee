"""State of a lake sink: its last batch, and the records that are not yet in published files.

    PATH/_ottla/NAME.EPOCH/state.json     replaced atomically; authoritative
                           00000007.arrow staged records of a future file, appended by batch
                           part-….parquet completed, about to be moved to its directory

    {"version": 1, "sink": ID of the sink that numbers the batches, "batch": last included batch,
     "next": number of the next file,
     "open": [{"folder": …, "kind": …, "records": …, "bytes": …, "since_ms": …,
               "staged": [{"name": …, "length": …}]}],
     "ready": [{"name": …, "to": directory and name}]}

A batch is done once the state includes it. Data beyond the recorded lengths, and files that the
state does not list, belong to an interrupted batch and are deleted. Files in `ready` are then moved
by a rename: a reader sees a file completely or not at all, and no file ever disappears.
`which_to_roll` selects the open files to publish; it does no I/O.

A starting task renames the directory to its own epoch, which fences the previous owner: it finds
neither the state nor a file to move under the name it knows. What it still appends to an open file
lies beyond the recorded length.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.atomic_file import replace_file

VERSION = 1
FOLDER = "_ottla"


@dataclass
class Staged:
    name: str
    length: int


@dataclass
class OpenFile:
    """Future Parquet file. `kind` separates records that cannot be in the same file."""

    folder: str
    kind: str
    records: int = 0
    bytes: int = 0
    since_ms: int = 0
    staged: list[Staged] = field(default_factory=list)


@dataclass
class Ready:
    name: str
    to: str


@dataclass
class LakeState:
    sink: str = ""
    batch: int = -1
    next: int = 0
    open: list[OpenFile] = field(default_factory=list)
    ready: list[Ready] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    records: int
    bytes: int
    age_ms: int
    files: int


def which_to_roll(files: Sequence[OpenFile], limits: Limits, now_ms: int) -> list[OpenFile]:
    """Return the files that are large or old enough, and the oldest ones if there are too many."""
    due = [
        each
        for each in files
        if each.records >= limits.records
        or each.bytes >= limits.bytes
        or (limits.age_ms >= 0 and now_ms - each.since_ms >= limits.age_ms)
    ]
    rest = sorted((each for each in files if each not in due), key=lambda each: each.since_ms)
    return due + rest[: max(len(rest) - limits.files, 0)]


class StateFolder:
    """State directory of one sink in its lake."""

    def __init__(self, path: str, name: str) -> None:
        self._lake = Path(path)
        self._name = name
        self.folder = self._lake / FOLDER / name
        self.state = LakeState()

    def open(self, sink: str, epoch: int) -> None:
        """Claim the directory for an epoch.

        Raises:
            UserError: The directory cannot be used, or a later epoch has claimed it.
        """
        above = self._lake / FOLDER
        self.folder = above / f"{self._name}.{epoch}"
        try:
            above.mkdir(parents=True, exist_ok=True)
            last = max(self._epochs(), default=-1)
            if last > epoch:
                raise UserError(f"Another task has taken over {self._lake}.")
            if 0 <= last < epoch:
                os.rename(above / f"{self._name}.{last}", self.folder)
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            reason = (error.strerror or "it cannot be written").lower()
            raise UserError(f"Cannot write to {self._lake}: {reason}.") from error
        self.state.sink = sink
        self.reload()

    def reload(self) -> None:
        """Load the state from disk and discard everything that it does not include."""
        sink = self.state.sink
        self.state = self._load()
        if self.state.sink != sink:
            # The offsets were reset: batch numbers start over, but staged records are kept.
            self.state.sink, self.state.batch = sink, -1
        self.move_ready()
        self.forget_interrupted()

    def _epochs(self) -> list[int]:
        named = re.compile(rf"{re.escape(self._name)}\.(\d+)")
        matches = (named.fullmatch(each) for each in os.listdir(self._lake / FOLDER))
        return [int(match[1]) for match in matches if match]

    @property
    def is_lost(self) -> bool:
        """Whether another task has claimed the directory."""
        return not self.folder.exists()

    def write(self) -> None:
        data = {"version": VERSION, **asdict(self.state)}
        replace_file(self.folder / "state.json", json.dumps(data).encode())

    def move_ready(self) -> None:
        """Move completed files to their directories; one that no longer exists was moved before."""
        for each in self.state.ready:
            made = self.folder / each.name
            if made.exists():
                target = self._lake / each.to
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(made, target)
                _sync_folder(target.parent)
        self.state.ready = []

    def forget_interrupted(self) -> None:
        known = {each.name: each.length for file in self.state.open for each in file.staged}
        for path in self.folder.iterdir():
            if path.name == "state.json":
                continue
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in known:
                path.unlink()
            elif path.stat().st_size > known[path.name]:
                os.truncate(path, known[path.name])

    def _load(self) -> LakeState:
        try:
            data: dict[str, Any] = json.loads((self.folder / "state.json").read_bytes())
            if data.pop("version") != VERSION:
                raise ValueError
            return LakeState(
                data["sink"],
                data["batch"],
                data["next"],
                [_open_file(each) for each in data["open"]],
                [Ready(**each) for each in data["ready"]],
            )
        except FileNotFoundError:
            return LakeState()
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.folder / 'state.json'} is not a valid state file, so the staged files "
                "cannot be used. To start over, move the directory away."
            ) from None


def _open_file(data: dict[str, Any]) -> OpenFile:
    return OpenFile(**{**data, "staged": [Staged(**each) for each in data["staged"]]})


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
