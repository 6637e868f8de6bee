"""Rate limit for changes of a table: Kafka Streams' `untilTimeLimit`.

    state   INNER -> state of the program that emits the changes
            WAITING -> (key, window) -> (due time, change)

A change waits until stream time has passed it by the limit. A later change of the same key and
window replaces it and keeps its due time. The changes of a micro-batch count as one, which starts
with the first record of the key and window in the batch. Late records are not changes, and are
emitted at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.program import Batch, Output, Program, State

INNER, WAITING = "inner", "waiting"


@dataclass(frozen=True)
class LatestPerKey:
    """Last record of each key in a batch, without state."""

    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        latest: dict[Any, Output] = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            latest[key] = Output(key, value, at_ms)
        return latest.values()

    def next_time_ms(self, state: State) -> int | None:
        return None


@dataclass(frozen=True)
class TimeLimited:
    inner: Program
    limit_ms: int
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        inner, waiting = state.pop(INNER, {}), state.pop(WAITING, {})
        times_ms: dict[Any, list[int]] = {}
        for key, at_ms in zip(batch.keys, batch.times_ms, strict=True):
            times_ms.setdefault(key, []).append(at_ms)
        outputs = []
        for each in self.inner.run(inner, batch, stream_time_ms):
            if each.late is not None:
                outputs.append(each)
                continue
            place = each.key, each.window
            before = waiting.get(place)
            if before is None:
                due_ms = _first_record_ms(each, times_ms.get(each.key, ())) + self.limit_ms
            else:
                due_ms = before[0]
            waiting[place] = (due_ms, each)
        due = [place for place, (due_ms, _) in waiting.items() if due_ms <= stream_time_ms]
        due.sort(key=lambda place: int(waiting[place][0]))
        outputs += [waiting.pop(place)[1] for place in due]
        state.update({name: of for name, of in ((INNER, inner), (WAITING, waiting)) if of})
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        times = [due_ms for due_ms, _ in state.get(WAITING, {}).values()]
        if self.inner.needs_time:
            inner_ms = self.inner.next_time_ms(state.get(INNER, {}))
            times += [] if inner_ms is None else [inner_ms]
        return min(times, default=None)


def _first_record_ms(change: Output, times_ms: Sequence[int]) -> int:
    """Return the time of the first record of the key that belongs to a change."""
    start_ms, end_ms = change.window or (None, None)
    for at_ms in times_ms:
        if start_ms is None or end_ms is None or start_ms <= at_ms <= end_ms:
            return at_ms
    return change.at_ms
