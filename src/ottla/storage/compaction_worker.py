"""The process that compacts, so that the broker's does not: `python -m` this module.

A job comes in as one line on standard input; answers go out as lines on standard output
(compaction_job.py). The input stays open as long as the broker wants the work: when it ends, be it
because the broker died, the worker stops at once. What it has not reported is then nobody's and is
removed as `.cleaned` files are.

It is nice to everyone else on the machine, and reads and writes no faster than the job allows."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable

from ottla.storage.compaction import CLEANED_SUFFIX, compact
from ottla.storage.compaction_job import (
    Answer,
    CleanedSegment,
    CompactionFailure,
    CompactionJob,
    encode_answer,
)
from ottla.storage.file import OsFileSystem
from ottla.storage.segment import segment_path
from ottla.wire.records.errors import BatchError

NICENESS = 10
MAX_OPEN_FILES = 64
STOPPED = 3
"""Exit code of a worker whose broker has gone."""


class RateLimit:
    """Lets so many bytes a second pass, by sleeping."""

    def __init__(
        self,
        bytes_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at = monotonic()
        """When the bytes that have passed are paid for."""

    def __call__(self, size_bytes: int) -> None:
        now = self._monotonic()
        self._free_at = max(self._free_at, now) + size_bytes / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)


def main() -> int:
    job = CompactionJob.from_json(sys.stdin.buffer.readline())
    threading.Thread(target=_stop_with_broker, args=(sys.stdin.fileno(),), daemon=True).start()
    os.nice(NICENESS)
    gc.disable()  # nothing here makes cycles
    answer = _run(job)
    _say(answer)
    return 1 if isinstance(answer, CompactionFailure) else 0


def _run(job: CompactionJob) -> Answer:
    def on_cleaned(cleaned: CleanedSegment) -> None:
        path = segment_path(job.directory, cleaned.base_offset, "log") + CLEANED_SUFFIX
        os.utime(path, ns=(cleaned.modified_ms * 1_000_000,) * 2)
        _say(cleaned)

    limit = RateLimit(job.max_bytes_per_second)
    try:
        return compact(OsFileSystem(MAX_OPEN_FILES), job, throttle=limit, on_cleaned=on_cleaned)
    except BatchError as error:
        return CompactionFailure(str(error), is_transient=False)
    except OSError as error:
        return CompactionFailure(str(error), is_transient=True)


def _say(answer: Answer) -> None:
    sys.stdout.write(encode_answer(answer) + "\n")
    sys.stdout.flush()


def _stop_with_broker(stdin: int) -> None:
    """Reads past Python's own buffer, which a thread must not hold when the interpreter exits."""
    while os.read(stdin, 4096):
        pass
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
