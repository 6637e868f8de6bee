"""Disk in memory that behaves as badly as a real one may: the FileSystem port with a page cache.

Programs see the cache. Less than that survives a power cut:

    contents    Certain as of the last `sync` of the file. After that, each 512-byte sector is in
                the state of some moment since then; within a page of 4,096 bytes, mostly the same
                moment. The file may have grown without its data having arrived, as zeros.
    truncation  Happened or not. If it did not, later writes are lost.
    names       Certain as of the last `sync_directory`. Each creation, rename (as a whole) and
                removal since then happened or not.

A process crash (`kill`) loses nothing. A `sync` that fails leaves its file as a power cut would,
while the cache continues to show everything, and a later sync does not write it again: the kernel
has marked the pages clean.

Faults are scripted (`inject`, `capacity`, `flip_bit`, `cut_in`) or drawn from the seed
(`fault_rate`, `cold_rate`). Every call looks up its file by path, as for a program whose
descriptors may be closed between any two calls. Nothing here is thread-safe.
"""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.base.ports import Clock, DiskUsage, ReadableBuffer
from ottla.testing.simulation.clock import SimulatedClock
from ottla.testing.simulation.page_cache import (
    DirectoryNode,
    FileNode,
    Node,
    Truncation,
    Write,
    after_power_cut,
    sync_below,
)

DATA_OPERATIONS = frozenset({"read", "write", "sync"})
ENDLESS = 1 << 50
"""Free bytes that a disk without a `capacity` reports."""


class PowerCut(Exception):
    """The machine is off. `power_cut` returns the disk that the next start finds."""


@dataclass(slots=True)
class Fault:
    """Failure of an operation: after `skip` successful calls, the next `times` calls fail.

    An operation is named after its method. `path` is a substring of the affected paths.
    """

    operation: str
    error: int = errno.EIO
    path: str = ""
    skip: int = 0
    times: int = 1


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self.path = path
        self._disk = disk

    def size(self) -> int:
        return len(self._disk.file_for("size", self.path).cached)

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._disk.file_for("read", self.path).cached[position : position + length])

    def read_cached(self, position: int, length: int) -> bytes | None:
        return None if self._disk.is_cold() else self.read(position, length)

    def range_cached(self, position: int, length: int) -> None:
        """Return None: the simulated network sends bytes, not files."""

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        self._disk.write(self.path, position, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._disk.truncate(self.path, size)

    def sync(self) -> None:
        self._disk.sync(self.path)

    def close(self) -> None:
        pass


class SimulatedDisk:
    """Simulated disk.

    `capacity` limits the total bytes of all files; None is unlimited. A write that does not fit
    writes as much as there is room for, and raises ENOSPC.
    """

    def __init__(self, seed: int = 0, clock: Clock | None = None) -> None:
        self.rng = random.Random(seed)
        self.capacity: int | None = None
        self.fault_rate = 0.0
        """Probability that a call of one of `random_operations` fails with EIO."""
        self.random_operations = DATA_OPERATIONS
        self.cold_rate = 0.0
        """Probability that bytes are not in the cache, so that `read_cached` returns None."""
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._clock = clock if clock is not None else SimulatedClock()
        self._root = DirectoryNode()
        self._faults: list[Fault] = []
        self._calls_until_cut: int | None = None
        self._is_off = False
        self._power_cuts = 0

    # ------------------------------------------------------------------------------------ faults

    def inject(self, fault: Fault) -> None:
        self._faults.append(fault)

    def heal(self) -> None:
        """Remove all faults and the limit on capacity."""
        self._faults.clear()
        self.capacity, self.fault_rate, self.cold_rate = None, 0.0, 0.0

    def cut_in(self, calls: int | None) -> None:
        """Raise PowerCut in place of the call after the next `calls` calls; None never does."""
        self._calls_until_cut = calls

    def fill(self, room_bytes: int) -> None:
        """Limit the capacity so that `room_bytes` are free."""
        self.capacity = _total_size(self._root) + room_bytes

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of a file on the medium, unnoticed."""
        file = self._file(path)
        for contents in (file.cached, file.durable):
            if position < len(contents):
                contents[position] ^= 1 << bit

    def power_cut(self, rng: random.Random | None = None) -> SimulatedDisk:
        """Turn the machine off, and return the disk in the state that the next start finds."""
        rng = self.rng if rng is None else rng
        self._is_off = True
        found = self._successor()
        found._root = after_power_cut(self._root, rng)
        found._power_cuts = self._power_cuts + 1
        return found

    def kill(self) -> SimulatedDisk:
        """End the process that used the disk, and return the complete disk for the next one."""
        self._is_off = True
        found = self._successor()
        found._root = self._root
        found._power_cuts = self._power_cuts
        return found

    def usage(self, path: str) -> DiskUsage:
        self._call("usage", path)
        used, room = _total_size(self._root), self._room()
        return DiskUsage(used + ENDLESS, ENDLESS) if room is None else DiskUsage(used + room, room)

    def boot_id(self) -> str:
        return f"boot-{self._power_cuts}"

    def _successor(self) -> SimulatedDisk:
        successor = SimulatedDisk(clock=self._clock)
        successor.rng = self.rng
        successor.capacity = self.capacity
        return successor

    def is_cold(self) -> bool:
        return self.cold_rate > 0 and self.rng.random() < self.cold_rate

    def _call(self, operation: str, path: str) -> None:
        if self._is_off:
            raise PowerCut
        if self._calls_until_cut is not None:
            self._calls_until_cut -= 1
            if self._calls_until_cut < 0:
                self._is_off = True
                raise PowerCut
        self.calls[operation] += 1
        for fault in self._faults:
            if fault.operation == operation and fault.path in path:
                self._hit(fault, path)
        is_random = self.fault_rate > 0 and operation in self.random_operations
        if is_random and self.rng.random() < self.fault_rate:
            raise _error(errno.EIO, path)

    def _hit(self, fault: Fault, path: str) -> None:
        if fault.skip > 0:
            fault.skip -= 1
        elif fault.times > 0:
            fault.times -= 1
            raise _error(fault.error, path)

    # -------------------------------------------------------------------------------------- data

    def file_for(self, operation: str, path: str) -> FileNode:
        self._call(operation, path)
        return self._file(path)

    def write(self, path: str, position: int, data: bytes) -> None:
        file = self._file(path)
        try:
            self._call("write", path)
        except OSError:
            self._put(file, position, data[: self.rng.randint(0, len(data))])
            raise
        room = self._room()
        growth = max(0, position + len(data) - len(file.cached))
        if room is not None and growth > room:
            self._put(file, position, data[: len(data) - (growth - room)])
            raise _error(errno.ENOSPC, path)
        self._put(file, position, data)

    def _put(self, file: FileNode, position: int, data: bytes) -> None:
        if data:
            file.record(Write(position, data))
            file.modified_ms = self._clock.time_ms()

    def truncate(self, path: str, size: int) -> None:
        file = self.file_for("truncate", path)
        if size != len(file.cached):
            file.record(Truncation(size))
            file.modified_ms = self._clock.time_ms()

    def sync(self, path: str) -> None:
        file = self._file(path)
        try:
            self._call("sync", path)
        except OSError:
            file.lose_unsynced(self.rng)
            raise
        file.sync()

    def _room(self) -> int | None:
        if self.capacity is None:
            return None
        return max(0, self.capacity - _total_size(self._root))

    # ------------------------------------------------------------------------------------- names

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimulatedFile:
        self._call("open", path)
        parent, name = self._parent(path)
        if name not in parent.cached:
            if not create:
                raise _error(errno.ENOENT, path)
            if self._room() == 0:
                raise _error(errno.ENOSPC, path)
            parent.record({name: FileNode(modified_ms=self._clock.time_ms())})
        self._file(path)
        return SimulatedFile(self, path)

    def list(self, path: str) -> list[str]:
        self._call("list", path)
        return sorted(self._directory(path).cached)

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        self._call("is_directory", path)
        return isinstance(self._find(path), DirectoryNode)

    def size(self, path: str) -> int:
        return len(self.file_for("size", path).cached)

    def modified_ms(self, path: str) -> int:
        return self.file_for("modified_ms", path).modified_ms

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.file_for("read", path).cached)

    def make_directories(self, path: str) -> None:
        self._call("make_directories", path)
        node: DirectoryNode = self._root
        for name in _parts(path):
            if name not in node.cached:
                node.record({name: DirectoryNode()})
            child = node.cached[name]
            if not isinstance(child, DirectoryNode):
                raise _error(errno.ENOTDIR, path)
            node = child

    def remove(self, path: str) -> None:
        self._call("remove", path)
        if self._find(path) is None:
            return
        parent, name = self._parent(path)
        self._file(path)
        parent.record({name: None})

    def remove_tree(self, path: str) -> None:
        self._call("remove_tree", path)
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            for name in sorted(node.cached):
                self._remove_node(node, name)
            parent, name = self._parent(path)
            parent.record({name: None})

    def _remove_node(self, parent: DirectoryNode, name: str) -> None:
        child = parent.cached[name]
        if isinstance(child, DirectoryNode):
            for each in sorted(child.cached):
                self._remove_node(child, each)
        parent.record({name: None})

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source)
        parent, name = self._parent(source)
        if name not in parent.cached:
            raise _error(errno.ENOENT, source)
        other, new_name = self._parent(target)
        if other is not parent:
            raise _error(errno.EXDEV, target)
        if new_name != name:
            parent.record({name: None, new_name: parent.cached[name]})

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)
        self._directory(path).sync()

    def sync_below(self, path: str) -> None:
        self._call("sync_below", path)
        sync_below(self._directory(path))

    # ------------------------------------------------------------------------------------ finding

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, DirectoryNode) or name not in node.cached:
                return None
            node = node.cached[name]
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _parts(path: str) -> Iterator[str]:
    return (name for name in path.split("/") if name)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _total_size(directory: DirectoryNode) -> int:
    return sum(
        len(node.cached) if isinstance(node, FileNode) else _total_size(node)
        for node in directory.cached.values()
    )
