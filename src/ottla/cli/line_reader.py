"""Parser that turns the input lines of `kafka-console-producer` into records.

    parse.headers and parse.key    h1:v1,h2:v2 TAB key TAB value
    parse.key                      key TAB value
    parse.headers                  h1:v1,h2:v2 TAB value
    neither                        value

All separators are properties; `headers.separator` is a regular expression, as in Kafka. A field
that equals `null.marker` is null. A line without a separator is an error; with `ignore.error`, the
rest of the line becomes the value.

Lines are processed as bytes, so input that is not UTF-8 is sent unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.base.errors import UserError

PROPERTIES = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
    "null.marker": None,
}
"""Properties of the line reader and their defaults."""
_MUST_DIFFER = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    ("null.marker", "key.separator"),
    ("null.marker", "headers.separator"),
    ("null.marker", "headers.delimiter"),
    ("null.marker", "headers.key.separator"),
)


class LineRecord(NamedTuple):
    """The fields of one input line."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    """Parser for input lines, configured with reader properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Validate the properties.

        Raises:
            UserError: A property is unknown, invalid, or equal to one that it must differ from.
        """
        unknown = sorted(set(properties) - set(PROPERTIES))
        if unknown:
            raise UserError(
                f"Unknown reader property {unknown[0]}. Use one of {', '.join(PROPERTIES)}."
            )
        settings = {**PROPERTIES, **properties}
        for one, other in _MUST_DIFFER:
            if settings[one] == settings[other]:
                raise UserError(f"{one} and {other} must not be equal.")
        self._parses_key = _is_true(settings["parse.key"])
        self._parses_headers = _is_true(settings["parse.headers"])
        self._ignores_errors = _is_true(settings["ignore.error"])
        self._key_separator = _bytes(settings["key.separator"])
        self._headers_delimiter = _bytes(settings["headers.delimiter"])
        self._headers_key_separator = _bytes(settings["headers.key.separator"])
        marker = settings["null.marker"]
        self._null_marker = None if marker is None else marker.encode()
        try:
            self._headers_separator = re.compile(_bytes(settings["headers.separator"]))
        except re.error as error:
            raise UserError(
                f"headers.separator is not a valid regular expression: {error}."
            ) from None
        self._line_number = 0

    def records(self, lines: Iterable[bytes]) -> Iterator[LineRecord]:
        for line in lines:
            yield self.parse(line)

    def parse(self, line: bytes) -> LineRecord:
        """Parse one line.

        Raises:
            UserError: The line lacks a separator. The message contains the line.
        """
        self._line_number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        rest = line
        headers = key = None
        if self._parses_headers:
            headers, rest = self._split(line, rest, self._headers_delimiter, "headers delimiter")
        if self._parses_key:
            key, rest = self._split(line, rest, self._key_separator, "key separator")
        return LineRecord(
            self._unless_marked(key), self._unless_marked(rest), self._parse_headers(headers)
        )

    def _split(
        self, line: bytes, rest: bytes, separator: bytes, name: str
    ) -> tuple[bytes | None, bytes]:
        field, found, behind = rest.partition(separator)
        if found:
            return field, behind
        if self._ignores_errors:
            return None, rest
        raise UserError(
            f"No {name} found on line number {self._line_number}: "
            f"'{line.decode('utf-8', 'replace')}'."
        )

    def _parse_headers(self, text: bytes | None) -> list[tuple[str, bytes | None]]:
        if text is None or text == self._null_marker:
            return []
        pairs = self._headers_separator.split(text)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()
        return [self._parse_header(pair) for pair in pairs]

    def _parse_header(self, pair: bytes) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self._headers_key_separator)
        shown = pair.decode("utf-8", "replace")
        if not found and not self._ignores_errors:
            raise UserError(
                f"No header key separator found in pair '{shown}' on line number "
                f"{self._line_number}."
            )
        if key == self._null_marker:
            raise UserError(
                f"A header key equals the null marker on line number {self._line_number}. Choose "
                "another null.marker."
            )
        return key.decode("utf-8", "replace"), self._unless_marked(value) if found else None

    def _unless_marked(self, field: bytes | None) -> bytes | None:
        return None if field == self._null_marker else field


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _bytes(text: str | None) -> bytes:
    assert text is not None
    if not text:
        raise UserError("Separators of the line reader must not be empty.")
    return text.encode()
