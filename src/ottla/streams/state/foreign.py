"""Joins of two tables by a foreign key, in two steps with a topic between them.

The foreign key of a left row is the key of a right row, as in Kafka Streams.

The first step is partitioned by the left key and looks up the old foreign key. It writes, with the
left key, (old foreign key, new foreign key, left value) to the topic. The second step reads this as
up to two rows: leave the old foreign key, enter the new one. Both are in one record, and therefore
in one batch.

    Subscriptions   state: left key -> foreign key

The second step is partitioned by the foreign key. It knows the subscribed left rows and the right
value.

    Subscribed      state: foreign key -> [right value, its timestamp,
                                           {left key: (value, timestamp)}]

Within a batch, rows that leave are handled first, then changes of the right table, then rows that
enter; the first step has combined the changes of a left key in a batch. A left key is thus emitted
by one foreign key per batch, and its last record in the output topic is the correct one. Kafka
Streams has to compare hashes to achieve this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ottla.streams.state.program import Batch, Output, State

SUBSCRIPTIONS, RIGHT = 0, 1
LEAVE, ENTER = "leave", "enter"


@dataclass(frozen=True)
class Subscriptions:
    """First step: find the old foreign key of each left row.

    Input values are (foreign key, left value), or None. Output values are (before, now, value).
    """

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
    """Second step: join left rows with the right row of their foreign key.

    The keys are foreign keys. Values of side 0 are (action, left key, has moved, left value), those
    of side 1 are right values. The output has the left key, and the value (left, right) or None.
    """

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
        """Apply the changes of the right table, and yield the keys whose value may differ now."""
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
