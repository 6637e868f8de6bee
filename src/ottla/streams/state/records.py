"""Records as Python functions see them: tuples with columns as attributes and items.

There is a class for each set of columns. A record is pickled as its column names and values.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any


class Row(tuple[Any, ...]):
    """Record with `o.amount` and `o["amount"]`. As in Spark, `"amount" in o` tests for a column."""

    __slots__ = ()
    _places: dict[str, int]

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, str):
            place = self._places.get(which)
            if place is None:
                raise KeyError(f"no column {which!r}; columns: {', '.join(self._places)}")
            return tuple.__getitem__(self, place)
        return tuple.__getitem__(self, which)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getattr__(self, name: str) -> Any:
        columns = ", ".join(self._places)
        raise AttributeError(f"no column {name!r}; columns: {columns}")

    def __repr__(self) -> str:
        values = zip(self._places, self, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in values)})"

    def __reduce__(self) -> Any:
        return _made, (tuple(self._places), tuple(self))

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name for it
        return dict(zip(self._places, self, strict=True))


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> type[Row]:
    # The getters of a named tuple are the fastest attributes, and work for any column name.
    fields = [f"f{place}" for place in range(len(names))]
    getters = namedtuple("getters", fields).__dict__
    columns = {name: getters[field] for name, field in zip(names, fields, strict=True)}
    places = {name: place for place, name in enumerate(names)}
    return type("Row", (Row,), {**columns, "__slots__": (), "_places": places})


def _made(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(names)(values)
