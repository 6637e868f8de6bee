"""What a Python worker has loaded, out of the garbage collector's way.

PySpark collects garbage in a worker after every task, and every batch of a stream has a task in
each of four workers: one plans the writing, one reads, one writes, one commits. A collection walks
whatever Arrow, the kernels and PySpark have made when they were loaded, a hundred thousand objects
that will never be garbage, in 50 ms: longer than all else that Python does for a small batch."""

from __future__ import annotations

import gc
import sys

_modules_when_frozen = 0


def freeze_modules() -> None:
    """To be called in every task: does nothing unless there are more modules than ever before.

    What is garbage at that moment stays for good, so it must not happen again and again."""
    global _modules_when_frozen
    if len(sys.modules) > _modules_when_frozen:
        gc.freeze()
        _modules_when_frozen = len(sys.modules)
