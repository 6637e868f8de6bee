"""What the kernel knows about a process, and what the machine can do at best."""

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
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def touch_memory(size_bytes: int) -> None:
    """A virtual machine is given its memory page by page, when it is first touched, and the kernel
    charges that to whoever writes to the page cache. Touch it once, so that nobody pays."""
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, _PAGE):
            memory[position] = 1


def write_floor_seconds(size_bytes: int, chunk_bytes: int, directory: str) -> float:
    """CPU seconds that writing so much to a file costs anyone, with nothing else done."""
    chunk = os.urandom(chunk_bytes)
    with tempfile.TemporaryFile(dir=directory) as file:
        before = resource.getrusage(resource.RUSAGE_SELF)
        for position in range(0, size_bytes, chunk_bytes):
            os.pwrite(file.fileno(), chunk, position)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
