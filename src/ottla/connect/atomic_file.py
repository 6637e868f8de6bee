"""A small file that is replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Whole or not at all, also after a power cut."""
    made = path.with_name(f"{path.name}.new")
    with open(made, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)
