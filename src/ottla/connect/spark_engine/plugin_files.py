"""Packages of `plugin.path` for the executors of a Spark application."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ARCHIVES = (".zip", ".whl", ".egg")
SKIPPED_SUFFIXES = (".pyc", ".jar")


def add_plugin_files(spark: Any, entries: Iterable[str]) -> None:
    """Send the entries of `plugin.path` to the executors of a Spark application."""
    for number, entry in enumerate(entries):
        path = Path(entry)
        if not path.exists():
            continue
        folder = Path(tempfile.mkdtemp(prefix="ottla-plugins-"))
        archive = folder / f"plugins-{number}.zip"
        if path.is_dir():
            if not write_archive(path, archive):
                continue
        elif path.suffix in ARCHIVES:
            archive.write_bytes(path.read_bytes())
        else:
            archive = path
        spark.addPyFile(str(archive))


def write_archive(folder: Path, archive: Path) -> bool:
    """Write the files of Python packages to an archive; return whether there are any."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found = [path for path in files if path.suffix not in SKIPPED_SUFFIXES]
    if not any(path.suffix == ".py" for path in found):
        return False
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in found:
            file.write(path, path.relative_to(folder))
    return True
