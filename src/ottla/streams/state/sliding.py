"""Aggregations by key in sliding windows, as Kafka Streams defines them.

    state   CLOSED -> time up to which windows are closed
            key -> [(timestamp, value), …] by time; records with equal timestamps in arrival order

A window is `difference` long, both ends included, and there is one for each distinct set of
records: it ends with a record, [t - difference, t], or begins right after one that has left it,
[t + 1, t + 1 + difference]. None begins before 1970. A record changes all windows that contain it;
each changed window is emitted once per batch.

Windows overlap by records, not by a fixed step. The records are therefore kept for as long as a
window may need them, and aggregates are recomputed from them, by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.folds import Fold
from ottla.streams.state.program import Batch, Output, State

CLOSED = ("closed",)
"""Cannot collide with a key: no key is a plain tuple, since records have a class of their own."""
_NEVER_CLOSED = -(2**63)


def _time(record: tuple[int, Any]) -> int:
    return record[0]


@dataclass(frozen=True)
class SlidingWindows:
    fold: Fold
    difference_ms: int
    grace_ms: int
    is_final: bool
    emits_late: bool
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        close_ms = stream_time_ms - self.grace_ms
        outputs = list(self._closed(state, close_ms))
        added: dict[Any, list[int]] = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            if at_ms + 1 + self.difference_ms <= close_ms:
                if self.emits_late:
                    outputs.append(Output(key, None, at_ms, late=value))
                continue
            insort(state.setdefault(key, []), (at_ms, value), key=_time)
            added.setdefault(key, []).append(at_ms)
        if not self.is_final:
            for key, times_ms in added.items():
                outputs += self._changed(key, state[key], sorted(times_ms), close_ms)
        if len(state) == (CLOSED in state):
            state.clear()
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        earliest = (records[0][0] for key, records in state.items() if key != CLOSED)
        first_ms: int | None = min(earliest, default=None)
        if first_ms is None:
            return None
        if not self.is_final:
            return first_ms + 1 + self.difference_ms + self.grace_ms
        closed_ms: int = state.get(CLOSED, _NEVER_CLOSED)
        ends = (
            start_ms + self.difference_ms
            for key, records in state.items()
            if key != CLOSED
            for start_ms in self._starts(records)
        )
        later = min((end for end in ends if end > closed_ms), default=None)
        forgotten_ms = first_ms + 1 + self.difference_ms
        return self.grace_ms + (forgotten_ms if later is None else min(later, forgotten_ms))

    def _starts(self, records: list[tuple[int, Any]]) -> list[int]:
        """Return the starts of all windows."""
        starts = set()
        for at_ms, _ in records:
            starts.add(max(0, at_ms - self.difference_ms))
            if self._within(records, at_ms + 1):
                starts.add(at_ms + 1)
        return sorted(starts)

    def _within(self, records: list[tuple[int, Any]], start_ms: int) -> list[tuple[int, Any]]:
        first = bisect_left(records, start_ms, key=_time)
        return records[first : bisect_right(records, start_ms + self.difference_ms, key=_time)]

    def _changed(
        self, key: Any, records: list[tuple[int, Any]], times_ms: list[int], close_ms: int
    ) -> Iterator[Output]:
        """Yield the windows that contain a new record or begin right after one."""
        for start_ms in self._starts(records):
            end_ms = start_ms + self.difference_ms
            place = bisect_left(times_ms, start_ms - 1)
            has_new = place < len(times_ms) and times_ms[place] <= end_ms
            if has_new and end_ms > close_ms:
                yield self._output(key, records, start_ms)

    def _closed(self, state: State, close_ms: int) -> Iterator[Output]:
        before_ms = state.get(CLOSED, _NEVER_CLOSED)
        if close_ms <= before_ms:
            return
        for key in [each for each in state if each != CLOSED]:
            records = state[key]
            if self.is_final:
                for start_ms in self._starts(records):
                    if before_ms < start_ms + self.difference_ms <= close_ms:
                        yield self._output(key, records, start_ms)
            kept = [each for each in records if each[0] + 1 + self.difference_ms > close_ms]
            if kept:
                state[key] = kept
            else:
                del state[key]
        state[CLOSED] = close_ms

    def _output(self, key: Any, records: list[tuple[int, Any]], start_ms: int) -> Output:
        inside = self._within(records, start_ms)
        aggregate = self.fold.initial()
        for _, value in inside:
            aggregate = self.fold.add(aggregate, key, value)
        window = (start_ms, start_ms + self.difference_ms)
        return Output(key, self.fold.finished(aggregate), inside[-1][0], window)
