"""Cache of objects derived from schemas, bounded by `schemas.cache.size`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SchemaCache(Generic[K, V]):
    """LRU cache. Strings, integers and tuples are compared by value, schemas by identity.

    Identity suffices because a task uses one schema object for all its records.
    """

    def __init__(self, size: int, make: Callable[[K], V]) -> None:
        self._size = size
        self._make = make
        self._made: OrderedDict[Hashable, tuple[K, V]] = OrderedDict()
        """Cached values with their keys. Holding the schema keeps its `id` from being reused."""

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: K) -> V:
        known: Hashable = key if isinstance(key, str | int | tuple) else id(key)
        found = self._made.get(known)
        if found is not None:
            try:
                self._made.move_to_end(known)
            except KeyError:
                # Another task of the connector has just evicted it.
                pass
            return found[1]
        made = self._make(key)
        if self._size > 0:
            self._made[known] = (key, made)
            if len(self._made) > self._size:
                self._made.popitem(last=False)
        return made
