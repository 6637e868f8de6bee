"""Aggregates for `Grouped.aggregate`, kept in Spark's own state where possible (see
`operators.aggregations`).

They are named as in SQL and skip nulls: `count("column")` counts the records in which the column is
not null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ottla.streams.plan.shapes import is_integer, type_family

AggregateFunction = Literal["count", "sum", "min", "max", "mean", "collect_list", "collect_set"]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column, for `Grouped.aggregate`. Null values are skipped."""

    function: AggregateFunction
    """Name of the function, as in SQL."""
    column: str | None
    """Column of the value, or None for the value itself."""

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"

    @property
    def needs_number(self) -> bool:
        return self.function in ("sum", "mean")

    def type_of(self, of_type: str | None) -> str | None:
        match self.function:
            case "count":
                return "bigint"
            case "mean":
                return "double" if of_type is not None and "decimal" not in of_type else None
            case "sum":
                if is_integer(of_type):
                    return "bigint"
                return "double" if of_type in ("float", "double") else None
            case "collect_list" | "collect_set":
                return f"array<{of_type}>" if of_type is not None else None
            case _:
                return of_type

    def accepts(self, of_type: str | None) -> bool:
        return not self.needs_number or type_family(of_type) in ("number", None)


def count(column: str | None = None) -> Aggregate:
    """Count the records, or those in which a column is not null.

    Args:
        column: Column of the value; None counts all records.
    """
    return Aggregate("count", column)


def sum(column: str | None = None) -> Aggregate:
    """Sum a column.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("sum", column)


def min(column: str | None = None) -> Aggregate:
    """Return the smallest value of a column.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("min", column)


def max(column: str | None = None) -> Aggregate:
    """Return the largest value of a column.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("max", column)


def mean(column: str | None = None) -> Aggregate:
    """Compute the mean of a column.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("mean", column)


def collect_list(column: str | None = None) -> Aggregate:
    """Collect all values of a column, in no defined order.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("collect_list", column)


def collect_set(column: str | None = None) -> Aggregate:
    """Collect the distinct values of a column, in no defined order.

    Args:
        column: Column of the value; None takes the value itself.
    """
    return Aggregate("collect_set", column)
