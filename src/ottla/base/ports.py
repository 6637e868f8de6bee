"""What Ottla asks of the outside world. The broker is given these, so that the same code runs on
a real machine and, with simulated ones, under a virtual clock with repeatable faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    def time_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class FileRange(Protocol):
    """Bytes that are still where they are, in a file, and can be sent from there uncopied. The file
    may be renamed or removed meanwhile; it stays open as long as this lives."""

    def __len__(self) -> int: ...

    def is_cached(self, start: int, length: int) -> bool:
        """Whether a part of it is in memory, so that sending it waits for no disk."""

    def send(self, socket: int, start: int, length: int) -> int:
        """Hand up to `length` bytes from `start` on to a socket's descriptor; how many it took.
        Raises OSError: BlockingIOError if the socket takes nothing now, another if it never will,
        or if the file was truncated since."""

    def read(self) -> bytes:
        """All of it. May wait for the disk; raises OSError as `send`."""


Piece: TypeAlias = ReadableBuffer | FileRange
"""A part of a message that is sent."""


class File(Protocol):
    """One open file. Every method may raise OSError; positions are explicit, there is no cursor."""

    path: str

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes (fewer only at the end of the file). May wait for the disk."""

    def read_cached(self, position: int, length: int) -> bytes | None:
        """As `read`, but None where the bytes are not in memory and would have to be waited for."""

    def range_cached(self, position: int, length: int) -> FileRange | None:
        """The bytes unread; None where they are not in memory, or can only be read."""

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        """Write all the buffers one after another, or raise; a raise may leave a part written."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when contents and size survive a power cut."""

    def close(self) -> None: ...


class DiskUsage(NamedTuple):
    """Size of the file system that holds a path, and how much of it this process may still use."""

    total_bytes: int
    free_bytes: int


class FileSystem(Protocol):
    """Paths are strings with `/`. A created, renamed or removed name survives a power cut only
    after `sync_directory` of its parent."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directories(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""

    def remove_tree(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces the target file."""

    def sync_directory(self, path: str) -> None: ...

    def sync_below(self, path: str) -> None:
        """Returns when every file and name below `path` survives a power cut. For many files at
        once; it may sync more than that."""

    def read_bytes(self, path: str) -> bytes: ...

    def usage(self, path: str) -> DiskUsage:
        """Return the size and the free bytes of the file system that holds `path`."""

    def boot_id(self) -> str:
        """Another one whenever writes that were not synced may have been lost, as when the machine
        went down; the same when only the process ended. Empty if that is not known."""


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file so that after any crash it holds the old contents or the new."""
    temporary = path + ".tmp"
    write_unsynced(fs, temporary, data)
    file = fs.open(temporary)
    try:
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.rpartition("/")[0])


def write_unsynced(fs: FileSystem, path: str, data: bytes) -> None:
    """Write a small file; a power cut may leave any part of it."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
    finally:
        file.close()
