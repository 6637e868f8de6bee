"""Aggregations by key in windows, with Kafka Streams' rules for late records.

    tumbling, hopping   state: start of window -> key -> [aggregate, latest timestamp]
    sessions            state: key -> sessions [start, end, aggregate, latest timestamp] by start

A window [start, start + size) accepts records until stream time has reached its end plus the grace
period; a session, until stream time has passed its last record by more than the gap and the grace
period. Records for closed windows are dropped, or emitted as late.

With `is_final`, a window emits one result when it closes. Otherwise each window that changed in a
batch emits its state after the batch. A session that grew has another window, so the result of the
old window is deleted with a record without a value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.folds import Fold
from ottla.streams.state.program import Batch, Output, State


@dataclass(frozen=True)
class TimeWindows:
    fold: Fold
    size_ms: int
    every_ms: int
    grace_ms: int
    is_final: bool
    emits_late: bool
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        outputs = list(self._closed(state, stream_time_ms))
        touched: dict[tuple[int, Any], list[Any]] = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            is_late = True
            for start_ms in self._starts(at_ms):
                if start_ms + self.size_ms + self.grace_ms <= stream_time_ms:
                    continue
                is_late = False
                touched[start_ms, key] = self._added(state, start_ms, key, value, at_ms)
            if is_late and self.emits_late:
                outputs.append(Output(key, None, at_ms, late=value))
        for (start_ms, key), entry in touched.items():
            if entry[0] is None:
                del state[start_ms][key]
            if not self.is_final:
                outputs.append(self._output(start_ms, key, entry))
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        return min(state) + self.size_ms + self.grace_ms if state else None

    def _starts(self, at_ms: int) -> Iterator[int]:
        """Return the starts of the windows that contain a time, the earliest first."""
        last = at_ms - at_ms % self.every_ms
        count = (self.size_ms - 1 - (at_ms - last)) // self.every_ms
        return iter(range(last - count * self.every_ms, last + 1, self.every_ms))

    def _added(self, state: State, start_ms: int, key: Any, value: Any, at_ms: int) -> list[Any]:
        window = state.get(start_ms)
        if window is None:
            window = state[start_ms] = {}
        entry = window.get(key)
        if entry is None:
            entry = window[key] = [self.fold.initial(), at_ms]
        elif at_ms > entry[1]:
            entry[1] = at_ms
        entry[0] = self.fold.add(entry[0], key, value)
        return entry

    def _closed(self, state: State, stream_time_ms: int) -> Iterator[Output]:
        length_ms = self.size_ms + self.grace_ms
        for start_ms in sorted(each for each in state if each + length_ms <= stream_time_ms):
            window = state.pop(start_ms)
            if self.is_final:
                for key, entry in window.items():
                    yield self._output(start_ms, key, entry)

    def _output(self, start_ms: int, key: Any, entry: list[Any]) -> Output:
        aggregate, at_ms = entry
        value = self.fold.finished(aggregate)
        return Output(key, value, at_ms, (start_ms, start_ms + self.size_ms))


@dataclass(frozen=True)
class SessionWindows:
    fold: Fold
    gap_ms: int
    grace_ms: int
    is_final: bool
    emits_late: bool
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        outputs = list(self._closed(state, stream_time_ms))
        before: dict[Any, list[Any]] = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            sessions = state.get(key, [])
            before.setdefault(key, sessions)
            if self._is_late(sessions, at_ms, stream_time_ms):
                if self.emits_late:
                    outputs.append(Output(key, None, at_ms, late=value))
                continue
            state[key] = self._with_record(sessions, key, value, at_ms)
            if not state[key]:
                del state[key]
        if not self.is_final:
            for key, old in before.items():
                outputs += self._changes(key, old, state.get(key, []))
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        ends = (each[1] for sessions in state.values() for each in sessions)
        end_ms = min(ends, default=None)
        return None if end_ms is None else self._closes_ms(end_ms)

    def _closes_ms(self, end_ms: int) -> int:
        return end_ms + self.gap_ms + self.grace_ms + 1

    def _is_late(self, sessions: list[Any], at_ms: int, stream_time_ms: int) -> bool:
        """Return whether a record is late.

        The session that it would join decides: a record may be old as long as that session is open.
        """
        near = (end for start, end, *_ in sessions if self._touches(start, end, at_ms))
        return self._closes_ms(max(near, default=at_ms)) <= stream_time_ms

    def _touches(self, start_ms: int, end_ms: int, at_ms: int) -> bool:
        return start_ms - self.gap_ms <= at_ms <= end_ms + self.gap_ms

    def _with_record(self, sessions: list[Any], key: Any, value: Any, at_ms: int) -> list[Any]:
        aggregate, start_ms, end_ms, latest_ms = self.fold.initial(), at_ms, at_ms, at_ms
        others = []
        for each in sessions:
            if not self._touches(each[0], each[1], at_ms):
                others.append(each)
                continue
            start_ms, end_ms = min(start_ms, each[0]), max(end_ms, each[1])
            latest_ms = max(latest_ms, each[3])
            aggregate = each[2] if aggregate is None else self._merged(aggregate, each[2])
        aggregate = self.fold.add(aggregate, key, value)
        if aggregate is not None:
            place = bisect_left([each[0] for each in others], start_ms)
            others.insert(place, [start_ms, end_ms, aggregate, latest_ms])
        return others

    def _merged(self, one: Any, other: Any) -> Any:
        if self.fold.merge is None:
            raise AssertionError("session windows need a merge function")
        return self.fold.merge(one, other)

    def _changes(self, key: Any, old: list[Any], now: list[Any]) -> Iterator[Output]:
        """Yield deletions of sessions that are gone, and the sessions that changed.

        A session that received a record is a new object, even if its aggregate is the same.
        """
        windows = {(each[0], each[1]) for each in now}
        for start_ms, end_ms, _, at_ms in old:
            if (start_ms, end_ms) not in windows:
                yield Output(key, None, at_ms, (start_ms, end_ms))
        unchanged = {id(each) for each in old}
        for each in now:
            if id(each) not in unchanged:
                yield Output(key, self.fold.finished(each[2]), each[3], (each[0], each[1]))

    def _closed(self, state: State, stream_time_ms: int) -> Iterator[Output]:
        for key in list(state):
            still_open = []
            for each in state[key]:
                if self._closes_ms(each[1]) > stream_time_ms:
                    still_open.append(each)
                elif self.is_final:
                    yield Output(key, self.fold.finished(each[2]), each[3], (each[0], each[1]))
            if still_open:
                state[key] = still_open
            else:
                del state[key]
