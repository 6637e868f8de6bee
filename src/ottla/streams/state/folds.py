"""Folds: the functions with which an aggregation combines its values.

Users supply an initializer and an adder, or a reducer. `st.sum` and its like become folds where
Spark's own state cannot be used, such as sliding windows, and sessions that are emitted while they
are open. They skip nulls, as in SQL. An aggregate of None deletes the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.streams.aggregates import Aggregate

Add = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Fold:
    """Functions of an aggregation.

    `add(aggregate, key, value)` returns the next aggregate, `merge(one, other)` combines two
    sessions, and `finish(aggregate)` returns the result.
    """

    initial: Callable[[], Any]
    add: Add
    merge: Callable[[Any, Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None

    def finished(self, aggregate: Any) -> Any:
        if aggregate is None or self.finish is None:
            return aggregate
        return self.finish(aggregate)


def of_aggregator(
    initial: Callable[[], Any],
    add: Callable[..., Any],
    arity: int,
    merge: Callable[[Any, Any], Any] | None,
    finish: Callable[[Any], Any] | None,
) -> Fold:
    """Return a fold of an `add` that takes (aggregate, value) or (aggregate, key, value)."""
    return Fold(initial, add if arity == 3 else _without_key(add), merge, finish)


def of_reducer(reduce: Callable[[Any, Any], Any]) -> Fold:
    """Return a fold that starts with the first value."""

    def add(aggregate: Any, key: Any, value: Any) -> Any:
        return value if aggregate is None else reduce(aggregate, value)

    return Fold(_nothing, add, reduce)


def _nothing() -> None:
    return None


def _without_key(add: Callable[[Any, Any], Any]) -> Add:
    def added(aggregate: Any, key: Any, value: Any) -> Any:
        return add(aggregate, value)

    return added


# ----------------------------------------------------------------------------- named aggregates


def of_aggregates(aggregates: Sequence[tuple[str, Aggregate]]) -> Fold:
    """Return a fold of `st.sum("amount")` and its like; its aggregate is a list of theirs."""
    steps = [_STEPS[each.function] for _, each in aggregates]
    columns = [each.column for _, each in aggregates]
    counts_all = [each.function == "count" and each.column is None for _, each in aggregates]
    names = [name for name, _ in aggregates]

    def initial() -> list[Any]:
        return [first for first, _, _, _ in steps]

    def add(aggregate: list[Any], key: Any, value: Any) -> list[Any]:
        made = []
        for (_, step, _, _), column, counts, before in zip(
            steps, columns, counts_all, aggregate, strict=True
        ):
            one = True if counts else value if column is None else value[column]
            made.append(before if one is None else step(before, one))
        return made

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        return [
            join(left, right)
            for (_, _, join, _), left, right in zip(steps, one, other, strict=True)
        ]

    def finish(aggregate: list[Any]) -> dict[str, Any]:
        ends = zip(names, steps, aggregate, strict=True)
        return {name: end(each) for name, (_, _, _, end), each in ends}

    return Fold(initial, add, merge, finish)


def _either(join: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Extend a function of two values to None, which stands for no value yet."""

    def joined(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return join(one, other)

    return joined


def _plus(one: Any, other: Any) -> Any:
    return one + other


def _same(aggregate: Any) -> Any:
    return aggregate


def _counted(count: int, value: Any) -> int:
    return count + 1


def _added_mean(total: tuple[float, int], value: Any) -> tuple[float, int]:
    return total[0] + value, total[1] + 1


def _merged_mean(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


def _mean(total: tuple[float, int]) -> float | None:
    return total[0] / total[1] if total[1] else None


def _listed(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (*values, value)


def _once(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return values if value in values else (*values, value)


def _all_once(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*one, *(each for each in other if each not in one))


_sum, _min, _max = _either(_plus), _either(min), _either(max)
_STEPS: dict[str, tuple[Any, Any, Any, Any]] = {
    "count": (0, _counted, _plus, _same),
    "sum": (None, _sum, _sum, _same),
    "min": (None, _min, _min, _same),
    "max": (None, _max, _max, _same),
    "mean": ((0.0, 0), _added_mean, _merged_mean, _mean),
    "collect_list": ((), _listed, _plus, list),
    "collect_set": ((), _once, _all_once, list),
}
"""Initial aggregate, function to add a value, function to merge two, function of the result."""
