"""Combination of a batch's actions into few statements.

Only the net effect of several actions on a row counts: the last action, with columns that it does
not carry taken from earlier ones. Afterwards every row occurs once, so deletes can precede writes
and each kind becomes one statement. Inserts without a key are not combined. The functions do no
I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ottla.connect.connectors.jdbc.rows import Action, Operation


@dataclass(frozen=True)
class Group:
    """Actions that one statement performs."""

    table: tuple[str, ...]
    operation: Operation
    key: tuple[str, ...]
    columns: tuple[str, ...]
    kept: tuple[str, ...]
    actions: tuple[Action, ...]

    def parameters(self, action: Action, *, key_last: bool = False) -> tuple[Any, ...]:
        names = self.key if self.operation is Operation.DELETE else self.columns
        found = tuple(action.values[name] for name in names)
        return found + tuple(action.values[name] for name in self.key) if key_last else found


def fold(actions: Iterable[Action], *, merges: bool) -> Iterator[Group]:
    """Yield groups of actions; `merges` states that rows have keys and that writes replace them."""
    runs: dict[tuple[str, ...], list[Action]] = {}
    for action in actions:
        run = runs.setdefault(action.table, [])
        if action.operation is Operation.DELETE_ALL:
            # It deletes everything that earlier actions wrote.
            run.clear()
        run.append(action)
    for run in runs.values():
        yield from _groups(_merged(run) if merges else run)


def _merged(run: list[Action]) -> list[Action]:
    rows: dict[tuple[Any, ...], Action] = {}
    others: list[Action] = []
    for action in run:
        if action.operation is Operation.DELETE_ALL or not action.key:
            others.append(action)
            continue
        before = rows.pop((action.key, action.identity), None)
        rows[action.key, action.identity] = _after(before, action)
    deletes = [each for each in rows.values() if each.operation is Operation.DELETE]
    writes = [each for each in rows.values() if each.operation is Operation.WRITE]
    return [*others, *deletes, *writes]


def _after(before: Action | None, action: Action) -> Action:
    if (
        before is None
        or before.operation is Operation.DELETE
        or action.operation is Operation.DELETE
    ):
        return action
    if not action.kept:
        return action
    known = action.kept - before.kept
    values = {**action.values, **{n: before.values[n] for n in known if n in before.values}}
    return replace(action, values=values, kept=action.kept & before.kept)


def _groups(actions: Iterable[Action]) -> Iterator[Group]:
    group: list[Action] = []
    shape: Any = None
    for action in actions:
        own = action.operation, action.key, tuple(action.values), tuple(sorted(action.kept))
        if group and own != shape:
            yield _group(group, shape)
            group = []
        shape = own
        group.append(action)
    if group:
        yield _group(group, shape)


def _group(actions: list[Action], shape: Any) -> Group:
    operation, key, columns, kept = shape
    return Group(actions[0].table, operation, key, columns, kept, tuple(actions))
