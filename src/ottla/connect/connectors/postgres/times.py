"""Conversion of PostgreSQL's dates and times, in ISO style, to numbers.

Python's dates range from the year 1 to 9999; PostgreSQL's from 4713 BC to 294276, plus infinity in
both directions, which maps to the largest and the smallest number. The functions do no I/O.
"""

from __future__ import annotations

import datetime
import re

DAY_US = 86_400_000_000
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
DAYS_OF_A_MONTH = 365.25 / 12
"""Average length of a month, as Debezium assumes it for numeric intervals."""


def days(text: str) -> int:
    """Return the days since 1970-01-01."""
    if len(text) == 10:
        return datetime.date.fromisoformat(text).toordinal() - _EPOCH_DAY
    if text.endswith("infinity"):
        return INT32_MIN if text.startswith("-") else INT32_MAX
    return _civil_days(*_date(text))


def microseconds(text: str) -> int:
    """Return the microseconds since 1970-01-01 00:00:00, without a time zone."""
    try:
        return (datetime.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except ValueError:
        pass
    if text.endswith("infinity"):
        return INT64_MIN if text.startswith("-") else INT64_MAX
    era = " BC" if text.endswith(" BC") else ""
    date, _, time = text.removesuffix(" BC").partition(" ")
    return days_of_any(date + era) * DAY_US + microseconds_of_day(time)


def days_of_any(text: str) -> int:
    return _civil_days(*_date(text))


def microseconds_of_day(text: str) -> int:
    """Return the microseconds of a time from 00:00:00 to 24:00:00."""
    whole, _, fraction = text.partition(".")
    hours, minutes, seconds = whole.split(":")
    of_seconds = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return of_seconds * 1_000_000 + int(f"{fraction:0<6}" if fraction else 0)


def zoned(text: str) -> str:
    """Convert `2024-01-02 03:04:05.6+00`, from a session in UTC, to `2024-01-02T03:04:05.6Z`."""
    if text.endswith("infinity"):
        return text
    if text.endswith(" BC"):
        year, month, day = _date(text)
        time = text.removesuffix(" BC").partition(" ")[2].removesuffix("+00")
        return f"{year:05d}-{month:02d}-{day:02d}T{time}Z"
    return text.replace(" ", "T", 1).removesuffix("+00") + "Z"


def zoned_time(text: str) -> str:
    """Convert `03:04:05+02` to `03:04:05+02:00`."""
    at = max(text.rfind("+"), text.rfind("-"))
    zone = text[at:]
    return f"{text}:00" if at > 0 and len(zone) == 3 else text


def interval_microseconds(text: str) -> int:
    """Return the microseconds of an ISO 8601 interval, with months of average length."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an interval")
    years, months, of_days, hours, minutes = (int(each or 0) for each in found.groups()[:5])
    whole_days = (years * 12 + months) * DAYS_OF_A_MONTH + of_days
    seconds, _, fraction = (found[6] or "0").partition(".")
    part = int(f"{fraction:0<6}") if fraction else 0
    of_seconds = int(seconds) * 1_000_000 + (-part if seconds.startswith("-") else part)
    return round(whole_days * DAY_US) + (hours * 60 + minutes) * 60_000_000 + of_seconds


def _date(text: str) -> tuple[int, int, int]:
    """Return year (0 is 1 BC), month and day."""
    is_before_christ = text.endswith(" BC")
    year, month, day = text.removesuffix(" BC").partition(" ")[0].split("-")
    number = 1 - int(year) if is_before_christ else int(year)
    return number, int(month), int(day)


def _civil_days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 in the proleptic Gregorian calendar, in 400-year eras."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
