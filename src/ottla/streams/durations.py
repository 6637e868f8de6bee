"""Durations in plain words, such as "1 minute", "90 s" and "500 ms", or as a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from ottla.streams.errors import TopologyError

Duration = str | timedelta

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*", re.IGNORECASE)


def duration_ms(value: Duration, *, name: str, min_ms: int = 0) -> int:
    length_ms = _parsed_ms(value, name)
    if length_ms < min_ms:
        raise TopologyError(f"{name} must be at least {format_duration(min_ms)}, not {value!r}")
    return length_ms


def format_duration(length_ms: int) -> str:
    """Return a duration in the largest unit that divides it, for people and for Spark."""
    for unit, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if length_ms and length_ms % unit_ms == 0:
            return _pluralized(length_ms // unit_ms, unit)
    if length_ms % 1000 == 0:
        return _pluralized(length_ms // 1000, "second")
    return f"{length_ms} milliseconds"


def _parsed_ms(value: Duration, name: str) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    total_ms, position = 0, 0
    while part := _PART.match(value, position):
        unit = part[2].lower()
        unit_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if unit_ms is None:
            break
        total_ms += int(part[1]) * unit_ms
        position = part.end()
    if position != len(value) or not value.strip():
        raise TopologyError(
            f'{name}={value!r} is invalid. Use "10 seconds", "1 minute", "500 ms" or a timedelta.'
        )
    return total_ms


def _pluralized(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
