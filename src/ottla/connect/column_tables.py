"""Columns of a sink as an Arrow table with a column for each field, as in `tables`.

The functions raise NotInColumns where `table_of` or `inferred` would raise or return another table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ottla.connect.columns import Columns, NotInColumns
from ottla.connect.data import Schema
from ottla.connect.tables import arrow_schema, is_empty


def typed_table(columns: Columns, schema: Schema) -> Any:
    """Return a table of values with a schema.

    Args:
        columns: The records. Values that are not structs become the column `value`.
        schema: Schema of the table's columns: all or some of the value's fields.
    """
    import pyarrow as pa

    if not schema.fields:
        raise NotInColumns("values have no fields")
    is_struct = isinstance(columns.record.value, dict)
    fields = columns.fields() if is_struct else {"value": columns.value()}
    arrays = [fields[each.name] for each in schema.fields]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def untyped_table(columns: Columns, gone: Sequence[str] = ()) -> Any:
    """Return a table of values without a schema, except columns in `gone` and all-null columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = {name: each for name, each in columns.fields().items() if name not in gone}
    kept = {name: each for name, each in fields.items() if not is_empty(each.type)}
    if not kept:
        raise NotInColumns("all fields are null, so their types are unknown")
    has_some = reduce(pc.or_, [pc.is_valid(each) for each in fields.values()])
    if not pc.all(has_some).as_py():
        raise NotInColumns("a value may have no fields")
    return pa.table(kept)


def shares_of(table: Any, places: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the rows of each place; `places` has one entry per row, or a single one for all."""
    import pyarrow as pa

    if len(places) == 1:
        return [(places[0], table)]
    rows: dict[str, list[int]] = {}
    for row, place in enumerate(places):
        rows.setdefault(place, []).append(row)
    if len(rows) == 1:
        return [(places[0], table)]
    return [(place, table.take(pa.array(share))) for place, share in rows.items()]


def merged(tables: Sequence[Any]) -> list[Any]:
    """Concatenate the tables that have the same schema."""
    import pyarrow as pa

    groups: dict[str, list[Any]] = {}
    for table in tables:
        groups.setdefault(table.schema.to_string(), []).append(table)
    return [pa.concat_tables(each) for _, each in sorted(groups.items())]
