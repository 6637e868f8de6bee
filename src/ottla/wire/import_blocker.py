"""Importing a library without one of its optional dependencies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def block_import(name: str) -> Iterator[None]:
    """Make `import name` fail inside the context, as if the module were not installed.

    kio provides Hypothesis strategies if Hypothesis is installed. Loading them would cost a broker
    on a development machine a third of a second and 20 MB at startup.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
