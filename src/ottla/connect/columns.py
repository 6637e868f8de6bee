"""Batches of records as one ConnectRecord whose fields hold columns.

A batch of one topic is a single ConnectRecord that holds a Column wherever a record holds a value;
structs remain dicts, now of columns. A transform that only moves or changes fields is therefore the
same code for a record and for a batch, and is called once; it declares this with `on_columns`.
Values that all records share (the topic, an inserted constant) stay plain values.

This is the fast path for the common case. Anything that does not fit (headers, null structs, values
that do not match their schema, custom transforms) raises NotInColumns, and the worker processes the
batch record by record, where it finds and reports each error separately.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ottla.connect.data import ConnectRecord, DataError, Schema, Type
from ottla.connect.tables import arrow_type, for_arrow, from_arrow

MANY_RECORDS = 1_000
"""Number of records from which columns are faster than single records."""


class NotInColumns(Exception):
    """Records that cannot be processed in columns. The worker processes them one by one."""


@cache
def has_columns() -> bool:
    """Return whether the required packages are installed."""
    return all(importlib.util.find_spec(name) for name in ("pyarrow", "numba"))


class Column:
    """Values of a field, as an Arrow array or as the Python values converted from it.

    Args:
        array: Arrow array of the values, or None if `values` is given.
        schema: Schema of the values, or None.
        values: Python values, as they appear in records.
    """

    __slots__ = ("_array", "_schema", "_values")

    def __init__(self, array: Any, schema: Schema | None, values: list[Any] | None = None) -> None:
        self._array = array
        self._schema = schema
        self._values = values

    def values(self) -> list[Any]:
        """Return the values as they appear in records."""
        if self._values is None:
            if self._schema is None:
                _check_unambiguous(self._array)
            plain = self._array.to_pylist()
            if self._schema is not None and not _is_plain(self._schema):
                plain = [from_arrow(self._schema, each) for each in plain]
            self._values = plain
        return self._values

    def has_nulls(self) -> bool:
        """Return whether a value is null."""
        if self._array is not None:
            return bool(self._array.null_count)
        return any(each is None for each in self._values or ())

    def map(self, change: Callable[[Any], Any]) -> Column:
        """Return a column with a function applied to each value.

        Args:
            change: Function of one value, which returns the new one.
        """
        return Column(None, None, [change(each) for each in self.values()])

    def array(self, schema: Schema | None) -> Any:
        """Return an Arrow array of the schema's type, or unconverted without a schema.

        Args:
            schema: Schema of the array's values, or None.

        Raises:
            NotInColumns: The values do not fit the schema.
        """
        import pyarrow as pa

        try:
            if self._array is None:
                return _array(self._values or [], schema)
            if schema is None:
                return self._array
            return _cast(self._array, arrow_type(schema))
        except (pa.ArrowException, DataError, TypeError, ValueError, OverflowError) as error:
            raise NotInColumns(str(error)) from None


def _check_unambiguous(array: Any) -> None:
    """Raise NotInColumns if values without a schema may differ between Arrow and records.

    Arrow turns 1 into 1.0 in a column of floats, and a missing field into null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(array.type):
        raise NotInColumns("without a schema, a field may be missing or null")
    if pa.types.is_floating(array.type) and pc.any(pc.equal(pc.floor(array), array)).as_py():
        raise NotInColumns("without a schema, a number may be an integer or a float")


_PLAIN = frozenset(Type) - {Type.ARRAY, Type.MAP, Type.STRUCT}


def _is_plain(schema: Schema) -> bool:
    """Return whether records hold the same Python values as Arrow returns."""
    return schema.type in _PLAIN and schema.name is None


def _array(values: Sequence[Any], schema: Schema | None) -> Any:
    import pyarrow as pa

    if schema is None:
        return pa.array(values)
    return pa.array([for_arrow(schema, each) for each in values], arrow_type(schema))


def _cast(array: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type):
        # Truncate to milliseconds. Flooring is also right for timestamps before 1970.
        array = pc.floor_temporal(array, unit="millisecond")
    return array.cast(kind)


def column_of(array: Any, schema: Schema | None, *, is_split: bool = True) -> Any:
    """Return an array as a Column, or a struct as a dict of them.

    Args:
        array: Arrow array.
        schema: Schema of the values, or None.
        is_split: Whether to split nested structs too, as transforms require.

    Raises:
        NotInColumns: The values cannot be represented as columns.
    """
    import pyarrow as pa

    if array.null_count and schema is not None and not schema.optional:
        raise NotInColumns("a value must not be null")
    if array.null_count and schema is not None and schema.default is not None:
        raise NotInColumns("null is replaced by a default")
    if not pa.types.is_struct(array.type):
        if is_split and pa.types.is_map(array.type):
            raise NotInColumns("the fields of a map differ between records")
        return Column(array, schema)
    if array.null_count:
        raise NotInColumns("a struct is null")
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    if len(set(names)) < len(names):
        raise NotInColumns("two fields have the same name")
    return {
        name: _field(child, None if schema is None else _inner(schema, name), is_split=is_split)
        for name, child in zip(names, array.flatten(), strict=True)
    }


def _field(array: Any, schema: Schema | None, *, is_split: bool) -> Any:
    if is_split:
        return column_of(array, schema)
    return Column(array, schema)


def _inner(schema: Schema, name: str) -> Schema:
    found = schema.field(name)
    if found is None:
        raise NotInColumns(f"the schema has no field {name}")
    return found.schema


def check_not_null(value: Any) -> None:
    """Raise NotInColumns unless every record has a value."""
    if value is None or (isinstance(value, Column) and value.has_nulls()):
        raise NotInColumns("only some records have a value")


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one topic in columns, without headers."""

    record: ConnectRecord
    """Record whose fields hold columns. Partition, offset and timestamp are integers or None."""
    rows: int
    """Number of records."""

    def value(self) -> Any:
        """Return the values as an Arrow array.

        Raises:
            NotInColumns: The values do not fit their schema as columns.
        """
        return self.array(self.record.value_schema, self.record.value)

    def key(self) -> Any:
        """Return the keys as an Arrow array.

        Raises:
            NotInColumns: The keys do not fit their schema as columns.
        """
        return self.array(self.record.key_schema, self.record.key)

    def fields(self) -> dict[str, Any]:
        """Return an Arrow array for each field of the values, which must be structs.

        Raises:
            NotInColumns: The values have no fields, or other fields than their schema.
        """
        schema, value = self.record.value_schema, self.record.value
        is_struct = schema is None or schema.type is Type.STRUCT
        if not is_struct or not isinstance(value, Mapping):
            raise NotInColumns("values have no fields")
        if schema is None:
            return {name: self.array(None, each) for name, each in value.items()}
        if value.keys() != {each.name for each in schema.fields}:
            raise NotInColumns("the fields of the values differ from the schema")
        return {each.name: self.array(each.schema, value[each.name]) for each in schema.fields}

    def array(self, schema: Schema | None, value: Any) -> Any:
        """Return values as an Arrow array.

        Args:
            schema: Schema of the values, or None.
            value: A column, a dict of columns, or one value for all records.

        Raises:
            NotInColumns: The values do not fit the schema as columns.
        """
        import pyarrow as pa

        if isinstance(value, Column):
            made = value.array(schema)
        elif isinstance(value, Mapping):
            made = self._struct(schema, value)
        else:
            made = Column(None, None, [value]).array(schema)
            made = pa.repeat(made[0], self.rows)
        if schema is not None and made.null_count and not schema.optional:
            raise NotInColumns("a value must not be null")
        return made

    def _struct(self, schema: Schema | None, value: Mapping[str, Any]) -> Any:
        import pyarrow as pa

        inner = Columns(ConnectRecord("", value, schema), self.rows).fields()
        if not inner:
            raise NotInColumns("a struct has no fields")
        arrays = list(inner.values())
        if schema is not None:
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(schema)))
        return pa.StructArray.from_arrays(arrays, names=list(inner))


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Records in columns, with a function that returns them one by one."""

    columns: Columns
    """The columns."""
    records: Callable[[], Sequence[ConnectRecord]]
    """Function that returns the same records one by one."""
