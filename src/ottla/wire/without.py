"""Importing a library without one that it takes along where it finds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_module(name: str) -> Iterator[None]:
    """Inside, importing `name` fails as if it were not installed. kio offers strategies to
    hypothesis where that is installed, which costs a broker on a developer's machine a third of a
    second and 20 MB at its start."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
