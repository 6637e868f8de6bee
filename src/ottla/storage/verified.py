"""The byte ranges of a segment that need not be verified again.

A batch is verified when it is appended and when it is read from the disk. As long as it stays in
the page cache, a large read may send it without another check. A segment therefore records

    [tail, end)      everything appended since it was opened, and adjacent ranges that were read
    spans            up to `MAX_SPANS` other ranges that readers have verified

and discards both as soon as any bytes come from the disk: the kernel reads ahead, so other bytes
that had been evicted may have been read again, unverified, along with them.

Readers in other threads may only set `was_read_from_disk`; everything else belongs to the broker's
event loop.
"""

from __future__ import annotations

MAX_SPANS = 4
"""Ranges to keep: one per consumer that is catching up at its own place in the segment."""


class VerifiedBytes:
    """The verified byte ranges of one segment."""

    __slots__ = ("_spans", "_tail", "was_read_from_disk")

    def __init__(self, size: int) -> None:
        """Begin with a segment of `size` bytes that have not been verified."""
        self._tail = size
        self._spans: tuple[tuple[int, int], ...] = ()
        """Disjoint ranges that do not touch the tail, oldest first."""
        self.was_read_from_disk = False

    def covers(self, start: int, end: int) -> bool:
        """Return whether a range is verified. `end` must not exceed the size of the segment."""
        if self.was_read_from_disk:
            return False
        if start >= self._tail:
            return True
        return any(first <= start and end <= last for first, last in self._spans)

    def add(self, start: int, end: int, size: int) -> None:
        """Record that a range was read from the page cache and verified.

        Args:
            start: First byte of the range.
            end: First byte after the range.
            size: Current size of the segment.
        """
        if self.was_read_from_disk:
            self.was_read_from_disk = False
            self._tail, self._spans = size, ()
        disjoint = []
        for span in self._spans:
            if span[1] < start or end < span[0]:
                disjoint.append(span)
            else:
                start, end = min(start, span[0]), max(end, span[1])
        if end >= self._tail:
            self._tail = min(start, self._tail)
        else:
            disjoint.append((start, end))
        self._spans = tuple(disjoint[-MAX_SPANS:])

    def truncate(self, size: int) -> None:
        """Forget ranges at or after `size`, to which the segment has been truncated."""
        self._tail = min(self._tail, size)
        self._spans = tuple(span for span in self._spans if span[1] < self._tail)
