"""JSON encoding of Arrow columns, one text per row.

Numbers, booleans, strings, dates and times, decimals, and structs of these are encoded by Arrow's
compute functions, without a Python object per row. Other types, such as lists, maps and intervals,
are encoded row by row by Python's `json`. Nulls, NaN and infinities become null. Bytes become
strings and must be valid UTF-8. Dates and times become ISO 8601 strings."""

from __future__ import annotations

import json
from typing import Any

from ottla.wire.records.columnar.requirements import pyarrow as pa

_MUST_ESCAPE = r'["\\\x00-\x1f]'
_ESCAPES = [
    ("\\", "\\\\"),
    ('"', '\\"'),
    *((chr(code), json.dumps(chr(code))[1:-1]) for code in range(0x20)),
]
_NULL = "null"


def json_column(table: Any, names: list[str], *, is_object: bool) -> Any:
    """Return a column of JSON texts: one object per row, or the values of the first column."""
    if not is_object:
        return json_values(table.column(names[0]))
    return _objects(names, [table.column(name) for name in names])


def json_values(column: Any) -> Any:
    """Return each value of an Arrow array as JSON; nulls become the text "null"."""
    import pyarrow.compute as pc

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.fill_null(_texts(array), _NULL)


def _objects(names: list[str], columns: list[Any]) -> Any:
    import pyarrow.compute as pc

    pieces: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        opening = "{" if index == 0 else ","
        pieces += [
            _scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:"),
            json_values(column),
        ]
    return pc.binary_join_element_wise(*pieces, _scalar("}"), _scalar(""))


def _texts(array: Any) -> Any:
    """Return the JSON of each value; nulls stay null."""
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _texts(array.dictionary_decode())
    if pa.types.is_struct(kind) and kind.num_fields:
        names = [kind.field(index).name for index in range(kind.num_fields)]
        objects = _objects(names, [pc.struct_field(array, index) for index in range(len(names))])
        return pc.if_else(pc.is_valid(array), objects, pa.scalar(None, pa.large_string()))
    if pa.types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(array), array, pa.scalar(None, kind))
        return _with_fraction(pc.cast(finite, pa.large_string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return pc.cast(array, pa.large_string())
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.large_string())
    if _is_text(kind):
        return _quoted(_escaped(pc.cast(array, pa.large_string())))
    if pa.types.is_timestamp(kind):
        return _quoted(pc.cast(_iso(array), pa.large_string()))
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quoted(pc.cast(array, pa.large_string()))
    return _by_hand(array)


def _with_fraction(numbers: Any) -> Any:
    """Write 3 as 3.0, so that a column of floats is read back as floats."""
    import pyarrow.compute as pc

    is_whole = pc.match_substring_regex(numbers, "^-?[0-9]+$")
    if not pc.any(is_whole).as_py():
        return numbers
    longer = pc.binary_join_element_wise(numbers, _scalar(".0"), _scalar(""))
    return pc.if_else(is_whole, longer, numbers)


def _iso(array: Any) -> Any:
    """Format timestamps as 2026-11-16T05:30:00.123, with Z if the column has a time zone."""
    import pyarrow.compute as pc

    suffix = "" if array.type.tz is None else "Z"
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    return pc.strftime(array, format=f"%Y-%m-%dT%H:%M:%S{suffix}")


def _escaped(texts: Any) -> Any:
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring_regex(texts, _MUST_ESCAPE)).as_py():
        return texts
    for character, escape in _ESCAPES:
        texts = pc.replace_substring(texts, character, escape)
    return texts


def _quoted(texts: Any) -> Any:
    import pyarrow.compute as pc

    quote = _scalar('"')
    return pc.binary_join_element_wise(quote, texts, quote, _scalar(""))


def _by_hand(array: Any) -> Any:
    return pa.array(
        [
            None if value is None else json.dumps(value, ensure_ascii=False, default=_plain)
            for value in array.to_pylist()
        ],
        pa.large_string(),
    )


def _plain(value: Any) -> Any:
    """Convert a value that `json` does not support."""
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _is_text(kind: Any) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
            pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )  # fmt: skip


def _scalar(text: str) -> Any:
    return pa.scalar(text, pa.large_string())
