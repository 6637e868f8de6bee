"""Aggregations by key, without windows.

    state   key -> [aggregate, the latest timestamp]

Each key that changed in a batch is given out once, as it is after it, with the latest timestamp of
its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ottla.streams.state.folds import Fold
from ottla.streams.state.program import Batch, Output, State


@dataclass(frozen=True)
class Totals:
    fold: Fold
    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        initial, add = self.fold.initial, self.fold.add
        touched = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            entry = state.get(key)
            if entry is None:
                entry = state[key] = [initial(), at_ms]
            elif at_ms > entry[1]:
                entry[1] = at_ms
            entry[0] = add(entry[0], key, value)
            touched[key] = entry
        outputs = []
        for key, (aggregate, at_ms) in touched.items():
            if aggregate is None:
                del state[key]
            outputs.append(Output(key, self.fold.finished(aggregate), at_ms))
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        return None
