"""Python functions as transforms: `transforms.NAME.type=package.module:function`.

The function receives a ConnectRecord and returns one, or None to drop it. With $Key or $Value it
receives only the key or the value and returns a new one, which keeps the schema if it fits, and
otherwise has none. The function runs in the worker's process and must be pure, like any transform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ottla.connect.data import ConnectRecord, DataError, check
from ottla.connect.transforms.contract import PartTransform, Transform


class RecordFunction(Transform):
    function: ClassVar[Callable[..., Any]]

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        done = type(self).function(record)
        if done is not None and not isinstance(done, ConnectRecord):
            raise DataError(
                f"{type(self).__name__} must return a ConnectRecord or None, "
                f"not {type(done).__name__}"
            )
        return done


class PartFunction(PartTransform):
    function: ClassVar[Callable[..., Any]]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        done = type(self).function(value)
        if schema is not None:
            try:
                check(schema, done)
            except DataError:
                schema = None
        return self.put(record, schema, done)


def transform_of(function: Callable[..., Any], *, on_part: bool) -> type[Transform]:
    """Return a transform class named after the function, so that errors name it."""
    base = PartFunction if on_part else RecordFunction
    name = getattr(function, "__name__", "function")
    return type(name, (base,), {"function": staticmethod(function)})
