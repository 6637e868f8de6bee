"""Joins of two tables where a foreign key of the left is the key of the right, in two steps with a
topic between them, as in Kafka Streams.

First, by the left's key: which foreign key did it have before? The topic gets, with the left's
key, (the foreign key before, the one now, the left's value). It goes on as up to two rows: leave
the one, enter the other. Both are in one record of the topic, so that they are in one batch.

    Subscriptions   state: left's key -> foreign key

Then, by foreign key: who is subscribed, and what does the right hold?

    Subscribed      state: foreign key -> [right's value, its timestamp,
                                           {left's key: (value, timestamp)}]

In a batch, those who leave go first, then come the right's changes, then those who enter; a left
key's changes of one batch were made one by the first step. So a left key is given out by one
foreign key in a batch, and what comes last to the output topic is right. Kafka Streams has to
compare hashes for this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.program import Batch, Output, State

SUBSCRIPTIONS, RIGHT = 0, 1
LEAVE, ENTER = "leave", "enter"


@dataclass(frozen=True)
class Subscriptions:
    """Values in: (foreign key, the left's value), or None. Out: (before, now, value)."""

    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        latest = {}
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            latest[key] = (value, at_ms)
        outputs = []
        for key, (value, at_ms) in latest.items():
            is_known = key in state
            before = state.pop(key, None)
            if value is None:
                if is_known:
                    outputs.append(Output(key, (before, None, None), at_ms))
                continue
            state[key] = value[0]
            outputs.append(Output(key, (before, value[0], value[1]), at_ms))
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        return None


@dataclass(frozen=True)
class Subscribed:
    """Keys are foreign keys. Values of side 0: (action, left's key, has moved, left's value); of
    side 1: the right's. Given out by the left's key: (left, right) or None."""

    how: str
    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        rows = list(zip(batch.keys, batch.values, batch.times_ms, batch.sides, strict=True))
        outputs: dict[Any, Output] = {}
        for foreign, value, at_ms, side in rows:
            if side == SUBSCRIPTIONS and value[0] == LEAVE:
                self._leave(state, foreign, value, at_ms, outputs)
        for foreign in self._change(state, rows):
            for key, (left, at_ms) in state[foreign][2].items():
                outputs[key] = self._joined(key, left, at_ms, state[foreign])
        for foreign, value, at_ms, side in rows:
            if side == SUBSCRIPTIONS and value[0] == ENTER:
                self._enter(state, foreign, value, at_ms, outputs)
        for foreign in {row[0] for row in rows}:
            entry = state.get(foreign)
            if entry is not None and entry[0] is None and not entry[2]:
                del state[foreign]
        return list(outputs.values())

    def next_time_ms(self, state: State) -> int | None:
        return None

    def _change(self, state: State, rows: list[Any]) -> Iterator[Any]:
        """Take over the right's changes; the keys that now hold something else."""
        before: dict[Any, Any] = {}
        for foreign, value, at_ms, side in rows:
            if side == RIGHT and foreign is not None:
                entry = state.setdefault(foreign, [None, 0, {}])
                before.setdefault(foreign, entry[0])
                entry[0], entry[1] = value, at_ms
        for foreign, value in before.items():
            if value is not None or state[foreign][0] is not None:
                yield foreign

    def _leave(
        self, state: State, foreign: Any, value: Any, at_ms: int, outputs: dict[Any, Output]
    ) -> None:
        _, key, has_moved, _ = value
        entry = state.get(foreign, [None, 0, {}])
        is_known = entry[2].pop(key, None) is not None
        had_outcome = is_known and (entry[0] is not None or self.how == "left")
        if had_outcome and not has_moved:
            outputs[key] = Output(key, None, at_ms)

    def _enter(
        self, state: State, foreign: Any, value: Any, at_ms: int, outputs: dict[Any, Output]
    ) -> None:
        _, key, has_moved, left = value
        entry = state.setdefault(foreign, [None, 0, {}])
        entry[2][key] = (left, at_ms)
        if entry[0] is not None or self.how == "left" or has_moved:
            outputs[key] = self._joined(key, left, at_ms, entry)

    def _joined(self, key: Any, left: Any, at_ms: int, entry: list[Any]) -> Output:
        right, right_ms, _ = entry
        is_joined = right is not None or self.how == "left"
        return Output(key, (left, right) if is_joined else None, max(at_ms, right_ms))
