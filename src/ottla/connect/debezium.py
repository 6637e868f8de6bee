"""Reading of Debezium's change event envelopes.

    {"before": row or null, "after": row or null, "op": "c", "u", "d", "r" or "t", "source": …, …}

The record header `UNCHANGED_HEADER` lists, separated by commas, the columns whose values an update
neither changed nor contains. The functions do no I/O.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.connect.data import DataError, Record, Schema, Type

UNCHANGED_HEADER = "__ottla.unchanged"
OPERATIONS = ("c", "u", "r", "d", "t")


class Unwrapped(NamedTuple):
    op: str
    schema: Schema | None
    row: dict[str, Any] | None
    """Row after the change; for a delete, the row before it."""


def is_envelope(schema: Schema | None, value: Any) -> bool:
    if not isinstance(value, dict) or not {"before", "after", "op", "source"} <= value.keys():
        return False
    return schema is None or schema.type is Type.STRUCT


def unwrap(schema: Schema | None, value: dict[str, Any]) -> Unwrapped:
    op = value["op"]
    if op not in OPERATIONS:
        raise DataError(
            f"an envelope has the unknown operation {op!r}; known are {', '.join(OPERATIONS)}"
        )
    side = "before" if op == "d" else "after"
    found = schema.field(side) if schema is not None else None
    row = value[side]
    if row is None and op not in ("t", "d"):
        raise DataError(f"an envelope with the operation {op} has no {side}")
    return Unwrapped(op, found.schema if found is not None else None, row)


def unchanged_columns(record: Record) -> frozenset[str]:
    for each in record.headers:
        if each.key == UNCHANGED_HEADER and isinstance(each.value, str):
            return frozenset(each.value.split(","))
    return frozenset()
