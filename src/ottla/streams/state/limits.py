"""Changes of a table, each key's at most once in some time: Kafka Streams' `untilTimeLimit`.

    state   INNER -> the state of the program whose changes they are
            WAITING -> (key, window) -> (when it is given out, the change)

A change waits until stream time is so much past it. What replaces it meanwhile does not wait
longer: it takes its place, and goes when that would have gone. The changes of a micro-batch are
one, which begins with the first record of the key, and the window, in it. Records that came too
late are no changes, and go at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.program import Batch, Output, Program, State

INNER, WAITING = "inner", "waiting"


@dataclass(frozen=True)
class Latest:
    """Of each key that is in a batch, its last record; without state."""

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
                due_ms = _began_ms(each, times_ms.get(each.key, ())) + self.limit_ms
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


def _began_ms(change: Output, times_ms: Sequence[int]) -> int:
    """Of the records of its key, the time of the first that it is made of."""
    start_ms, end_ms = change.window or (None, None)
    for at_ms in times_ms:
        if start_ms is None or end_ms is None or start_ms <= at_ms <= end_ms:
            return at_ms
    return change.at_ms
