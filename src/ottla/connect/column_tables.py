"""Columns of a sink as a table: the fields of values are its columns, as in `tables`.

What `table_of` and `inferred` refuse, and what they would not make the same, is NotInColumns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ottla.connect.columns import Columns, NotInColumns
from ottla.connect.data import Schema
from ottla.connect.tables import arrow_schema, is_empty


def typed_table(columns: Columns, schema: Schema) -> Any:
    """Of values with a schema; `schema` is that of the table's columns, some or all of theirs. A
    value that is no struct is the column `value`."""
    import pyarrow as pa

    if not schema.fields:
        raise NotInColumns("values have no fields")
    is_struct = isinstance(columns.record.value, dict)
    fields = columns.fields() if is_struct else {"value": columns.value()}
    arrays = [fields[each.name] for each in schema.fields]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def untyped_table(columns: Columns, gone: Sequence[str] = ()) -> Any:
    """Of values without a schema; it has the columns that are not all null, and not `gone`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = {name: each for name, each in columns.fields().items() if name not in gone}
    kept = {name: each for name, each in fields.items() if not is_empty(each.type)}
    if not kept:
        raise NotInColumns("nothing is known of any field")
    has_some = reduce(pc.or_, [pc.is_valid(each) for each in fields.values()])
    if not pc.all(has_some).as_py():
        raise NotInColumns("a value may have no fields at all")
    return pa.table(kept)


def shares_of(table: Any, places: Sequence[str]) -> list[tuple[str, Any]]:
    """The rows of each place; `places` has that of each row, or one for all."""
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
    """Those of one schema as one."""
    import pyarrow as pa

    groups: dict[str, list[Any]] = {}
    for table in tables:
        groups.setdefault(table.schema.to_string(), []).append(table)
    return [pa.concat_tables(each) for _, each in sorted(groups.items())]
