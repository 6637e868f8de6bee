"""HTML tables for notebooks, returned by `_repr_html_` of records, topics, groups and queries.

Values come from topics and are untrusted. All text is escaped, unprintable characters are shown as
escapes, and both the number of rows and the length of a cell are bounded. The HTML contains no
scripts, no references and no styles that affect other elements.
"""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

MAX_ROWS = 10
MAX_COLUMNS = 30
MAX_CELL_CHARS = 80
ELLIPSIS = "…"

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = MAX_CELL_CHARS
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 10


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    count: int | None = None,
    caption: str = "",
) -> str:
    """Return an HTML table.

    Args:
        headings: Titles of the columns. At most `MAX_COLUMNS` are shown.
        rows: The cells of each row. At most `MAX_ROWS` are read and shown.
        count: Total number of rows, for the note about rows that are not shown. Needed only if
            `rows` has no length.
        caption: A line above the table.
    """
    if count is None:
        rows = rows if isinstance(rows, Sequence) else list(rows)
        count = len(rows)
    shown = list(itertools.islice(rows, MAX_ROWS))
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{escape(_bounded(caption))}</caption>")
    names = "".join(f"<th>{escape(_bounded(name))}</th>" for name in headings[:MAX_COLUMNS])
    parts.append(f"<thead><tr>{names}</tr></thead><tbody>")
    for row in shown:
        cells = "".join(f"<td>{cell(each)}</td>" for each in row[:MAX_COLUMNS])
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</tbody></table>")
    if count > len(shown):
        parts.append(f"<p>{ELLIPSIS} {count - len(shown):,} more</p>")
    return "".join(parts)


def mapping_table(values: Mapping[Any, Any], *, caption: str = "") -> str:
    """Return an HTML table with a row for each entry of a mapping.

    Values that are named tuples or dataclasses have a column for each field. The key has a column
    of its own unless it is the first field of every value.
    """
    first = next(iter(values.values()), None)
    names = fields(first)
    shown = list(itertools.islice(values.items(), MAX_ROWS))
    if not names or any(type(value) is not type(first) for _, value in shown):
        rows = [(key, value) for key, value in shown]
        return table(("", "value"), rows, count=len(values), caption=caption)
    records = [(key, [getattr(value, name) for name in names]) for key, value in shown]
    if all(record[0] == key for key, record in records):
        return table(names, [record for _, record in records], count=len(values), caption=caption)
    with_keys = [[key, *record] for key, record in records]
    return table(("", *names), with_keys, count=len(values), caption=caption)


def fields(value: object) -> tuple[str, ...]:
    """Return the field names of a named tuple or dataclass, or an empty tuple."""
    if isinstance(value, type):
        return ()
    if dataclasses.is_dataclass(value):
        return tuple(each.name for each in dataclasses.fields(value))
    return tuple(getattr(value, "_fields", ()))


def cell(value: Any) -> str:
    """Return the HTML of one value, escaped and bounded."""
    if value is None:
        return "<i>null</i>"
    return escape(_bounded(_text(value)))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[: MAX_CELL_CHARS + 1]
    if isinstance(value, bytes | bytearray | memoryview):
        # A UTF-8 character has at most four bytes. The last one may be cut in two.
        start = bytes(value[: 4 * (MAX_CELL_CHARS + 1)])
        is_whole = len(start) == len(value)
        return start.decode(errors="backslashreplace" if is_whole else "replace")
    if fields(value) and _has_own_text(value):
        return str(value)
    if isinstance(value, tuple):
        # Partitions and members have views of their own, so only their number is shown.
        is_counted = bool(value) and bool(fields(value[0])) and not _has_own_text(value[0])
        return f"{len(value):,}" if is_counted else _listed(value)
    if isinstance(value, bool | int | float) or (
        isinstance(value, Mapping) and _has_own_text(value)
    ):
        return str(value)
    return _short.repr(value)


def _has_own_text(value: object) -> bool:
    return type(value).__str__ is not object.__str__


def _listed(values: Sequence[Any]) -> str:
    """Return the items, separated by commas, up to the length of a cell."""
    text = ""
    for each in values:
        text += f"{', ' if text else ''}{_text(each)}"
        if len(text) > MAX_CELL_CHARS:
            break
    return text


def _bounded(text: str) -> str:
    is_long = len(text) > MAX_CELL_CHARS
    kept = text[: MAX_CELL_CHARS - 1] if is_long else text
    visible = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in kept
    )
    return visible + ELLIPSIS if is_long else visible
