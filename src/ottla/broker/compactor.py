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
    Answer,
    CleanedSegment,
    CompactionFailure,
    CompactionJob,
    CompactionResult,
    decode_answer,
)
from ottla.wire.records.errors import BatchError

WORKER = "ottla.storage.compaction_worker"
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 4096
LOOK_AGAIN_S = 1.0
"""Interval between checks whether the result is still wanted."""

OnCleaned = Callable[[CleanedSegment], Awaitable[None]]
IsWanted = Callable[[], bool]


class CompactionFailed(Exception):
    """A compaction that failed; a transient failure is worth a retry."""

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class CompactionUnwanted(Exception):
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
            CompactionUnwanted: `is_wanted` returned False. What `on_cleaned` raises is passed on.
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
            await _give(process, job)
            return await _follow(process, on_cleaned, is_wanted)
        finally:
            await _end(process)


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


async def _give(process: Process, job: CompactionJob) -> None:
    """Send the job. The pipe stays open; the worker stops when it is closed."""
    assert process.stdin is not None
    process.stdin.write(job.to_json().encode() + b"\n")
    try:
        await process.stdin.drain()
    except ConnectionError:
        pass  # the worker has died already; `_died` reports why


async def _follow(process: Process, on_cleaned: OnCleaned, is_wanted: IsWanted) -> CompactionResult:
    while True:
        answer = await _next_answer(process, is_wanted)
        if isinstance(answer, CompactionResult):
            return answer
        if isinstance(answer, CompactionFailure):
            raise CompactionFailed(answer.message, is_transient=answer.is_transient)
        await on_cleaned(answer)


async def _next_answer(process: Process, is_wanted: IsWanted) -> Answer:
    assert process.stdout is not None
    while is_wanted():
        try:
            line = await asyncio.wait_for(process.stdout.readline(), LOOK_AGAIN_S)
        except TimeoutError:
            continue
        if not line:
            raise await _died(process)
        return decode_answer(line)
    raise CompactionUnwanted


async def _died(process: Process) -> CompactionFailed:
    """Return the reason why a worker exited without a result. If it was killed (memory was short,
    say), a retry may succeed."""
    assert process.stderr is not None
    code = await process.wait()
    said = (await process.stderr.read(MAX_LINE_BYTES))[-MAX_ERROR_BYTES:]
    lines = said.decode("utf-8", "replace").strip().splitlines()
    message = f"the compaction worker exited with code {code}" + (f": {lines[-1]}" if lines else "")
    return CompactionFailed(message, is_transient=code < 0)


async def _end(process: Process) -> None:
    """Kill the worker if it is still running; it has nothing to clean up."""
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await asyncio.shield(process.wait())
