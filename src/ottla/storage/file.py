"""The `FileSystem` port on a real machine.

A broker with ten thousand partitions has more files than a process may hold open. An `OsFile` is
therefore only a path that is opened when it is used: `OsFileSystem` keeps at most `max_open`
descriptors and closes those that have not been used recently. It never closes a descriptor that is
in use, because the kernel could reuse its number for another file in the middle of a read or write.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Sequence

from ottla.base.ports import DiskUsage, FileRange, ReadableBuffer

MAX_BUFFERS_PER_WRITE = 512
"""Buffers passed to one `pwritev` call. Linux accepts at most 1,024 (IOV_MAX)."""
DEFAULT_MAX_OPEN = 4_096
PROBE_EVERY_BYTES = 131_072
PRIVATE = 0o600
"""Mode of files that only their owner may read and write."""

logger = logging.getLogger(__name__)

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def _is_cached(fd: int, position: int, length: int) -> bool:
    """Return whether a range is in the page cache.

    Probes one byte per `PROBE_EVERY_BYTES`, because the kernel reads and drops pages in runs.

    Raises:
        OSError: EAGAIN if a probed byte is not in the page cache.
    """
    byte = bytearray(1)
    last = position + length - 1
    probes = (*range(position, last, PROBE_EVERY_BYTES), last)
    return all(os.preadv(fd, [byte], probe, _NOWAIT or 0) == 1 for probe in probes)


BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""File with Linux's boot ID, which changes at every boot."""


class OsFile:
    """A file that is opened on first use and may be closed between uses."""

    __slots__ = ("_closing", "_fd", "_fs", "_nowait", "_used", "_users", "path", "truncations")

    def __init__(self, fs: OsFileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._fd = -1
        self._closing: list[int] = []
        """Descriptors that the last user closes."""
        self._users: list[None] = []
        """One entry per call in progress. A list, because append and pop need no lock."""
        self._used = False
        self._nowait = _NOWAIT is not None
        self.truncations = 0

    def size(self) -> int:
        fd = self._begin()
        try:
            return os.fstat(fd).st_size
        finally:
            self._end()

    def read(self, position: int, length: int) -> bytes:
        fd = self._begin()
        try:
            data = os.pread(fd, length, position)
            if len(data) == length or not data:
                return data
            pieces = [data]
            while data:
                position += len(data)
                length -= len(data)
                data = os.pread(fd, length, position)
                pieces.append(data)
            return b"".join(pieces)
        finally:
            self._end()

    def read_cached(self, position: int, length: int) -> bytes | None:
        if not self._nowait:
            return self.read(position, length)
        fd = self._begin()
        try:
            if length > PROBE_EVERY_BYTES:
                # Probing is cheaper than zeroing a large buffer that the read then overwrites.
                if not _is_cached(fd, position, length):
                    return None
                data = os.pread(fd, length, position)
                return data if len(data) == length else None
            buffer = bytearray(length)
            count = os.preadv(fd, [buffer], position, _NOWAIT or 0)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                self._nowait = False
                return self.read(position, length)
            raise
        finally:
            self._end()
        return buffer if count == length else None  # type: ignore[return-value]

    def range_cached(self, position: int, length: int) -> FileRange | None:
        if not self._nowait:
            return None
        found = OsFileRange(self, position, length)
        return found if found.is_cached(0, length) else None

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        total = sum(map(len, buffers))
        fd = self._begin()
        try:
            written = os.pwritev(fd, buffers[:MAX_BUFFERS_PER_WRITE], position)
            if written != total:
                self._write_rest(fd, position, buffers, written)
        except OSError as error:
            error.filename = self.path
            raise
        finally:
            self._end()

    def _write_rest(
        self, fd: int, position: int, buffers: Sequence[ReadableBuffer], written: int
    ) -> None:
        """Finish a write that a signal or a full disk cut short."""
        rest = memoryview(b"".join(buffers))[written:]
        position += written
        while rest:
            written = os.pwrite(fd, rest, position)
            position += written
            rest = rest[written:]

    def truncate(self, size: int) -> None:
        self.truncations += 1
        fd = self._begin()
        try:
            os.ftruncate(fd, size)
        finally:
            self._end()

    def sync(self) -> None:
        fd = self._begin()
        try:
            os.fdatasync(fd)
        finally:
            self._end()

    def close(self) -> None:
        self._fs.release(self)

    def _begin(self) -> int:
        """Return a descriptor that stays open until `_end`.

        Registers the use first and reads the descriptor second. A thread that wants to close the
        descriptor detaches it first and checks for users second, so one of the two always sees the
        other.
        """
        self._users.append(None)
        fd = self._fd
        if fd < 0:
            try:
                fd = self._fs.acquire(self)
            except BaseException:
                self._end()
                raise
        self._used = True
        return fd

    def _end(self) -> None:
        self._users.pop()
        if self._closing:
            self._fs.close_unused(self)


class OsFileRange:
    """A range of a file, whose descriptor stays open as long as this object lives.

    Bytes written after a truncation are not the ones this range was created for, so `send` and
    `read` fail once the file has been truncated, at whatever position. Truncations may happen in
    another thread; writes happen only in the thread that sends.
    """

    __slots__ = ("_fd", "_file", "_length", "_position", "_truncations")

    def __init__(self, file: OsFile, position: int, length: int) -> None:
        self._file = file
        self._position = position
        self._length = length
        self._truncations = file.truncations
        self._fd = -1
        self._fd = file._begin()

    def __del__(self) -> None:
        if self._fd >= 0:
            self._file._end()

    def __len__(self) -> int:
        return self._length

    def is_cached(self, start: int, length: int) -> bool:
        try:
            return _is_cached(self._fd, self._position + start, length)
        except OSError:  # not in memory, or a disk error that the actual read will report
            return False

    def send(self, socket: int, start: int, length: int) -> int:
        self._check()
        count = os.sendfile(socket, self._fd, self._position + start, length)
        if not count:
            raise self._truncated_error()
        return count

    def read(self) -> bytes:
        data = os.pread(self._fd, self._length, self._position)
        self._check()
        if len(data) != self._length:
            raise self._truncated_error()
        return data

    def _check(self) -> None:
        if self._file.truncations != self._truncations:
            raise self._truncated_error()

    def _truncated_error(self) -> OSError:
        return OSError(errno.ENODATA, "the file was truncated", self._file.path)


def _make_private(path: str) -> None:
    """Let only the owner access a file. If this is not allowed, log a warning."""
    if not stat.S_IMODE(os.stat(path).st_mode) & ~PRIVATE:
        return
    try:
        os.chmod(path, PRIVATE)
    except PermissionError as error:
        logger.warning("Other users of this machine may be able to read %s: %s", path, error)


class OsFileSystem:
    """The file system of this machine, with a bounded number of open descriptors."""

    def __init__(self, max_open: int = DEFAULT_MAX_OPEN) -> None:
        self._max_open = max_open
        self._open: deque[OsFile] = deque()
        self._lock = threading.RLock()

    # ---------------------------------------------------------------------------- descriptors

    def acquire(self, file: OsFile) -> int:
        with self._lock:
            if file._fd < 0:
                if len(self._open) >= self._max_open:
                    self._close_one()
                file._fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
                self._open.append(file)
            return file._fd

    def _close_one(self) -> None:
        """Close one descriptor, chosen by the second-chance (clock) algorithm."""
        for _ in range(2 * len(self._open)):
            file = self._open.popleft()
            fd, file._fd = file._fd, -1
            if file._used or file._users:
                file._fd, file._used = fd, False
                self._open.append(file)
                continue
            os.close(fd)
            return

    def release(self, file: OsFile) -> None:
        with self._lock:
            if file._fd >= 0:
                fd, file._fd = file._fd, -1
                self._open.remove(file)
                file._closing.append(fd)
                self.close_unused(file)

    def close_unused(self, file: OsFile) -> None:
        with self._lock:
            while file._closing and not file._users:
                os.close(file._closing.pop())

    # ---------------------------------------------------------------------------------- names

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        if create:
            mode = PRIVATE if private else 0o644
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode))
        elif not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if private:
            _make_private(path)
        return OsFile(self, path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_below(self, path: str) -> None:
        """Sync the whole file system that holds `path`.

        One syncfs call replaces a sync per log, which takes a minute for ten thousand logs.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _syncfs is None:
                os.sync()
            elif _syncfs(fd):
                raise OSError(ctypes.get_errno(), "syncfs failed", path)
        finally:
            os.close(fd)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def usage(self, path: str) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def boot_id(self) -> str:
        try:
            return self.read_bytes(BOOT_ID).decode("ascii").strip()
        except (OSError, ValueError):
            return ""
