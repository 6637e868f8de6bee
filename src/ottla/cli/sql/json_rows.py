"""Conversion of JSON values to rows, with the results of Spark's inference and FAILFAST parser.

Supported are objects whose fields are 64-bit integers, other numbers, strings and booleans.
Everything else raises NeedsSpark: nested values, fields of mixed types, names that differ only in
case, and numbers that are not valid JSON. The functions are pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

Kind = Literal["bigint", "double", "string", "boolean"]
MAX_VALUE_BYTES = 1 << 20
MAX_NUMBER_CHARS = 100
_LEAST, _MOST = -(2**63), 2**63 - 1


class NeedsSpark(Exception):
    """The statement must run on Spark, because the result might differ from Spark's."""


def infer(objects: Iterable[str]) -> dict[str, Kind]:
    """Return the columns that Spark would infer, in Spark's order."""
    kinds: dict[str, Kind | None] = {}
    for text in objects:
        for name, value in load(text).items():
            kinds[name] = _merged(kinds.get(name), _kind(value))
    names = sorted(kinds)
    if not names or len({name.lower() for name in names}) < len(names):
        raise NeedsSpark
    found: dict[str, Kind] = {}
    for name in names:
        kind = kinds[name]
        if kind is None or not name or not name.isascii():
            raise NeedsSpark
        found[name] = kind
    return found


def _kind(value: Any) -> Kind | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    raise NeedsSpark


def _merged(one: Kind | None, other: Kind | None) -> Kind | None:
    if one is None or other is None or one == other:
        return one or other
    if {one, other} == {"bigint", "double"}:
        return "double"
    raise NeedsSpark


def row(value: bytes | None, columns: dict[str, Kind]) -> Sequence[Any]:
    """Return the fields of one value, or nulls for a null value (a tombstone)."""
    if value is None:
        return [None] * len(columns)
    try:
        found = load(value.decode())
    except UnicodeDecodeError:
        raise NeedsSpark from None
    return [_field(found.get(name), kind) for name, kind in columns.items()]


def _field(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "double" and _kind(value) == "bigint":
        return float(value)
    if _kind(value) != kind:
        raise NeedsSpark
    return value


def load(text: str) -> dict[str, Any]:
    """Parse a JSON object; raise NeedsSpark if Spark's parser might read it differently."""
    if len(text) > MAX_VALUE_BYTES:
        raise NeedsSpark
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise NeedsSpark from None
    if not isinstance(found, dict):
        raise NeedsSpark
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NeedsSpark
    for name, value in pairs:
        _check_text(name)
        if isinstance(value, str):
            _check_text(value)
    return found


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate, written as an escape
        raise NeedsSpark from None


def _int(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS or text == "-0" or not _LEAST <= int(text) <= _MOST:
        raise NeedsSpark
    return int(text)


def _float(text: str) -> float:
    found = float(text)
    if len(text) > MAX_NUMBER_CHARS or found in (float("inf"), float("-inf")):
        raise NeedsSpark
    return found


def _constant(text: str) -> float:
    raise NeedsSpark


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_int, parse_float=_float, parse_constant=_constant
)
