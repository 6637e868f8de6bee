"""Debezium's data types, and reading of its change event envelopes.

    {"before": row or null, "after": row or null, "op": "c", "u", "d", "r" or "t", "source": …, …}

The record header `UNCHANGED_HEADER` lists, separated by commas, the columns whose values an update
neither changed nor contains. The functions do no I/O.
"""

from __future__ import annotations

import decimal
from typing import Any, NamedTuple

from ottla.connect.data import ConnectRecord, DataError, Schema, Type, struct_schema, unscaled_bytes

UNCHANGED_HEADER = "__ottla.unchanged"
OPERATIONS = ("c", "u", "r", "d", "t")
TYPE_PARAMETER = "__debezium.source.column.type"
LENGTH_PARAMETER = "__debezium.source.column.length"
"""Parameters of a schema with the type and the length of the source's column."""
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
VARIABLE_SCALE_SCHEMA = struct_schema(
    ("scale", Schema(Type.INT32)), ("value", Schema(Type.BYTES)), name=VARIABLE_SCALE, optional=True
)
"""Schema of decimal numbers of which each has a scale of its own."""


def variable_scale(number: decimal.Decimal) -> dict[str, Any]:
    """Return a decimal number in the form of VARIABLE_SCALE_SCHEMA."""
    exponent = number.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    return {"scale": scale, "value": unscaled_bytes(number, scale)}


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


def unchanged_columns(record: ConnectRecord) -> frozenset[str]:
    for each in record.headers:
        if each.key == UNCHANGED_HEADER and isinstance(each.value, str):
            return frozenset(each.value.split(","))
    return frozenset()
