"""Fencing for files that a sink appends to.

Another worker may take over a task while the previous owner is only suspended. `FencedState` keeps
a task's small state in a file for each epoch, so that a late writer overwrites no newer state:

    file-sink.json, file-sink.2.json, file-sink.3.json …     the highest epoch is current

To take over, a worker writes the state of its own epoch, then replaces the data files by copies
(`continue_in_copy`). A previous owner with a file open now writes to an unlinked inode. One that
opens a file later sees the higher epoch in `check`, which it must call after opening and before
writing.
"""

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
        """Return the state of the highest epoch, or an empty dict."""
        epochs = self._epochs()
        if not epochs:
            return {}
        data: dict[str, Any] = json.loads(self._path(max(epochs)).read_bytes())
        return data

    def save(self, data: Mapping[str, Any]) -> None:
        replace_file(self._path(self._epoch), json.dumps(data).encode())

    def check(self, path: str) -> None:
        """Raise UserError if another worker has taken over."""
        if max(self._epochs(), default=0) > self._epoch:
            raise UserError(f"Another worker has taken over {path}.")

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
    """Replace a file by a copy and return its old and new inode; empty if it does not exist."""
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
