"""Stores of processors: a value, a list, or a map for each key. See `processors`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.streams.state.processors import Context, ProcessorStore


class ValueStore(ProcessorStore):
    """Declaration of a store with one value for each key.

    Args:
        ttl: Stream time after which the value expires. None keeps it.
    """

    def _view(self, context: Context) -> ValueOfKey:
        return ValueOfKey(self, context)

    def written_ms(self, data: Any) -> Iterator[int]:
        yield data[1]

    def unexpired(self, data: Any, expired_ms: int) -> Any:
        return data if data[1] > expired_ms else None


class ListStore(ProcessorStore):
    """Declaration of a store with a list for each key, in the order of insertion.

    Args:
        ttl: Stream time after which an item expires. None keeps it.
    """

    def _view(self, context: Context) -> ListOfKey:
        return ListOfKey(self, context)

    def written_ms(self, data: Any) -> Iterator[int]:
        return (each[1] for each in data)

    def unexpired(self, data: Any, expired_ms: int) -> Any:
        return [each for each in data if each[1] > expired_ms] or None


class MapStore(ProcessorStore):
    """Declaration of a store with a map for each key.

    Args:
        ttl: Stream time after which an entry expires. None keeps it.
    """

    def _view(self, context: Context) -> MapOfKey:
        return MapOfKey(self, context)

    def written_ms(self, data: Any) -> Iterator[int]:
        return (each[1] for each in data.values())

    def unexpired(self, data: Any, expired_ms: int) -> Any:
        return {name: each for name, each in data.items() if each[1] > expired_ms} or None


class _KeyView:
    __slots__ = ("_context", "_store")

    def __init__(self, store: ProcessorStore, context: Context) -> None:
        self._store = store
        self._context = context

    def _unexpired(self) -> Any:
        data, ttl_ms = self._context.data.get(self._store.name), self._store.ttl_ms
        if data is None or ttl_ms is None:
            return data
        return self._store.unexpired(data, self._context.stream_time_ms - ttl_ms)

    def clear(self) -> None:
        """Remove everything that the store holds for the current key."""
        self._context.data.pop(self._store.name, None)


class ValueOfKey(_KeyView):
    """The value that a `ValueStore` holds for the current key."""

    __slots__ = ()

    def get(self, missing: Any = None) -> Any:
        """Return the value.

        Args:
            missing: Result if there is no value.
        """
        data = self._unexpired()
        return missing if data is None else data[0]

    def set(self, value: Any) -> None:
        """Replace the value.

        Args:
            value: Any object that can be pickled.
        """
        self._context.data[self._store.name] = [value, self._context.written_ms]


class ListOfKey(_KeyView):
    """The list that a `ListStore` holds for the current key. It supports iteration and `len`."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return (each[0] for each in self._unexpired() or ())

    def __len__(self) -> int:
        return len(self._unexpired() or ())

    def append(self, item: Any) -> None:
        """Add an item at the end.

        Args:
            item: Any object that can be pickled.
        """
        items = self._context.data.setdefault(self._store.name, [])
        items.append([item, self._context.written_ms])

    def set(self, items: list[Any]) -> None:
        """Replace all items.

        Args:
            items: The new items.
        """
        self._context.data[self._store.name] = [[each, self._context.written_ms] for each in items]


class MapOfKey(_KeyView):
    """The map that a `MapStore` holds for the current key. It is used like a dict."""

    __slots__ = ()

    def __getitem__(self, name: Any) -> Any:
        return (self._unexpired() or {})[name][0]

    def __setitem__(self, name: Any, value: Any) -> None:
        values = self._context.data.setdefault(self._store.name, {})
        values[name] = [value, self._context.written_ms]

    def __delitem__(self, name: Any) -> None:
        del self._context.data.get(self._store.name, {})[name]

    def __contains__(self, name: object) -> bool:
        return name in (self._unexpired() or {})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._unexpired() or {})

    def __len__(self) -> int:
        return len(self._unexpired() or ())

    def get(self, name: Any, missing: Any = None) -> Any:
        """Return the value of a name.

        Args:
            name: Name in the map.
            missing: Result if the map does not have the name.
        """
        found = (self._unexpired() or {}).get(name)
        return missing if found is None else found[0]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return an iterator over names and values."""
        return ((name, each[0]) for name, each in (self._unexpired() or {}).items())
