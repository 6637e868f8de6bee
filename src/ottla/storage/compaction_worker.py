"""The worker process for compaction, which keeps the load off the broker: `python -m` this module.

The worker reads a job as one line from standard input and writes answers as lines to standard
output (compaction_job.py). The broker keeps the input open as long as it wants the work done. When
the input ends, for example because the broker died, the worker exits immediately. Output that it
has not reported is discarded with the other `.cleaned` files.

The worker runs at low priority, and reads and writes no faster than the job allows.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable

from ottla.storage.compaction import CLEANED_SUFFIX, compact
from ottla.storage.compaction_job import (
    CleanedSegment,
    CompactionFailure,
    CompactionJob,
    WorkerMessage,
    encode_message,
)
from ottla.storage.file import OsFileSystem
from ottla.storage.segment import segment_path
from ottla.wire.records.errors import BatchError

NICENESS = 10
MAX_OPEN_FILES = 64
STOPPED = 3
"""Exit code of a worker that stopped because its input ended."""


class RateLimit:
    """A rate limiter that sleeps to keep the throughput below `bytes_per_second`."""

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
        """Time from which the next bytes may pass without a delay."""

    def __call__(self, size_bytes: int) -> None:
        now = self._monotonic()
        self._free_at = max(self._free_at, now) + size_bytes / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)


def main() -> int:
    job = CompactionJob.from_json(sys.stdin.buffer.readline())
    threading.Thread(target=_stop_with_broker, args=(sys.stdin.fileno(),), daemon=True).start()
    os.nice(NICENESS)
    gc.disable()  # this process creates no reference cycles
    message = _run(job)
    _send(message)
    return 1 if isinstance(message, CompactionFailure) else 0


def _run(job: CompactionJob) -> WorkerMessage:
    def on_cleaned(cleaned: CleanedSegment) -> None:
        path = segment_path(job.directory, cleaned.base_offset, "log") + CLEANED_SUFFIX
        os.utime(path, ns=(cleaned.modified_ms * 1_000_000,) * 2)
        _send(cleaned)

    limit = RateLimit(job.max_bytes_per_second)
    try:
        return compact(OsFileSystem(MAX_OPEN_FILES), job, throttle=limit, on_cleaned=on_cleaned)
    except BatchError as error:
        return CompactionFailure(str(error), is_transient=False)
    except OSError as error:
        return CompactionFailure(str(error), is_transient=True)


def _send(message: WorkerMessage) -> None:
    sys.stdout.write(encode_message(message) + "\n")
    sys.stdout.flush()


def _stop_with_broker(stdin: int) -> None:
    """Exit when standard input ends.

    Reads the descriptor directly: a thread that holds the lock of Python's buffered reader would
    block the exit of the interpreter.
    """
    while os.read(stdin, 4096):
        pass
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
