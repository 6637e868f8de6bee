"""Division of a table into parts by ranges of a numeric or temporal column.

The ranges have equal width between the lowest and the highest value, like Spark's. The first has no
lower bound and includes nulls, and the last has no upper bound, so that every row is in exactly one
part. The functions do no I/O.
"""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass
from typing import Any

from ottla.connect.connectors.jdbc.modes import Query

Bound = int | float | decimal.Decimal | datetime.date


@dataclass(frozen=True)
class TablePart:
    number: int
    lower: Any = None
    """Inclusive lower bound, or None."""
    upper: Any = None
    """Exclusive upper bound, or None."""

    def query(self, column: str) -> Query:
        """Return a query for the part, with the parameters `lower` and `upper`."""
        parameters = {"lower": self.lower, "upper": self.upper}
        properties = {name: value for name, value in parameters.items() if value is not None}
        if not properties:
            return Query()
        if "lower" not in properties:
            return Query(f"({column} < :upper OR {column} IS NULL)", "", properties)
        where = f"{column} >= :lower"
        return Query(
            where + (f" AND {column} < :upper" if "upper" in properties else ""), "", properties
        )


def split(least: Any, greatest: Any, count: int) -> list[TablePart]:
    """Return at most `count` parts, or a single one if there are no values.

    Raises:
        TypeError: The values are neither numbers nor times.
    """
    if least is None or greatest is None:
        return [TablePart(0)]
    if isinstance(least, bool) or not isinstance(least, Bound):
        raise TypeError(f"{least!r} is neither a number nor a time")
    bounds = _bounds(least, greatest, count)
    starts, ends = [None, *bounds], [*bounds, None]
    return [TablePart(n, *each) for n, each in enumerate(zip(starts, ends, strict=True))]


def _bounds(least: Any, greatest: Any, count: int) -> list[Any]:
    if isinstance(least, int):
        width = greatest - least + 1
        made = [least + width * n // count for n in range(1, count)]
    elif isinstance(least, float | decimal.Decimal) and not (
        math.isfinite(least) and math.isfinite(greatest)
    ):
        return []
    else:
        width = greatest - least
        made = [least + width * n / count for n in range(1, count)]
    return sorted({each for each in made if each > least})
