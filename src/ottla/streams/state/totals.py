"""Aggregations by key, without windows.

    Totals        state: key -> [aggregate, latest timestamp]
    Changes       state: key -> value
    TableTotals   state: as in Totals

Each key that changed in a batch is emitted once, with its final value and the latest timestamp of
its records.

Grouping the rows of a table by another key takes two steps with a topic between them, as in Kafka
Streams. The first, by the table's key, emits (old value, new value). The second, by the other key,
subtracts the old value and adds the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.folds import Add, Fold
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


@dataclass(frozen=True)
class Changes:
    """Changes of a table. Output values are (before, now)."""

    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        latest = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            latest[key] = (value, at_ms)
        outputs = []
        for key, (value, at_ms) in latest.items():
            before = state.pop(key, None)
            if value is not None:
                state[key] = value
            if value is not None or before is not None:
                outputs.append(Output(key, (before, value), at_ms))
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        return None


@dataclass(frozen=True)
class TableTotals:
    """Aggregation of the changes of a table. Input values are (is added, value)."""

    fold: Fold
    subtract: Add
    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        steps = zip(batch.keys, batch.values, strict=True)
        both = Fold(self.fold.initial, self._step, finish=self.fold.finish)
        # Subtract first, so that a value that changes within a group is never counted twice.
        order = sorted(range(len(batch.keys)), key=[value[0] for _, value in steps].__getitem__)
        columns = (batch.keys, batch.values, batch.times_ms)
        keys, values, times_ms = ([column[place] for place in order] for column in columns)
        ordered = Batch(keys, values, times_ms)
        return Totals(both).run(state, ordered, stream_time_ms)

    def _step(self, aggregate: Any, key: Any, value: Any) -> Any:
        is_added, of = value
        return (self.fold.add if is_added else self.subtract)(aggregate, key, of)

    def next_time_ms(self, state: State) -> int | None:
        return None
