"""Interfaces to the outside world: clocks, files and file systems.

The broker receives implementations of them, so the same code runs on a real machine and, in tests,
with simulated ones under a virtual clock with reproducible faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview

TEMPORARY_SUFFIX = ".tmp"

T = TypeVar("T")


class RunBlocking(Protocol):
    """A function that runs another one in a thread, and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def time_ms(self) -> int:
        """Return the wall-clock time, in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Return a time in seconds that never decreases."""


class FileRange(Protocol):
    """A range of bytes in a file that can be sent to a socket without copying.

    The file stays open as long as this object lives, even if it is renamed or removed.
    """

    def __len__(self) -> int: ...

    def is_cached(self, start: int, length: int) -> bool:
        """Return whether a part of the range is in memory, so that sending it does not block."""

    def send(self, socket: int, start: int, length: int) -> int:
        """Send up to `length` bytes, beginning at `start`, to the descriptor of a socket.

        Returns:
            The number of bytes that were sent.

        Raises:
            BlockingIOError: The socket cannot accept any bytes now.
            OSError: The socket is broken, or the file has been truncated.
        """

    def read(self) -> bytes:
        """Return the whole range. May block on the disk.

        Raises:
            OSError: The file cannot be read, or has been truncated.
        """


Piece: TypeAlias = ReadableBuffer | FileRange
"""A part of a message to send."""


class File(Protocol):
    """An open file without a cursor: all positions are explicit. Every method may raise OSError."""

    path: str

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file. May block on the disk."""

    def read_cached(self, position: int, length: int) -> bytes | None:
        """Return what `read` would, or None if that would have to wait for the disk."""

    def range_cached(self, position: int, length: int) -> FileRange | None:
        """Return a range without reading it, or None if it is not in memory or not supported."""

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        """Write all buffers consecutively. If this raises, a part may have been written."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once the contents and the size of the file survive a power failure."""

    def close(self) -> None: ...


class DiskUsage(NamedTuple):
    """Size of the file system that holds a path, and the space this process can still use."""

    total_bytes: int
    free_bytes: int


class FileSystem(Protocol):
    """A file system whose paths are strings separated by `/`.

    Creating, renaming or removing a name is durable only after `sync_directory` of its parent.
    """

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """Open a file.

        Args:
            path: The path of the file.
            create: Create the file if it does not exist.
            private: Let only the owner of the file read it, also if the file exists.
        """

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directories(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file. Do nothing if it does not exist."""

    def remove_tree(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing the target."""

    def sync_directory(self, path: str) -> None: ...

    def sync_below(self, path: str) -> None:
        """Return once every file and name below `path` survives a power failure.

        Meant for many files at once. It may sync more than that.
        """

    def read_bytes(self, path: str) -> bytes: ...

    def usage(self, path: str) -> DiskUsage:
        """Return the size and the free bytes of the file system that holds `path`."""

    def boot_id(self) -> str:
        """Return an ID that changes whenever unsynced writes may have been lost.

        That is the case after the machine went down, but not if only the process ended. The ID is
        empty if this cannot be determined.
        """


def write_atomically(fs: FileSystem, path: str, data: bytes, *, private: bool = False) -> None:
    """Replace a small file. After a crash it has either the old contents or the new.

    Args:
        fs: The file system.
        path: The path of the file.
        data: The new contents.
        private: Let only the owner read the file, and the temporary file that it is made from.
    """
    temporary = path + TEMPORARY_SUFFIX
    write_unsynced(fs, temporary, data, private=private)
    file = fs.open(temporary)
    try:
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.rpartition("/")[0])


def write_unsynced(fs: FileSystem, path: str, data: bytes, *, private: bool = False) -> None:
    """Write a small file without syncing it. A power failure may leave any part of it."""
    file = fs.open(path, create=True, private=private)
    try:
        file.truncate(0)
        file.write(0, [data])
    finally:
        file.close()
