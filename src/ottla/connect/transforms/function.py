"""Any Python function as a transform: `transforms.NAME.type=package.module:function`.

The function is given a Record and returns one, or None to drop it. Named with $Key or $Value it is
given the key or the value alone and returns a new one; the schema stays if the result still fits
it, else the result has none. It runs wherever the connector does, and must be pure as any
transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ottla.connect.data import DataError, Record, check
from ottla.connect.transforms.contract import PartTransform, Transform


class RecordFunction(Transform):
    function: ClassVar[Callable[..., Any]]

    def apply(self, record: Record) -> Record | None:
        done = type(self).function(record)
        if done is not None and not isinstance(done, Record):
            raise DataError(
                f"{type(self).__name__} must return a Record or None, not {type(done).__name__}"
            )
        return done


class PartFunction(PartTransform):
    function: ClassVar[Callable[..., Any]]

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        done = type(self).function(value)
        if schema is not None:
            try:
                check(schema, done)
            except DataError:
                schema = None
        return self.put(record, schema, done)


def transform_of(function: Callable[..., Any], *, on_part: bool) -> type[Transform]:
    """A class of its own, by the function's name: errors name it."""
    base = PartFunction if on_part else RecordFunction
    name = getattr(function, "__name__", "function")
    return type(name, (base,), {"function": staticmethod(function)})
