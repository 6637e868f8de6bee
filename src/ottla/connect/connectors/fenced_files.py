"""Files that a sink appends to, and that another worker may take over while the first only sleeps.

`FencedState` is a task's small state, in a file of its directory for each epoch:

    file-sink.json, file-sink.2.json, file-sink.3.json …     the highest counts

so that whoever comes late writes over nobody's. A takeover is: write the own epoch's state, then
continue in copies of the files, under their names (`continue_in_copy`). A sleeper that has a file
open writes to one without a name; one that opens a file after that finds the higher epoch in
`check`, which it calls after it opens and before it writes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.atomic_file import replace_file


class FencedState:
    def __init__(self, directory: Path, name: str, epoch: int) -> None:
        self._directory = directory
        self._name = name
        self._epoch = epoch

    def load(self) -> dict[str, Any]:
        """Of the highest epoch; empty if there is none."""
        epochs = self._epochs()
        if not epochs:
            return {}
        told: dict[str, Any] = json.loads(self._path(max(epochs)).read_bytes())
        return told

    def save(self, told: Mapping[str, Any]) -> None:
        replace_file(self._path(self._epoch), json.dumps(told).encode())

    def check(self, path: str) -> None:
        """Raises UserError if somebody has taken over."""
        if max(self._epochs(), default=0) > self._epoch:
            raise UserError(f"Another worker writes {path} by now.")

    def forget_older(self) -> None:
        for epoch in self._epochs():
            if epoch < self._epoch:
                with contextlib.suppress(FileNotFoundError):
                    self._path(epoch).unlink()

    def _path(self, epoch: int) -> Path:
        return self._directory / (f"{self._name}.{epoch}.json" if epoch else f"{self._name}.json")

    def _epochs(self) -> list[int]:
        named = re.compile(rf"{re.escape(self._name)}(?:\.(\d+))?\.json")
        matches = (named.fullmatch(each) for each in os.listdir(self._directory))
        return [int(match[1] or 0) for match in matches if match]


def continue_in_copy(path: str) -> list[int]:
    """The inodes of the file until now and from now on; none if there is no file."""
    copy = f"{path}.taken"
    try:
        old = os.stat(path).st_ino
        shutil.copyfile(path, copy)
        shutil.copymode(path, copy)
        with open(copy, "rb") as file:
            os.fsync(file.fileno())
        new = os.stat(copy).st_ino
        os.replace(copy, path)
    except FileNotFoundError:
        return []
    return [old, new]
