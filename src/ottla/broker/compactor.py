"""Compaction of one log, outside the broker's event loop.

`WorkerCompactor` starts a process per job (ottla.storage.compaction_worker) and kills it when the
result is no longer wanted. The process has always exited when the call returns or raises, so that
nothing writes into the log's directory any more. `LocalCompactor` does the same work in this
process, for simulations."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import ottla
from ottla.base.ports import FileSystem
from ottla.storage.compaction import compact
from ottla.storage.compaction_job import (
    CleanedSegment,
    CompactionFailure,
    CompactionJob,
    CompactionResult,
    WorkerMessage,
    decode_message,
)
from ottla.wire.records.errors import BatchError

WORKER = "ottla.storage.compaction_worker"
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 4096
POLL_INTERVAL_S = 1.0
"""Interval between checks whether the result is still wanted."""

OnCleaned = Callable[[CleanedSegment], Awaitable[None]]
IsWanted = Callable[[], bool]


class CompactionFailed(Exception):
    """A compaction that failed; a transient failure is worth a retry."""

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class CompactionCancelled(Exception):
    """A compaction that was stopped because its log changed."""


class Compactor(Protocol):
    """The interface of the compactors."""

    async def run(
        self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
    ) -> CompactionResult:
        """Compact the segments of a job.

        Args:
            job: The segments and the limits.
            on_cleaned: Awaited for each new segment.
            is_wanted: Checked now and then; False stops the job.

        Raises:
            CompactionFailed: The job failed.
            CompactionCancelled: `is_wanted` returned False. What `on_cleaned` raises is passed on.
        """


class LocalCompactor:
    """A compactor that works in this process."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    async def run(
        self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
    ) -> CompactionResult:
        try:
            result = compact(self._fs, job)
        except BatchError as error:
            raise CompactionFailed(str(error), is_transient=False) from error
        except OSError as error:
            raise CompactionFailed(str(error), is_transient=True) from error
        for cleaned in result.cleaned:
            await on_cleaned(cleaned)
        return result


class WorkerCompactor:
    """A compactor that starts a process for each job."""

    async def run(
        self, job: CompactionJob, on_cleaned: OnCleaned, is_wanted: IsWanted
    ) -> CompactionResult:
        try:
            process = await _start_worker()
        except OSError as error:
            raise CompactionFailed(
                f"could not start a compaction worker: {error}", is_transient=True
            ) from error
        try:
            await _send_job(process, job)
            return await _read_results(process, on_cleaned, is_wanted)
        finally:
            await _kill(process)


async def _start_worker() -> Process:
    paths = [str(Path(ottla.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # do not import from the broker's working directory
        "-m",
        WORKER,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=MAX_LINE_BYTES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


async def _send_job(process: Process, job: CompactionJob) -> None:
    """Send the job. The pipe stays open; the worker stops when it is closed."""
    assert process.stdin is not None
    process.stdin.write(job.to_json().encode() + b"\n")
    try:
        await process.stdin.drain()
    except ConnectionError:
        pass  # the worker has died already; `_exit_error` reports why


async def _read_results(
    process: Process, on_cleaned: OnCleaned, is_wanted: IsWanted
) -> CompactionResult:
    while True:
        message = await _next_message(process, is_wanted)
        if isinstance(message, CompactionResult):
            return message
        if isinstance(message, CompactionFailure):
            raise CompactionFailed(message.message, is_transient=message.is_transient)
        await on_cleaned(message)


async def _next_message(process: Process, is_wanted: IsWanted) -> WorkerMessage:
    assert process.stdout is not None
    while is_wanted():
        try:
            line = await asyncio.wait_for(process.stdout.readline(), POLL_INTERVAL_S)
        except TimeoutError:
            continue
        if not line:
            raise await _exit_error(process)
        return decode_message(line)
    raise CompactionCancelled


async def _exit_error(process: Process) -> CompactionFailed:
    """Return the reason why a worker exited without a result. If it was killed (memory was short,
    say), a retry may succeed."""
    assert process.stderr is not None
    code = await process.wait()
    output = (await process.stderr.read(MAX_LINE_BYTES))[-MAX_ERROR_BYTES:]
    lines = output.decode("utf-8", "replace").strip().splitlines()
    message = f"the compaction worker exited with code {code}" + (f": {lines[-1]}" if lines else "")
    return CompactionFailed(message, is_transient=code < 0)


async def _kill(process: Process) -> None:
    """Kill the worker if it is still running; it has nothing to clean up."""
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await asyncio.shield(process.wait())
