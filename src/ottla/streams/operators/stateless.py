"""Operators that handle each record on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ottla.streams.errors import topology_error
from ottla.streams.operators.checks import (
    pair_shapes,
    refuse_two_states,
    shape_of,
)
from ottla.streams.plan.node import Function, Node, UnaryNode, engine_of, has_state
from ottla.streams.plan.shapes import parse_shape, plain_shape
from ottla.streams.plan.tracing import InPython, Traced, format_function, in_python, trace

RecordFunction = Callable[..., Any]
"""Function of (value), (key, value) or (key, value, timestamp)."""


@dataclass(frozen=True, eq=False)
class RecordOperator(UnaryNode):
    """Operator that calls a function for each record."""

    function: Function

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function,)

    @property
    def engine(self) -> str:
        return engine_of(self.function)

    @property
    def catches_errors(self) -> bool:
        """Whether a record on which the function raises goes to the dead-letter topic."""
        return isinstance(self.function, InPython) and self.function.catches_errors


def with_errors_caught(node: Node) -> Node:
    """Return the operator with a Python function that reports its exceptions instead of raising.

    Downstream of a stateful operator it is returned unchanged: the dead-letter query evaluates the
    function a second time, and stateful results can differ between two queries.
    """
    if not isinstance(node, RecordOperator) or has_state(node):
        return node
    if not isinstance(node.function, InPython):
        return node
    return replace(node, function=replace(node.function, catches_errors=True))


@dataclass(frozen=True, eq=False)
class Failures(Node):
    """Records on which the functions of these operators raised, as they reached the operator."""

    operators: tuple[RecordOperator, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.operators

    def describe(self) -> tuple[str, str]:
        return "failures", "records for which a function raised"


# --------------------------------------------------------------------------------------- filters


@dataclass(frozen=True, eq=False)
class Filter(RecordOperator):
    negated: bool

    def describe(self) -> tuple[str, str]:
        return "filter_not" if self.negated else "filter", format_function(self.function)


@dataclass(frozen=True, eq=False)
class TableFilter(RecordOperator):
    """Filter of a table, which deletes rows that do not pass: their value becomes null."""

    negated: bool

    def describe(self) -> tuple[str, str]:
        what = f"{format_function(self.function)}, others deleted"
        return "filter_not" if self.negated else "filter", what


def filtered(operator: str, node: Node, predicate: RecordFunction, *, negated: bool) -> Filter:
    function = _traced_predicate(operator, node, predicate)
    return Filter(node.key, node.value, node, function, negated)


def table_filtered(
    operator: str, node: Node, predicate: RecordFunction, *, negated: bool
) -> TableFilter:
    function = _traced_predicate(operator, node, predicate)
    return TableFilter(node.key, node.value, node, function, negated)


def _traced_predicate(operator: str, node: Node, predicate: RecordFunction) -> Function:
    function = trace(operator, predicate, node.key, node.value)
    if isinstance(function, Traced) and getattr(function.outcome, "type", "") != "boolean":
        raise topology_error(operator, "the function must return a boolean")
    return function


# ------------------------------------------------------------------------------------------ maps


@dataclass(frozen=True, eq=False)
class MapValues(RecordOperator):
    """Map over values. `keeps_null` is set for tables, where a null deletes the key."""

    keeps_null: bool = False

    @property
    def is_one_to_one(self) -> bool:
        return isinstance(self.function, Traced)

    def describe(self) -> tuple[str, str]:
        return "map_values", f"{format_function(self.function)} -> {self.value}"


def mapped_values(
    node: Node, function: RecordFunction, schema: str | None, *, keeps_null: bool = False
) -> MapValues:
    made = trace("map_values", function, node.key, node.value)
    shape = shape_of("map_values", made, schema)
    return MapValues(node.key, shape, node, made, keeps_null)


@dataclass(frozen=True, eq=False)
class FlatMapValues(RecordOperator):
    def describe(self) -> tuple[str, str]:
        return "flat_map_values", f"{format_function(self.function)} -> {self.value}"


def flat_mapped_values(node: Node, function: RecordFunction, schema: str | None) -> FlatMapValues:
    made = trace("flat_map_values", function, node.key, node.value)
    if isinstance(made, InPython):
        shape = shape_of("flat_map_values", made, schema)
    else:
        of_type = None if isinstance(made.outcome, dict | tuple) else made.outcome.type
        if of_type is None or not of_type.startswith("array<"):
            raise topology_error("flat_map_values", "the function must return a list")
        shape = plain_shape(of_type.removeprefix("array<").removesuffix(">"))
    return FlatMapValues(node.key, shape, node, made)


@dataclass(frozen=True, eq=False)
class Map(RecordOperator):
    """Map with a function that returns (key, value)."""

    @property
    def is_windowed(self) -> bool:
        return False

    def describe(self) -> tuple[str, str]:
        return "map", f"{format_function(self.function)} -> {self.key}: {self.value}"


def mapped(node: Node, function: RecordFunction, schema: str | None, key_schema: str | None) -> Map:
    made = trace("map", function, node.key, node.value)
    key, value = pair_shapes("map", made, schema, key_schema)
    return Map(key, value, node, made)


@dataclass(frozen=True, eq=False)
class FlatMap(RecordOperator):
    """Map with a function that returns a list of (key, value)."""

    function: InPython

    @property
    def is_windowed(self) -> bool:
        return False

    def describe(self) -> tuple[str, str]:
        return "flat_map", f"{format_function(self.function)} -> {self.key}: {self.value}"


def flat_mapped(node: Node, function: RecordFunction, schema: str, key_schema: str) -> FlatMap:
    made = in_python("flat_map", function, "a list of pairs")
    key, value = pair_shapes("flat_map", made, schema, key_schema)
    return FlatMap(key, value, node, made)


@dataclass(frozen=True, eq=False)
class SelectKey(RecordOperator):
    @property
    def is_windowed(self) -> bool:
        return False

    @property
    def is_one_to_one(self) -> bool:
        return isinstance(self.function, Traced)

    def describe(self) -> tuple[str, str]:
        return "select_key", f"{format_function(self.function)} -> {self.key}"


def with_key(node: Node, function: RecordFunction, schema: str | None) -> SelectKey:
    made = trace("select_key", function, node.key, node.value)
    shape = shape_of("select_key", made, schema)
    return SelectKey(shape, node.value, node, made)


# ---------------------------------------------------------------------------------------- others


@dataclass(frozen=True, eq=False)
class Peek(RecordOperator):
    """Call of a function for each record; its result is ignored."""

    function: InPython

    def describe(self) -> tuple[str, str]:
        return "peek", format_function(self.function)


def peeked(node: Node, function: RecordFunction) -> Peek:
    made = in_python("peek", function, "called for its side effects")
    return Peek(node.key, node.value, node, made)


@dataclass(frozen=True, eq=False)
class Merge(Node):
    left: Node
    right: Node

    def __post_init__(self) -> None:
        for what, left, right in (
            ("keys", self.left.key, self.right.key),
            ("values", self.left.value, self.right.value),
        ):
            if left != right:
                raise topology_error("merge", f"{what} differ: {left} and {right}")
        refuse_two_states("merge", self)

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def describe(self) -> tuple[str, str]:
        return "merge", ""


@dataclass(frozen=True, eq=False)
class Repartitioned(UnaryNode):
    partitions: int

    def __post_init__(self) -> None:
        if type(self.partitions) is not int or self.partitions < 1:
            raise topology_error(
                "repartition",
                f"partitions={self.partitions!r} is invalid; use an integer of at least 1",
            )

    @property
    def is_one_to_one(self) -> bool:
        return True

    def describe(self) -> tuple[str, str]:
        return "repartition", f"by key, {self.partitions} partitions"


@dataclass(frozen=True, eq=False)
class Transformed(UnaryNode):
    """Function of the user from DataFrame to DataFrame, with the columns key, value, timestamp."""

    function: InPython

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function,)

    @property
    def engine(self) -> str:
        return "DataFrame"

    def describe(self) -> tuple[str, str]:
        return "transform", f"{format_function(self.function)} -> {self.key}: {self.value}"


def transformed(
    node: Node, function: RecordFunction, schema: str | None, key_schema: str | None
) -> Transformed:
    made = in_python("transform_df", function, "a function over DataFrames", arities=(1,))
    key = node.key if key_schema is None else parse_shape(key_schema)
    value = node.value if schema is None else parse_shape(schema)
    return Transformed(key, value, node, made)
