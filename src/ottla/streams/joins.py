"""Helpers for joins: checks of keys, and values composed of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.checks import refuse_untyped, shape_of, sink
from ottla.streams.errors import listed, refused
from ottla.streams.plan.expressions import Field
from ottla.streams.plan.nodes import (
    ForeignJoin,
    Function,
    Lookup,
    Node,
    Source,
    Subscribing,
    ancestors,
)
from ottla.streams.plan.shapes import Column, Shape, family, plain, record, type_of
from ottla.streams.plan.tracing import Traced, trace, trace_pair
from ottla.streams.serdes import Serde, natural

if TYPE_CHECKING:
    from ottla.streams.app import App


def how_of(operator: str, how: str, valid: tuple[str, ...]) -> str:
    if how not in valid:
        raise refused(operator, f"how={how!r}; there are {listed(valid)}")
    return how


def refuse_uncopartitioned(operator: str, left: Node, right: Node) -> None:
    """Refuse a join of keys that cannot be compared.

    Spark brings equal keys together whatever their partitions, so the types alone matter.
    """
    if not _comparable(left.key, right.key):
        raise refused(
            operator, f"keys differ: {left.key} and {right.key}; use select_key on one of them"
        )


def _comparable(left: Shape, right: Shape) -> bool:
    kinds = [[family(column.type) for column in each.columns] for each in (left, right)]
    return left.is_record == right.is_record and kinds[0] == kinds[1]


def joined_value(
    left: Shape, right: Shape, function: Callable[..., Any] | None
) -> tuple[Function, Shape | None]:
    """Return the function that computes the value, and its shape if known already."""
    if function is not None:
        return trace_pair("join", function, left, right), None
    if not (left.is_record and right.is_record):
        raise refused("join", "plain values have no columns to put together: give a function")
    twice = [name for name in left.names if name in right.names]
    if twice:
        raise refused("join", f"both sides have {listed(twice)}: give a function (left, right)")
    outcome = {
        column.name: Field(column.type, side, column.name)
        for side, shape in (("left", left), ("right", right))
        for column in shape.columns
    }
    columns = (Column(name, each.type) for name, each in outcome.items())
    return Traced(outcome), record(*columns)


def foreign_join(
    app: App,
    left: Node,
    right: Node,
    on: Callable[..., Any],
    how: str,
    function: Function,
    shape: Shape,
) -> ForeignJoin:
    """Build a foreign-key join: two queries with an internal topic between them."""
    made = trace("join on", on, left.key, left.value)
    foreign = right.key if not isinstance(made, Traced) else shape_of("join on", made, None)
    refuse_untyped("join on", foreign)
    if not _comparable(foreign, right.key):
        raise refused(
            "join on", f"the foreign key is {foreign}, the key of the other table {right.key}"
        )
    columns = (
        Column("before", type_of(foreign)),
        Column("now", type_of(foreign)),
        Column("value", type_of(left.value)),
    )
    subscribing = Subscribing(left.key, record(*columns), left, foreign, made)
    topics = [topic_of(each) for each in (left, right)]
    topic = free_topic(app, f"{app.name}-{'-'.join(topics)}-subscriptions")
    key, value = natural(left.key), Serde("json", subscribing.value)
    app._add(sink(subscribing, topic, key, value, is_internal=True))
    source = Source(left.key, value.shape, topic, key, value, None, "earliest", "stop", False)
    return ForeignJoin(left.key, shape, source, right, left.value, how, function)


def free_topic(app: App, name: str) -> str:
    """Return the name for an internal topic, with a number appended if it is taken."""
    taken = {each.topic for each in app.sinks}
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (name, *numbered) if each not in taken)


def topic_of(node: Node) -> str:
    return next(each.topic for each in ancestors(node) if isinstance(each, Source))


def lookup(
    left: Node,
    table: Source,
    on: Callable[..., Any] | None,
    how: str,
    function: Function,
    shape: Shape,
) -> Lookup:
    """Build a look-up in a global table by the result of `on`, or by the stream's key."""
    if on is None:
        by: Function = Traced(_key_itself(left.key))
        on_shape = left.key
    else:
        made = trace("join on", on, left.key, left.value)
        on_shape = table.key if not isinstance(made, Traced) else shape_of("join on", made, None)
        by = made
    if not _comparable(on_shape, table.key):
        raise refused("join", f"keys differ: {on_shape} and {table.key}; use on= to make another")
    return Lookup(left.key, shape, left, table, by, on_shape, how, function)


def _key_itself(key: Shape) -> Any:
    if key.is_record:
        return {each.name: Field(each.type, "key", each.name) for each in key.columns}
    return Field(plain(key.columns[0].type).columns[0].type, "key", None)
