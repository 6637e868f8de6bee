"""The FileSystem port on a real machine.

A broker with ten thousand partitions has more files than a process may hold open, so an `OsFile`
is a name that is opened when it is used: the file system keeps at most `max_open` descriptors and
closes those not used lately. A descriptor in use by another thread is pinned and never closed
under it (the number could be given to another file in the middle of a read)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections import deque
from collections.abc import Iterator, Sequence

from ottla.base.ports import ReadableBuffer

MAX_BUFFERS_PER_WRITE = 512
"""Linux takes at most 1,024 buffers in one call."""
DEFAULT_MAX_OPEN = 4_096

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class OsFile:
    __slots__ = ("_closing_fd", "_fd", "_fs", "_nowait", "_pins", "_used", "path")

    def __init__(self, fs: OsFileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._fd = -1
        self._closing_fd = -1
        self._pins = 0
        self._used = False
        self._nowait = _NOWAIT is not None

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read(self, position: int, length: int) -> bytes:
        with self._fs.pinned(self) as fd:
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

    def read_cached(self, position: int, length: int) -> bytes | None:
        if not self._nowait:
            return os.pread(self._descriptor(), length, position)
        buffer = bytearray(length)
        try:
            count = os.preadv(self._descriptor(), [buffer], position, _NOWAIT or 0)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                self._nowait = False
                return self.read_cached(position, length)
            raise
        return buffer if count == length else None  # type: ignore[return-value]

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        total = sum(map(len, buffers))
        fd = self._descriptor()
        written = os.pwritev(fd, buffers[:MAX_BUFFERS_PER_WRITE], position)
        if written != total:
            self._write_rest(fd, position, buffers, written)

    def _write_rest(
        self, fd: int, position: int, buffers: Sequence[ReadableBuffer], written: int
    ) -> None:
        """A signal or a full disk cut the write short: go on until all is written or it raises."""
        rest = memoryview(b"".join(buffers))[written:]
        position += written
        while rest:
            written = os.pwrite(fd, rest, position)
            position += written
            rest = rest[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor(), size)

    def sync(self) -> None:
        with self._fs.pinned(self) as fd:
            os.fdatasync(fd)

    def close(self) -> None:
        self._fs.release(self)

    def _descriptor(self) -> int:
        self._used = True
        if self._fd < 0:
            self._fs.acquire(self)
        return self._fd


class OsFileSystem:
    def __init__(self, max_open: int = DEFAULT_MAX_OPEN) -> None:
        self._max_open = max_open
        self._open: deque[OsFile] = deque()
        self._lock = threading.RLock()

    # ---------------------------------------------------------------------------- descriptors

    def acquire(self, file: OsFile) -> None:
        with self._lock:
            if file._fd >= 0:
                return
            if len(self._open) >= self._max_open:
                self._close_one_unused()
            file._fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            self._open.append(file)

    def _close_one_unused(self) -> None:
        """Second chance: a file used since it was last looked at goes to the back of the queue."""
        for _ in range(2 * len(self._open)):
            file = self._open.popleft()
            if file._fd < 0:
                return
            if file._used or file._pins:
                file._used = False
                self._open.append(file)
                continue
            os.close(file._fd)
            file._fd = -1
            return

    @contextlib.contextmanager
    def pinned(self, file: OsFile) -> Iterator[int]:
        with self._lock:
            fd = file._descriptor()
            file._pins += 1
        try:
            yield fd
        finally:
            with self._lock:
                file._pins -= 1
                if not file._pins and file._closing_fd >= 0:
                    os.close(file._closing_fd)
                    file._closing_fd = -1

    def release(self, file: OsFile) -> None:
        with self._lock:
            if file._fd < 0:
                return
            fd, file._fd = file._fd, -1
            with contextlib.suppress(ValueError):
                self._open.remove(file)
            if file._pins:
                file._closing_fd = fd  # the last reader closes it
            else:
                os.close(fd)

    # ---------------------------------------------------------------------------------- names

    def open(self, path: str, *, create: bool = False) -> OsFile:
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        elif not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
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

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()
