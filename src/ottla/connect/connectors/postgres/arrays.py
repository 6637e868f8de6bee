"""Parsing of PostgreSQL's array literals: `{1,NULL,"a \\"b\\""}`, or `[0:1]={…}` with bounds."""

from __future__ import annotations

from ottla.connect.data import DataError


def parse_array(text: str) -> list[str | None]:
    """Return the items as texts; raise DataError for nested arrays, which have no schema."""
    if text.startswith("["):
        text = text.partition("=")[2]
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise DataError(f"{text[:60]!r} is not an array")
    inside = text[1:-1]
    if not inside:
        return []
    if '"' not in inside and "\\" not in inside:
        if "{" in inside:
            raise _nested()
        return [None if each == "NULL" else each for each in inside.split(",")]
    return _quoted(inside)


def _quoted(inside: str) -> list[str | None]:
    found: list[str | None] = []
    at, size = 0, len(inside)
    while at <= size:
        if inside[at : at + 1] == '"':
            item, at = _string(inside, at + 1)
            found.append(item)
        else:
            end = inside.find(",", at)
            end = size if end < 0 else end
            item = inside[at:end]
            if item.startswith("{"):
                raise _nested()
            found.append(None if item == "NULL" else item)
            at = end
        at += 1
    return found


def _string(inside: str, at: int) -> tuple[str, int]:
    parts = []
    while inside[at] != '"':
        if inside[at] == "\\":
            at += 1
        parts.append(inside[at])
        at += 1
    return "".join(parts), at + 1


def _nested() -> DataError:
    return DataError(
        "an array of arrays has no schema; set array.handling.mode=string to capture arrays as "
        "strings"
    )
