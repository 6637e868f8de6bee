"""Which bytes of a segment need not be verified again.

A batch is verified when it is appended, and when it is read from the disk. While it stays in memory
after that, a large read may send it as it is. So a segment remembers

    [tail, its end)      everything appended since it was opened, and what was read up to there
    spans                other ranges that readers have walked, a few of them

and forgets all of it when bytes had to come from the disk: the kernel reads ahead, so others that
were dropped from memory may have come back with them.

Readers in other threads may only say so (`came_from_disk`); everything else is the loop's."""

from __future__ import annotations

MAX_SPANS = 4
"""Readers that catch up at the same time, at different places of a segment."""


class VerifiedBytes:
    __slots__ = ("_spans", "_tail", "came_from_disk")

    def __init__(self, size: int) -> None:
        """Of a segment that has `size` bytes nobody has looked at."""
        self._tail = size
        self._spans: tuple[tuple[int, int], ...] = ()
        """None touches another, or the tail; the oldest first."""
        self.came_from_disk = False

    def covers(self, start: int, end: int) -> bool:
        """`end` is at most that of the segment."""
        if self.came_from_disk:
            return False
        if start >= self._tail:
            return True
        return any(first <= start and end <= last for first, last in self._spans)

    def add(self, start: int, end: int, size: int) -> None:
        """A range of a segment that has `size` bytes was read from memory, and is good."""
        if self.came_from_disk:
            self.came_from_disk = False
            self._tail, self._spans = size, ()
        apart = []
        for span in self._spans:
            if span[1] < start or end < span[0]:
                apart.append(span)
            else:
                start, end = min(start, span[0]), max(end, span[1])
        if end >= self._tail:
            self._tail = min(start, self._tail)
        else:
            apart.append((start, end))
        self._spans = tuple(apart[-MAX_SPANS:])

    def cut(self, size: int) -> None:
        """The segment was truncated; what is appended from there on is new."""
        self._tail = min(self._tail, size)
        self._spans = tuple(span for span in self._spans if span[1] < self._tail)
