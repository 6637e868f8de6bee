"""An in-memory FileSystem that can run full and that loses unsynced data on a power cut."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ottla.base.ports import ReadableBuffer


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""


class MemoryFile:
    def __init__(self, fs: MemoryFileSystem, path: str, inode: Inode) -> None:
        self.path = path
        self._fs = fs
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.data)

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._inode.data[position : position + length])

    def read_cached(self, position: int, length: int) -> bytes | None:
        return self.read(position, length)

    def range_cached(self, position: int, length: int) -> None: ...

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        data = b"".join(buffers)
        room = self._fs.room()
        if room is not None and room < len(data):
            self._put(position, data[:room])
            raise OSError(errno.ENOSPC, "No space left on device")
        self._put(position, data)

    def _put(self, position: int, data: bytes) -> None:
        content = self._inode.data
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        if self._fs.refuse_truncate:
            raise OSError(errno.EIO, "Input/output error")
        del self._inode.data[size:]

    def sync(self) -> None:
        self._fs.syncs += 1
        self._inode.synced = bytes(self._inode.data)

    def close(self) -> None:
        pass


class MemoryFileSystem:
    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.synced_names: dict[str, Inode] = {}
        self.capacity: int | None = None
        self.refuse_truncate = False
        self.syncs = 0

    def room(self) -> int | None:
        if self.capacity is None:
            return None
        return max(0, self.capacity - sum(len(inode.data) for inode in self.names.values()))

    def power_cut(self) -> None:
        self.names = dict(self.synced_names)
        for inode in self.names.values():
            inode.data = bytearray(inode.synced)

    def open(self, path: str, *, create: bool = False, private: bool = False) -> MemoryFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(path)
            self.names[path] = Inode()
        return MemoryFile(self, path, self.names[path])

    def list(self, path: str) -> list[str]:
        start = path + "/"
        return sorted(
            {name[len(start) :].split("/")[0] for name in self.names if name.startswith(start)}
        )

    def exists(self, path: str) -> bool:
        return path in self.names or self.is_directory(path)

    def is_directory(self, path: str) -> bool:
        return any(name.startswith(path + "/") for name in self.names)

    def size(self, path: str) -> int:
        return len(self.names[path].data)

    def modified_ms(self, path: str) -> int:
        return 0

    def make_directories(self, path: str) -> None:
        pass

    def remove(self, path: str) -> None:
        self.names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            del self.names[name]

    def rename(self, source: str, target: str) -> None:
        self.names[target] = self.names.pop(source)

    def sync_directory(self, path: str) -> None:
        start = path + "/"
        kept = {
            name: node for name, node in self.synced_names.items() if not name.startswith(start)
        }
        kept.update((name, node) for name, node in self.names.items() if name.startswith(start))
        self.synced_names = kept

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.names[path].data)
