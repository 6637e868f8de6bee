"""Exclusion of a Python worker's loaded modules from garbage collection.

PySpark runs the garbage collector in a worker after every task, and each batch of a stream has a
task in four workers: to plan the write, to read, to write and to commit. A collection traverses
about 100,000 objects that Arrow, the kernels and PySpark created on import and that never become
garbage. That takes 50 ms, more than everything else that Python does for a small batch."""

from __future__ import annotations

import gc
import sys

_modules_when_frozen = 0


def freeze_modules() -> None:
    """Exclude existing objects from garbage collection, if modules were loaded since the last call.

    Call this in every task. Objects that are garbage at that moment are never freed, so it must
    not happen more often than necessary."""
    global _modules_when_frozen
    if len(sys.modules) > _modules_when_frozen:
        gc.freeze()
        _modules_when_frozen = len(sys.modules)
