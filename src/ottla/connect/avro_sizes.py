"""Bounds on the values that an Avro schema can describe.

A reader obeys the schema, and schemas come from a registry. An array's length is a number in the
data: if its items take no bytes, ten bytes of data can describe an unlimited number of items. And a
chain of names that each refer twice to the previous one expands to more fields than fit in memory.
No legitimate schema does either, so both are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.connect.data import DataError

MAX_NODES = 100_000
"""Maximum number of types in a schema, where each reference counts as the type it refers to."""


class Size(NamedTuple):
    nodes: int = 1
    has_bytes: bool = True
    has_hollow: bool = False
    """Whether the type contains a type that takes no bytes."""


def check_size(avro: Any) -> None:
    """Raise DataError if values of the schema are not bounded by their bytes.

    The schema must be readable and not recursive.
    """
    _Measure().of(avro)


class _Measure:
    def __init__(self) -> None:
        self._known: dict[str, Size] = {}

    def of(self, avro: Any, space: str = "") -> Size:
        if isinstance(avro, str):
            return self._known.get(f"{space}.{avro}") or self._known.get(avro) or Size()
        if isinstance(avro, list):
            return _bounded([self.of(each, space) for each in avro], has_bytes=True)
        kind = avro["type"]
        if kind in ("array", "map"):
            return self._many(avro["items" if kind == "array" else "values"], space)
        if kind in ("record", "error"):
            return self._record(avro, space)
        if kind == "fixed":
            size = avro.get("size")
            has_bytes = isinstance(size, int) and size > 0
            return self._named(avro, space, Size(1, has_bytes, not has_bytes))
        return self.of(kind, space)

    def _many(self, items: Any, space: str) -> Size:
        inner = self.of(items, space)
        if inner.has_hollow:
            raise DataError("a schema has an array or a map whose items occupy no bytes")
        return _bounded([inner], has_bytes=True)

    def _record(self, avro: Mapping[str, Any], space: str) -> Size:
        inside = full_name(avro, space).rpartition(".")[0]
        parts = [self.of(each["type"], inside) for each in avro.get("fields", ())]
        has_bytes = any(each.has_bytes for each in parts)
        return self._named(avro, space, _bounded(parts, has_bytes=has_bytes))

    def _named(self, avro: Mapping[str, Any], space: str, size: Size) -> Size:
        self._known[full_name(avro, space)] = size
        return size


def _bounded(parts: list[Size], *, has_bytes: bool) -> Size:
    nodes = 1 + sum(each.nodes for each in parts)
    if nodes > MAX_NODES:
        raise DataError(f"a schema has more than {MAX_NODES} types after all names are resolved")
    return Size(nodes, has_bytes, not has_bytes or any(each.has_hollow for each in parts))


def full_name(avro: Mapping[str, Any], space: str) -> str:
    """Return the qualified name of a named type; `space` is the enclosing namespace."""
    name = str(avro.get("name", ""))
    space = str(avro.get("namespace", space))
    return name if "." in name or not space else f"{space}.{name}"
