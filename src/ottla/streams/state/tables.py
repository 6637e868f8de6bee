"""Joins of two tables by key, as in Kafka Streams.

    state   key -> [left, right, timestamp of left, timestamp of right]

A change of either side changes the result or deletes it with a record without a value. If there was
no result, there is nothing to delete. The changes of a key in one batch cause one change of the
result. The output value is (left, right); the join function is applied to it as columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.program import Batch, Output, State

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class TablesJoined:
    how: str
    needs_time: ClassVar[bool] = False

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        was: dict[Any, bool] = {}
        for key, value, at_ms, side in zip(
            batch.keys, batch.values, batch.times_ms, batch.sides, strict=True
        ):
            entry = state.get(key)
            if entry is None:
                entry = state[key] = [None, None, 0, 0]
            was.setdefault(key, self._is_joined(entry))
            entry[side] = value
            entry[2 + side] = at_ms
        outputs = []
        for key, was_joined in was.items():
            entry = state[key]
            is_joined = self._is_joined(entry)
            if is_joined or was_joined:
                pair = (entry[LEFT], entry[RIGHT]) if is_joined else None
                outputs.append(Output(key, pair, max(entry[2:])))
            if entry[LEFT] is None and entry[RIGHT] is None:
                del state[key]
        return outputs

    def next_time_ms(self, state: State) -> int | None:
        return None

    def _is_joined(self, entry: list[Any]) -> bool:
        has_left, has_right = entry[LEFT] is not None, entry[RIGHT] is not None
        if self.how == "inner":
            return has_left and has_right
        return has_left or (has_right and self.how == "outer")
