"""Windows in event time.

    tumbling   one after the other: [0, size), [size, 2·size), …
    hopping    windows of `size`, one starting every `every`; a record is in several
    sliding    windows of `difference`, both ends included: one for each distinct set of records
    session    ends when no record follows within `gap`

`grace` is how late a record may be: a window accepts records until stream time has passed its end
by that much. Stream time is the greatest timestamp seen. It advances between micro-batches (in
Kafka Streams, with every record), so the records of one batch are never late for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.durations import Duration, duration_ms, format_duration
from ottla.streams.errors import TopologyError


@dataclass(frozen=True)
class Window:
    """Windows in event time, as `tumbling`, `hopping`, `sliding` and `session` return them."""

    size_ms: int
    """Size of a window, gap of a session, or difference of a sliding window, in milliseconds."""
    every_ms: int | None
    """Interval between the starts of windows; None for sessions and sliding windows."""
    grace_ms: int
    """Time after the end of a window in which it accepts records, in milliseconds."""
    is_sliding: bool = False
    """Whether these are sliding windows."""

    @property
    def is_session(self) -> bool:
        """Whether these are session windows."""
        return self.every_ms is None and not self.is_sliding

    def __str__(self) -> str:
        size = format_duration(self.size_ms)
        if self.is_sliding:
            text = f"sliding {size}"
        elif self.every_ms is None:
            text = f"session of gap {size}"
        elif self.every_ms == self.size_ms:
            text = f"tumbling {size}"
        else:
            text = f"hopping {size} every {format_duration(self.every_ms)}"
        return f"{text}, grace {format_duration(self.grace_ms)}"


def tumbling(size: Duration, *, grace: Duration = "0 seconds") -> Window:
    """Define windows of a fixed size that follow each other without overlap.

    Args:
        size: Size of a window, such as `"5 minutes"`.
        grace: How late a record may be.
    """
    size_ms = duration_ms(size, name="size", min_ms=1)
    return Window(size_ms, size_ms, duration_ms(grace, name="grace"))


def hopping(size: Duration, *, every: Duration, grace: Duration = "0 seconds") -> Window:
    """Define windows of a fixed size that overlap, so that a record is in several.

    Args:
        size: Size of a window.
        every: Interval between the starts of windows, at most `size`.
        grace: How late a record may be.

    Raises:
        TopologyError: `every` is longer than `size`.
    """
    size_ms = duration_ms(size, name="size", min_ms=1)
    every_ms = duration_ms(every, name="every", min_ms=1)
    if every_ms > size_ms:
        raise TopologyError(
            f"every ({format_duration(every_ms)}) must not be longer than size "
            f"({format_duration(size_ms)}), because records between windows would be lost"
        )
    return Window(size_ms, every_ms, duration_ms(grace, name="grace"))


def sliding(difference: Duration, *, grace: Duration = "0 seconds") -> Window:
    """Define a window for each distinct set of records that lie within a time of each other.

    Args:
        difference: Maximum difference of the timestamps, both ends included.
        grace: How late a record may be.
    """
    difference_ms = duration_ms(difference, name="difference", min_ms=1)
    grace_ms = duration_ms(grace, name="grace")
    return Window(difference_ms, None, grace_ms, is_sliding=True)


def session(gap: Duration, *, grace: Duration = "0 seconds") -> Window:
    """Define windows that end when no record arrives for a time.

    Args:
        gap: Time without records that ends a session.
        grace: How late a record may be.
    """
    gap_ms = duration_ms(gap, name="gap", min_ms=1)
    return Window(gap_ms, None, duration_ms(grace, name="grace"))
