"""Page cache of the simulated disk: the fate of writes that were not synced at a power cut.

A node keeps what programs see (`cached`), what is certain (`durable`) and the events since the last
sync. `settle` makes all events durable; `lose` decides at random, by the rules in `disk.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

SECTOR_BYTES = 512
PAGE_BYTES = 4_096


class Write(NamedTuple):
    position: int
    data: bytes


class Truncation(NamedTuple):
    size: int


FileEvent: TypeAlias = Write | Truncation


@dataclass(slots=True, eq=False)
class FileNode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    events: list[FileEvent] = field(default_factory=list)
    """Events since the last sync, oldest first."""
    modified_ms: int = 0

    def record(self, event: FileEvent) -> None:
        self.events.append(event)
        _apply(self.cached, event)

    def sync(self) -> None:
        for event in self.events:
            _apply(self.durable, event)
        self.events.clear()

    def lose_unsynced(self, rng: random.Random) -> None:
        """Decide at random which unsynced events reached the disk."""
        self.durable = _survivors(self.durable, self.events, rng)
        self.events.clear()


@dataclass(slots=True, eq=False)
class DirectoryNode:
    cached: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)
    """Changes since the last sync, oldest first: the new node of each name."""

    def record(self, change: dict[str, Node | None]) -> None:
        self.changes.append(change)
        _rename(self.cached, change)

    def sync(self) -> None:
        for change in self.changes:
            _rename(self.durable, change)
        self.changes.clear()

    def lose_unsynced(self, rng: random.Random) -> None:
        in_order = rng.random() < 0.5
        kept = rng.randint(0, len(self.changes))
        for number, change in enumerate(self.changes):
            if number < kept if in_order else rng.random() < 0.5:
                _rename(self.durable, change)
        self.changes.clear()


Node: TypeAlias = FileNode | DirectoryNode


def _rename(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _apply(contents: bytearray, event: FileEvent) -> None:
    end = event.size if isinstance(event, Truncation) else event.position
    contents.extend(bytes(max(0, end - len(contents))))
    if isinstance(event, Truncation):
        del contents[end:]
    else:
        contents[end : end + len(event.data)] = event.data


def sync_below(directory: DirectoryNode) -> None:
    directory.sync()
    for node in directory.cached.values():
        if isinstance(node, DirectoryNode):
            sync_below(node)
        else:
            node.sync()


def after_power_cut(directory: DirectoryNode, rng: random.Random) -> DirectoryNode:
    directory.lose_unsynced(rng)
    found = DirectoryNode()
    for name, node in sorted(directory.durable.items()):
        if isinstance(node, DirectoryNode):
            found.cached[name] = after_power_cut(node, rng)
        else:
            node.lose_unsynced(rng)
            found.cached[name] = FileNode(
                node.durable, bytearray(node.durable), [], node.modified_ms
            )
    found.durable = dict(found.cached)
    return found


def _survivors(durable: bytearray, events: list[FileEvent], rng: random.Random) -> bytearray:
    """Return the contents of a file after a power cut.

    Each sector is in the state after some number of the events, which `_Moments` draws.
    """
    truncations = [n for n, event in enumerate(events) if isinstance(event, Truncation)]
    happened = rng.randint(0, len(truncations))
    if happened < len(truncations):
        events = events[: truncations[happened]]
    contents, moments, size = bytearray(durable), _Moments(len(events), rng), len(durable)
    for number, event in enumerate(events):
        if isinstance(event, Truncation):
            _apply(contents, event)
            size = event.size
            continue
        size = max(size, event.position + len(event.data))
        for piece in _sectors(event):
            if number < moments.of(piece.position):
                _apply(contents, piece)
    if size > len(contents) and rng.random() < 0.4:
        contents.extend(bytes(rng.choice([size, rng.randint(len(contents), size)]) - len(contents)))
    return contents


class _Moments:
    """Number of events that each sector has received."""

    def __init__(self, count: int, rng: random.Random) -> None:
        self._count = count
        self._rng = rng
        self._is_scattered = rng.random() < 0.6
        self._all = rng.choice([0, count, rng.randint(0, count)])
        self._pages: dict[int, int] = {}
        self._sectors: dict[int, int] = {}

    def of(self, position: int) -> int:
        if not self._is_scattered:
            return self._all
        page, sector = position // PAGE_BYTES, position // SECTOR_BYTES
        if page not in self._pages:
            self._pages[page] = self._draw([self._count, self._count, 0, -1])
        if self._pages[page] >= 0:
            return self._pages[page]
        if sector not in self._sectors:
            self._sectors[sector] = self._draw([self._count, 0])
        return self._sectors[sector]

    def _draw(self, usual: list[int]) -> int:
        return self._rng.choice([*usual, self._rng.randint(0, self._count)])


def _sectors(write: Write) -> Iterator[Write]:
    position, end = write.position, write.position + len(write.data)
    while position < end:
        stop = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        start = position - write.position
        yield Write(position, write.data[start : start + stop - position])
        position = stop
