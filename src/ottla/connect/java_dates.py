"""Java's date patterns (`yyyy-MM-dd'T'HH:mm:ss.SSSXXX`), for formatting and parsing in UTC.

Supported are the letters common in property files (y M d D E H h k K m s S a z Z X) and quoted
text. Any other letter raises ValueError when the pattern is created.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from itertools import groupby

from ottla.connect.data import DataError

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_Time = datetime.datetime


class JavaDatePattern:
    """Java date pattern.

    Raises:
        ValueError: The pattern has an unknown letter.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens = list(_tokens(pattern))
        for letter, count in self._tokens:
            if count and letter not in _WRITERS:
                raise ValueError(f"the letter {letter} of the date pattern {pattern!r} is unknown")
        parts = [_regex(*each) if each[1] else re.escape(each[0]) for each in self._tokens]
        self._regex = re.compile("".join(parts))

    def format(self, time: _Time) -> str:
        return "".join(
            _WRITERS[text](time, count) if count else text for text, count in self._tokens
        )

    def parse(self, text: str) -> _Time:
        match = self._regex.fullmatch(text.strip())
        if match is None:
            raise DataError(f"{text!r} does not match the date pattern {self.pattern}")
        fields = [(letter, count) for letter, count in self._tokens if count]
        found = {letter: value for (letter, _), value in zip(fields, match.groups(), strict=True)}
        try:
            return _time_of(found)
        except (ValueError, OverflowError):
            raise DataError(f"{text!r} is not a valid date") from None


def _tokens(pattern: str) -> list[tuple[str, int]]:
    """Return pairs of (letter, repetitions) or (literal text, 0)."""
    found: list[tuple[str, int]] = []
    for index, part in enumerate(re.split(r"'((?:[^']|'')*)'", pattern)):
        if index % 2:
            found.append((part.replace("''", "'") or "'", 0))
            continue
        for char, run in groupby(part):
            count = len(list(run))
            is_letter = char.isascii() and char.isalpha()
            found.append((char, count) if is_letter else (char * count, 0))
    return found


def _padded(part: Callable[[_Time], int]) -> Callable[[_Time, int], str]:
    return lambda time, count: str(part(time)).zfill(count)


def _offset(count: int) -> str:
    return "Z" if count else ""


_WRITERS: dict[str, Callable[[_Time, int], str]] = {
    "y": lambda t, n: f"{t.year % 100:02}" if n == 2 else f"{t.year:0{n}}",
    "M": lambda t, n: (
        _MONTHS[t.month - 1] if n > 3 else _MONTHS[t.month - 1][:3] if n == 3
        else str(t.month).zfill(n)
    ),
    "d": _padded(lambda t: t.day),
    "D": _padded(lambda t: t.timetuple().tm_yday),
    "E": lambda t, n: _DAYS[t.weekday()] if n > 3 else _DAYS[t.weekday()][:3],
    "H": _padded(lambda t: t.hour),
    "k": _padded(lambda t: t.hour or 24),
    "h": _padded(lambda t: t.hour % 12 or 12),
    "K": _padded(lambda t: t.hour % 12),
    "m": _padded(lambda t: t.minute),
    "s": _padded(lambda t: t.second),
    "S": _padded(lambda t: t.microsecond // 1000),
    "a": lambda t, n: "AM" if t.hour < 12 else "PM",
    "z": lambda t, n: "UTC" if n < 4 else "Coordinated Universal Time",
    "Z": lambda t, n: "+0000",
    "X": lambda t, n: _offset(n),
}  # fmt: skip


def _regex(letter: str, count: int) -> str:
    if letter in "MEaz" and (letter != "M" or count > 2):
        return r"([A-Za-z+:0-9]+)"
    if letter in "ZX":
        return r"(Z|[+-]\d{2}(?::?\d{2})?)"
    # Fixed width, because fields may be adjacent (yyyyMMdd). Java is as strict there.
    return rf"(\d{{{count}}})" if letter == "S" or count > 1 else r"(\d{1,9})"


def _time_of(found: dict[str, str]) -> _Time:
    year = int(found.get("y", 1970))
    if len(found.get("y", "1970")) == 2:
        year += 2000 if year < 70 else 1900
    text = found.get("M", "1")
    month = int(text) if text.isdecimal() else next(
        index for index, name in enumerate(_MONTHS, 1) if name[:3].lower() == text[:3].lower()
    )  # fmt: skip
    time = _Time(year, month, int(found.get("d", 1)), tzinfo=datetime.UTC)
    if "D" in found:
        time = time.replace(month=1, day=1) + datetime.timedelta(days=int(found["D"]) - 1)
    time += datetime.timedelta(
        hours=_hour(found),
        minutes=int(found.get("m", 0)),
        seconds=int(found.get("s", 0)),
        milliseconds=int(found.get("S", 0)),
    )
    return time - _zone(found.get("X") or found.get("Z") or "Z")


def _hour(found: dict[str, str]) -> int:
    for letter in "Hk":
        if letter in found:
            return int(found[letter]) % 24
    for letter in "hK":
        if letter in found:
            return int(found[letter]) % 12 + (12 if found.get("a", "").upper() == "PM" else 0)
    return 0


def _zone(text: str) -> datetime.timedelta:
    if text == "Z":
        return datetime.timedelta()
    digits = text[1:].replace(":", "").ljust(4, "0")
    ahead = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -ahead if text[0] == "-" else ahead
