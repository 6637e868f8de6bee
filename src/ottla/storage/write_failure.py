"""Failed writes to a data directory: their state and their descriptions.

A failed write changes nothing, so a directory that fails because its disk is full needs no restart:
the broker keeps trying, and `probe` detects when writes succeed again. A file that could not be
synced is different. The kernel may have dropped the pages it could not write, so only a restart,
which checks the log, ends that failure.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass, field

from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition

PROBE_FILE = ".ottla_probe"
MIN_PROBE_BYTES = 4_096
MAX_PROBE_BYTES = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(slots=True)
class WriteFailure:
    """State of a data directory from its first failed write until writes succeed again."""

    error: OSError
    """The most recent error."""
    since_ms: int
    needed_bytes: int
    """Size of the largest write that failed."""
    failed_writes: int = 1
    needs_restart: bool = False
    """Whether a file could not be synced, so that its contents are not known."""
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions that could not be appended to."""

    @property
    def is_full(self) -> bool:
        """Whether the disk, or the quota on it, has no room left."""
        return self.error.errno in _FULL

    def add(self, error: OSError, needed_bytes: int) -> None:
        self.error = error
        self.needed_bytes = max(self.needed_bytes, needed_bytes)
        self.failed_writes += 1


def describe_write_error(fs: FileSystem, directory: str, error: OSError, needed_bytes: int) -> str:
    """Return a phrase with the reason, the directory, its free space and the size of the write.

    Example: `disk full: 84.0 KiB of 8.0 MiB are free in /data and the write needs 195.3 KiB`.
    """
    reason = "disk full" if error.errno in _FULL else (error.strerror or str(error)).lower()
    try:
        total, free = fs.usage(directory)
    except OSError:
        return f"{reason}: {directory} cannot be written to"
    text = f"{reason}: {format_bytes(free)} of {format_bytes(total)} are free in {directory}"
    return f"{text} and the write needs {format_bytes(needed_bytes)}" if needed_bytes else text


def probe(fs: FileSystem, directory: str, failure: WriteFailure) -> bool:
    """Return whether a write of the size that failed succeeds now. May block on the disk."""
    if failure.needs_restart:
        return False
    size = min(max(failure.needed_bytes, MIN_PROBE_BYTES), MAX_PROBE_BYTES)
    path = f"{directory}/{PROBE_FILE}"
    try:
        if fs.usage(directory).free_bytes < max(size, failure.needed_bytes):
            return False
        file = fs.open(path, create=True)
        try:
            file.write(0, [bytes(size)])
        finally:
            file.close()
    except OSError:
        return False
    finally:
        with suppress(OSError):
            fs.remove(path)
    return True


def format_bytes(count: int) -> str:
    """Format a size for display: `512 bytes`, `84.0 KiB`."""
    size, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{count} bytes" if unit == _UNITS[0] else f"{size:.1f} {unit}"
