"""Measurements from the kernel about a process, and the best case of the machine."""

from __future__ import annotations

import mmap
import os
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path

GB = 1_000_000_000
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def is_within(self) -> bool:
        if self.budget is None:
            return True
        return self.value >= self.budget if self.at_least else self.value <= self.budget


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def exact_cpu_seconds(pid: int) -> float:
    """Return the same as the scheduler counts it, in nanoseconds instead of ticks.

    Threads that have ended are left out.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def touch_memory(size_bytes: int) -> None:
    """Touch memory once, so that its allocation is not charged to the broker.

    A virtual machine receives its memory page by page, on first access, and the kernel charges this
    to the process that writes to the page cache.
    """
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, _PAGE):
            memory[position] = 1


def write_floor_seconds(size_bytes: int, chunk_bytes: int, directory: str) -> float:
    """Return the CPU seconds needed just to write an amount of data to a file."""
    chunk = os.urandom(chunk_bytes)
    with tempfile.TemporaryFile(dir=directory) as file:
        before = resource.getrusage(resource.RUSAGE_SELF)
        for position in range(0, size_bytes, chunk_bytes):
            os.pwrite(file.fileno(), chunk, position)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
