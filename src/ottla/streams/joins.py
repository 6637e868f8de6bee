"""Helpers for joins: checks of keys, and values composed of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.streams.checks import make_sink, refuse_untyped, shape_of
from ottla.streams.errors import listed, topology_error
from ottla.streams.plan.expressions import ColumnReference
from ottla.streams.plan.nodes import (
    ForeignJoin,
    Function,
    Lookup,
    Node,
    Source,
    Subscribing,
    ancestors,
)
from ottla.streams.plan.shapes import (
    Column,
    DataShape,
    plain_shape,
    record_shape,
    type_family,
    type_of,
)
from ottla.streams.plan.tracing import Traced, trace, trace_pair
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.topology import Topology


def check_how(operator: str, how: str, valid: tuple[str, ...]) -> str:
    if how not in valid:
        raise topology_error(operator, f"how={how!r} is invalid; valid values: {listed(valid)}")
    return how


def refuse_uncopartitioned(operator: str, left: Node, right: Node) -> None:
    """Refuse a join of keys that cannot be compared.

    Spark brings equal keys together whatever their partitions, so the types alone matter.
    """
    if not _comparable(left.key, right.key):
        raise topology_error(
            operator, f"keys differ: {left.key} and {right.key}; use select_key on one of them"
        )


def _comparable(left: DataShape, right: DataShape) -> bool:
    kinds = [[type_family(column.type) for column in each.columns] for each in (left, right)]
    return left.is_record == right.is_record and kinds[0] == kinds[1]


def joined_value(
    left: DataShape, right: DataShape, function: Callable[..., Any] | None
) -> tuple[Function, DataShape | None]:
    """Return the function that computes the value, and its shape if known already."""
    if function is not None:
        return trace_pair("join", function, left, right), None
    if not (left.is_record and right.is_record):
        raise topology_error(
            "join", "plain values have no columns to combine; pass a function (left, right)"
        )
    twice = [name for name in left.names if name in right.names]
    if twice:
        raise topology_error(
            "join", f"both sides have {listed(twice)}; pass a function (left, right)"
        )
    outcome = {
        column.name: ColumnReference(column.type, side, column.name)
        for side, shape in (("left", left), ("right", right))
        for column in shape.columns
    }
    columns = (Column(name, each.type) for name, each in outcome.items())
    return Traced(outcome), record_shape(*columns)


def foreign_join(
    topology: Topology,
    left: Node,
    right: Node,
    on: Callable[..., Any],
    how: str,
    function: Function,
    shape: DataShape,
) -> ForeignJoin:
    """Build a foreign-key join: two queries with an internal topic between them."""
    made = trace("join on", on, left.key, left.value)
    foreign = right.key if not isinstance(made, Traced) else shape_of("join on", made, None)
    refuse_untyped("join on", foreign)
    if not _comparable(foreign, right.key):
        raise topology_error(
            "join on", f"the foreign key is {foreign}, the key of the other table {right.key}"
        )
    columns = (
        Column("before", type_of(foreign)),
        Column("now", type_of(foreign)),
        Column("value", type_of(left.value)),
    )
    subscribing = Subscribing(left.key, record_shape(*columns), left, foreign, made)
    topics = [source_topic_of(each) for each in (left, right)]
    topic = topology.unused_topic_name(f"{topology.name}-{'-'.join(topics)}-subscriptions")
    key, value = default_serde(left.key), Serde("json", subscribing.value)
    topology.add_sink(make_sink(subscribing, topic, key, value, is_internal=True))
    source = Source(left.key, value.shape, topic, key, value, None, "earliest", "stop", False)
    return ForeignJoin(left.key, shape, source, right, left.value, how, function)


def source_topic_of(node: Node) -> str:
    return next(each.topic for each in ancestors(node) if isinstance(each, Source))


def lookup(
    left: Node,
    table: Source,
    on: Callable[..., Any] | None,
    how: str,
    function: Function,
    shape: DataShape,
) -> Lookup:
    """Build a look-up in a global table by the result of `on`, or by the stream's key."""
    if on is None:
        by: Function = Traced(_key_reference(left.key))
        on_shape = left.key
    else:
        made = trace("join on", on, left.key, left.value)
        on_shape = table.key if not isinstance(made, Traced) else shape_of("join on", made, None)
        by = made
    if not _comparable(on_shape, table.key):
        raise topology_error(
            "join", f"keys differ: {on_shape} and {table.key}; use on= to compute another key"
        )
    return Lookup(left.key, shape, left, table, by, on_shape, how, function)


def _key_reference(key: DataShape) -> Any:
    if key.is_record:
        return {each.name: ColumnReference(each.type, "key", each.name) for each in key.columns}
    return ColumnReference(plain_shape(key.columns[0].type).columns[0].type, "key", None)
